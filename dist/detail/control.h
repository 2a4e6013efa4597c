// What ranks across hosts tell each other beside their data: who is there, who has gone, and the
// verdicts. A star of TCP connections with rank 0 in the middle.
//
// The first verdict on a communicator that reaches rank 0 is the verdict of all. The kernel closes
// the connection of a process that ends, however it ends, so rank 0 hears of it at once and tells
// the others. When rank 0 itself dies, the lowest rank that is left decides on one verdict for the
// whole job and the others fetch it from there.
#pragma once

#include "dist/detail/frame.h"
#include "dist/detail/whereabouts.h"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft::dist::detail {

// The fate of a rank that is not dead.
inline constexpr const char* kLeft = "has left";

struct Verdict {
  std::string text;
  bool contract_error = false;
};

// Thread safe, but for joining.
class Control {
 public:
  struct Options {
    std::string op = "join";  // that errors name
    std::string job = {};
    std::string address = {};  // of rank 0
    int port = 0;
    int rank = 0;
    int size = 1;
    double timeout_seconds = 120;
  };

  // Joins: returns when all ranks have come; throws CommunicationError with the same text on all
  // ranks that are there to hear it. Rank 0 may bring a socket that listens already.
  explicit Control(Options options, FileDescriptor listener = {});
  // Leaves: others are told, and waited for a while, so that nothing under way is cut off.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // ---- while joining, by all ranks in the same order ----
  // Every rank's text.
  std::vector<std::string> exchange(const std::string& own);
  // Throws what the constructor does if a rank has died since. For a rank that waits for others, a
  // few times a second.
  void check_joining();
  // From here on a thread listens. It calls `nudge` when anything has changed, and now and then.
  void serve(std::function<void()> nudge);

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  // By which other ranks can reach this host.
  const std::string& own_address() const { return own_address_; }

  // ---- from any thread ----
  Whereabouts& whereabouts() { return whereabouts_; }
  // "" while the rank is there; "has left" a communicator or the job; "died (process 4711)".
  std::string fate(int rank, uint64_t communicator) const;
  // This rank is done with a communicator.
  void leave(uint64_t communicator);
  void propose(uint64_t communicator, const Verdict& verdict);
  std::optional<Verdict> verdict(uint64_t communicator) const;
  // Waits for it.
  std::optional<Verdict> await_verdict(uint64_t communicator, double seconds) const;
  // Where a rank is, and for how many seconds; nothing if it does not answer.
  std::optional<std::pair<Whereabouts::Snapshot, double>> ask(int rank, double seconds);

 private:
  struct Peer {
    FrameSocket socket;
    std::string address;
    int port = 0;  // where it would hand out a verdict if rank 0 died
    int64_t process = 0;
    bool open = true;
  };

  // ---- joining: control_join.cpp ----
  void host();
  void visit();
  [[noreturn]] void refuse_all(const std::string& text);
  std::string text_without(int rank, const std::string& fate) const;
  std::string missing_ranks() const;

  // ---- the thread ----
  void run();
  void take_frames(int from, bool there);
  void hear(int from, Frame frame);
  void ended(int rank);
  void lose_hub();
  void decide_job(const Verdict& verdict);
  void hand_out_verdicts();
  void decide(uint64_t communicator, const Verdict& verdict);
  void mark_gone(int rank, const std::string& fate);
  void mark_left(int rank, uint64_t communicator);
  void tell(int rank, const Frame& frame);
  void tell_all(const Frame& frame, int but = -1);
  Frame own_answer(int to) const;
  void take_answer(int from, Frame& frame);
  bool all_gone() const;
  void wake();

  const Options options_;
  FileDescriptor listener_;
  int listener_port_ = 0;
  std::string own_address_;
  std::vector<Frame> heard_early_;  // what rank 0 said before this rank had joined in full
  std::vector<Peer> peers_;  // by rank; rank 0 has a socket for each, the others one, to rank 0
  Whereabouts whereabouts_;
  std::function<void()> nudge_;

  std::mutex writing_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::string> fates_;
  std::set<std::pair<int, uint64_t>> left_;
  std::map<uint64_t, Verdict> verdicts_;
  std::optional<Verdict> of_the_job_;  // once rank 0 has died or given it up
  std::map<int, std::pair<Whereabouts::Snapshot, double>> answers_;
  bool stopping_ = false;

  std::vector<FrameSocket> visitors_;  // that want the job's verdict
  int visits_ = 0;
  FileDescriptor wake_;
  std::thread thread_;
};

}  // namespace weft::dist::detail
