// What every backend shares: checks, order, the thread for started calls, the record, and the
// verdict that stays. A backend moves the data of one call at a time.
#pragma once

#include "core/ledger.h"
#include "dist/communicator.h"
#include "dist/detail/contract.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace weft::dist::detail {

// Where a call runs: on the caller's own thread, which has nothing else to do, or on the
// communicator's, beside a computation whose processor it should not take while it waits.
enum class Waiting : uint8_t { eager, patient };

// Whether a rank gives a piece for each rank, rather than one for all.
constexpr bool has_pieces(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::scatter ||
         collective == Collective::all_to_all;
}

class CommunicatorBase : public Communicator {
 public:
  ~CommunicatorBase() override;

  int rank() const final { return rank_; }
  int size() const final { return size_; }
  const std::string& name() const final { return name_; }
  Recorder& recorder() final { return *recorder_; }

  // Ordinary memory; a backend that has better overrides it.
  Ref<Storage> allocate(int64_t bytes) override;

  void run(const Call& call) final;
  [[nodiscard]] Handle start(const Call& call) final;
  void wait_all() final;
  std::unique_ptr<Communicator> split(int color, int key, const std::string& label) final;

 protected:
  CommunicatorBase(int rank, int size, std::string name, std::shared_ptr<Recorder> recorder,
                   CommunicatorOptions options);

  // Runs one checked call to its end; throws CommunicationError or ContractError with the verdict,
  // which all later calls repeat. One call at a time, in the order of all ranks. Collectives are
  // numbered together, `sequence` 0, 1, …; sends and receives apart, for each peer and direction.
  // For send, call.in and call.root (to) count; for recv, call.out and call.root (from). `split` is
  // an all_gather under another name.
  virtual void execute(const Call& call, int64_t sequence, Waiting waiting) = 0;

  // A group of this communicator's ranks `members`, of which this rank is number `index`. First
  // prepare_group() runs on the group's first rank, and what it returns is handed to join_group()
  // on every member. Not called with a communicator of its own name twice.
  virtual uint64_t prepare_group(const std::vector<int>& members) = 0;
  virtual std::unique_ptr<Communicator> join_group(const std::vector<int>& members, int index,
                                                   const std::string& name, uint64_t prepared) = 0;

  // For destructors of backends, first thing: gives up if an exception unwinds, then lets started
  // calls end and stops the thread.
  void close();

  const std::shared_ptr<Recorder>& shared_recorder() const { return recorder_; }
  const CommunicatorOptions& options() const { return options_; }
  const char* op_name(const Call& call) const { return name_of(call.collective); }

 private:
  std::shared_ptr<Handle::State> enqueue(const Call& call);
  // Both return the time: of the end, and of the beginning.
  double perform(Handle::State& job, Waiting waiting);
  double number(Handle::State& job, bool starts_now);
  void serve();
  void check_whole() const;

  const int rank_;
  const int size_;
  const std::string name_;
  const std::shared_ptr<Recorder> recorder_;
  const CommunicatorOptions options_;
  const int exceptions_;

  // Of the calling thread.
  int64_t collectives_ = 0;
  std::vector<int64_t> sends_, receives_;
  std::shared_ptr<Handle::State> last_;

  // The verdict: text and kind are written once, before broken_.
  std::atomic<bool> broken_{false};
  std::string verdict_;
  bool contract_error_ = false;

  std::atomic<int64_t> pending_{0};
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Handle::State>> queue_;
  bool closing_ = false;
  Ledger* ledger_ = nullptr;
  std::thread thread_;
};

}  // namespace weft::dist::detail

// A call under way, its own copy of the tag's text included.
struct weft::dist::Handle::State {
  Call call;
  std::string unit;
  int64_t sequence = 0;
  int64_t event = 0;
  int threads = 1;
  Category category = Category::activations;
  std::shared_ptr<Recorder> recorder;
  std::exception_ptr error;
  std::atomic<bool> done{false};
};
