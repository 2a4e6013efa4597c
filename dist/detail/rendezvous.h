// How processes that know only a name find each other, and pass each other their memory files.
#pragma once

#include "dist/detail/file_descriptor.h"

#include <string>
#include <vector>

namespace weft::dist::detail {

struct Joined {
  FileDescriptor board;               // rank 0 made it
  std::vector<FileDescriptor> heaps;  // each rank's
  std::vector<int> processes;         // each rank's
};

// Rank 0 listens on a socket named after the job (in Linux's abstract namespace, where names vanish
// with the process), collects every rank's memory file and hands all to all. `ready` runs when this
// rank has them, and everybody waits until it has run on all ranks. Throws CommunicationError with
// what became of whom, the same on all ranks that are there to hear it.
class Rendezvous {
 public:
  Rendezvous(std::string job, int rank, int size, double timeout_seconds);

  template <class Ready>
  void meet(FileDescriptor board, FileDescriptor heap, const Ready& ready) {
    Joined joined = exchange(std::move(board), std::move(heap));
    ready(joined);
    confirm();
  }

 private:
  Joined exchange(FileDescriptor board, FileDescriptor heap);
  void confirm();
  Joined host(FileDescriptor board, FileDescriptor heap);
  Joined visit(FileDescriptor heap);
  [[noreturn]] void refuse_all(const std::string& text);
  // Whoever connects to rank 0 is a stranger until it says who it is: nobody is waited for. Ranks
  // then become peers, and what they bring goes to `joined`.
  void accept_stranger();
  void ask_in(FileDescriptor stranger, Joined& joined);
  std::string missing_ranks() const;
  // Waits until a descriptor can be read; false when the time is up.
  bool readable(const std::vector<int>& fds, std::vector<bool>& which) const;
  double left() const;

  const std::string job_;
  const int rank_;
  const int size_;
  const double timeout_;
  const double deadline_;
  // On rank 0, until all have come.
  FileDescriptor listener_;
  std::vector<FileDescriptor> strangers_;
  // On rank 0 each rank's connection; elsewhere one, to rank 0.
  std::vector<FileDescriptor> peers_;
};

}  // namespace weft::dist::detail
