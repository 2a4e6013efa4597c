// The communicator of ranks that send each other messages: the one implementation of all
// collectives for every network library (Transport).
//
// A collective begins with a meeting: every rank sends every other rank its contract, and with it
// its data where they are few. So each knows that all are there and want the same before anything
// is touched, and a small collective is a single exchange. Larger data then travel in chunks,
// straight to where they are needed; sums are formed by FoldPlan in the order of dist/tree.h.
#pragma once

#include "dist/detail/awake_time.h"
#include "dist/detail/base.h"
#include "dist/detail/network.h"

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft::dist::detail {

class TransportCommunicator final : public CommunicatorBase {
 public:
  // `ranks` are the job's ranks that the communicator's ranks are; `number` is its own in the job.
  TransportCommunicator(std::shared_ptr<Network> network, uint64_t number, int rank,
                        std::vector<int> ranks, std::string name,
                        std::shared_ptr<Recorder> recorder, CommunicatorOptions options);
  ~TransportCommunicator() override;

  const char* backend() const override { return network_->transport().backend(); }
  void abort(const std::string& reason) override;
  // Shared with the ranks of this host, where there is such memory.
  Ref<Storage> allocate(int64_t bytes) override;

  // From here on large data go by way of these (hosts.h). Before the first collective.
  struct Hosts;
  void share_hosts(std::unique_ptr<Hosts> hosts);

 protected:
  void execute(const Call& call, int64_t sequence, Waiting waiting) override;
  uint64_t prepare_group(const std::vector<int>& members) override;
  std::unique_ptr<Communicator> join_group(const std::vector<int>& members, int index,
                                           const std::string& name, uint64_t prepared) override;

 private:
  class Exchange;  // of the data of a collective: transport_exchange.h

  struct Present {
    const Call& call;
    Contract contract;
    int64_t sequence;
    bool meeting = false;  // it waits for the others' contracts
  };
  // A message under way, to or from a rank of this communicator.
  struct Flight {
    std::unique_ptr<Transport::Transfer> transfer;
    int peer = 0;
    int64_t bytes = 0;  // at most
    bool done = false;
  };
  // What a rank says when it meets the others: this, then the nodes of its parts and results, then
  // its data if they are inside.
  struct Envelope {
    Contract contract;
    int64_t sequence = 0;
    int32_t parts = 0;
    int32_t results = 0;
    int64_t inside = 0;  // whether the data are
  };
  static constexpr size_t kMessage = size_t{36} << 10;  // bytes of an envelope and all that follows
  using Message = std::vector<std::byte>;

  // Kinds of messages, each with a tag of its own.
  enum class Channel : uint8_t { meeting, data, results, sender, receiver };
  uint64_t tag(Channel channel) const { return number_ * 8 + static_cast<uint64_t>(channel); }

  Flight send(int peer, Channel channel, const std::byte* data, int64_t bytes);
  Flight recv(int peer, Channel channel, std::byte* data, int64_t most);
  // Waits for all of them, or throws the verdict.
  void await(const Present& present, std::span<Flight> flights);
  // After `waited` seconds, of which so many had passed when the first of them was found to have
  // gone.
  void look_around(const Present& present, std::span<Flight> waiting, double waited,
                   std::optional<double>& gone_since, bool lost);
  bool try_wait(Flight& flight, bool& lost);
  void report_missing(const Present& present, const std::vector<int>& missing, double waited,
                      bool lost);
  std::string story(int peer, const Present& present, const std::string& fate, double waited,
                    bool* silent = nullptr);
  [[noreturn]] void fail(const Verdict& verdict);
  [[noreturn]] void fail_by_host(const Present& present, const std::string& reason);
  [[noreturn]] void raise(const Verdict& verdict);
  std::string name_of(int peer) const;

  // The meeting of call number `calls_`; its messages are valid until the one after the next.
  void meet(Present& present, size_t bytes);
  Message& own_message() { return sent_[calls_ % 2]; }
  void post_receives(uint64_t call);
  void exchange_pair(Present& present);

  const std::shared_ptr<Network> network_;
  const uint64_t number_;
  const std::vector<int> ranks_;
  uint64_t calls_ = 0;
  std::array<Message, 2> sent_;
  std::array<std::vector<Flight>, 2> sends_;
  std::array<std::vector<Message>, 2> received_;  // by rank
  std::array<std::vector<Flight>, 2> receives_;
  struct Seen {
    bool any = false;
    Contract contract;
    int64_t sequence = 0;
  };
  std::vector<Seen> seen_;  // each rank's last envelope
  Ref<Storage> staging_;    // of others' data on their way into a sum
  std::unique_ptr<Hosts> hosts_;
  bool part_of_another_ = false;  // whose collectives tell where this rank is
};

}  // namespace weft::dist::detail
