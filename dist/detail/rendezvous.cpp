#include "dist/detail/rendezvous.h"

#include "dist/communicator.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

namespace weft::dist::detail {
namespace {

constexpr uint32_t kJoinMagic = 0x57465431;  // also says which layout of the board this is
constexpr size_t kBatch = 200;               // descriptors a message may carry, with room to spare

struct Hello {
  uint32_t magic;
  int32_t rank, size, process;
};

enum class Kind : char { files = 'F', go = 'G', ready = 'R', error = 'E' };

struct JoinMessage {
  std::vector<char> bytes;
  std::vector<FileDescriptor> files;
  bool closed = false;
};

bool send_message(int socket, const void* data, size_t size, const std::vector<int>& files) {
  iovec part{const_cast<void*>(data), size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kBatch * sizeof(int))> control{};
  if (!files.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(size);
}

// What has arrived already: a peer must not hold this rank up by sending nothing.
JoinMessage receive_message(int socket) {
  JoinMessage result;
  result.bytes.resize(8192);
  iovec part{result.bytes.data(), result.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kBatch * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size;
  do {
    size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (size < 0 && errno == EINTR);
  result.closed = size <= 0;
  result.bytes.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::vector<int> files(count);
    std::memcpy(files.data(), CMSG_DATA(header), count * sizeof(int));
    for (const int file : files)
      result.files.emplace_back(file);
  }
  return result;
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

double now() {
  return clock_seconds();
}

[[noreturn]] void refuse_join(const std::string& text) {
  throw CommunicationError("[join_shm] " + text);
}

// Throws what rank 0 has said if it is an error, or that it has gone.
void check_from_host(const JoinMessage& message, Kind expected) {
  if (message.closed)
    refuse_join("expected rank 0 to stay until all have joined, got no rank 0: it died or gave up");
  if (message.bytes[0] == static_cast<char>(Kind::error))
    refuse_join(std::string(message.bytes.begin() + 1, message.bytes.end()));
  if (message.bytes[0] != static_cast<char>(expected))
    refuse_join("expected rank 0 of the same version, got another answer");
}

// An abstract name: no file, so nothing is left behind by anybody.
socklen_t fill_address(sockaddr_un& address, const std::string& job) {
  address.sun_family = AF_UNIX;
  const std::string name = concat({"weft-shm-", static_cast<int64_t>(geteuid()), "-", job});
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof address.sun_path - 1));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

FileDescriptor make_socket(int flags = 0) {
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  WEFT_CHECK(fd.valid(), "join_shm", "expected a socket, got: ", std::strerror(errno));
  return fd;
}

}  // namespace

Rendezvous::Rendezvous(std::string job, int rank, int size, double timeout_seconds)
    : job_(std::move(job)),
      rank_(rank),
      size_(size),
      timeout_(timeout_seconds),
      deadline_(now() + timeout_seconds) {}

double Rendezvous::left() const {
  return std::max(0.0, deadline_ - now());
}

bool Rendezvous::readable(const std::vector<int>& fds, std::vector<bool>& which) const {
  const double deadline = deadline_ + (rank_ == 0 ? 0 : 1);  // rank 0 tells all when the time is up
  std::vector<pollfd> polls;
  for (const int fd : fds)
    polls.push_back({fd, POLLIN, 0});  // poll skips negative ones
  for (;;) {
    const double most = deadline - now();
    if (most <= 0) return false;
    const int ready = poll(polls.data(), polls.size(), static_cast<int>(most * 1000) + 1);
    WEFT_CHECK(ready >= 0 || errno == EINTR, "join_shm",
               "expected to wait for ranks, got: ", std::strerror(errno));
    if (ready > 0) break;
  }
  which.clear();
  for (const pollfd& look : polls)
    which.push_back(look.revents != 0);
  return true;
}

Joined Rendezvous::exchange(FileDescriptor board, FileDescriptor heap) {
  if (size_ == 1) {
    Joined joined;
    joined.board = std::move(board);
    joined.heaps.push_back(std::move(heap));
    joined.processes = {getpid()};
    return joined;
  }
  return rank_ == 0 ? host(std::move(board), std::move(heap)) : visit(std::move(heap));
}

void Rendezvous::refuse_all(const std::string& text) {
  const std::string message = static_cast<char>(Kind::error) + text;
  const auto tell = [&](const FileDescriptor& peer) {
    if (peer.valid()) send_message(peer.get(), message.data(), message.size(), {});
  };
  for (const auto* list : {&peers_, &strangers_}) {
    for (const FileDescriptor& peer : *list)
      tell(peer);
  }
  // Those that have come but were not accepted yet.
  while (listener_.valid()) {
    const FileDescriptor peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer.valid()) break;
    tell(peer);
  }
  refuse_join(text);
}

void Rendezvous::accept_stranger() {
  FileDescriptor stranger(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (stranger.valid()) {
    if (same_user(stranger.get())) strangers_.push_back(std::move(stranger));
    return;
  }
  const bool gone_again = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
  if (!gone_again)
    refuse_all(
        concat({"expected to accept the ranks of job '", job_, "', got: ", std::strerror(errno)}));
}

void Rendezvous::ask_in(FileDescriptor stranger, Joined& joined) {
  JoinMessage message = receive_message(stranger.get());
  Hello hello{};
  if (message.bytes.size() != sizeof hello || message.files.size() != 1) return;  // no rank
  std::memcpy(&hello, message.bytes.data(), sizeof hello);
  const auto r = static_cast<size_t>(hello.rank);
  const bool fits =
      hello.magic == kJoinMagic && hello.size == size_ && hello.rank > 0 && hello.rank < size_;
  if (!fits || peers_[r].valid()) {
    const std::string text = !fits ? concat({"expected ranks of ", size_, " in job '", job_,
                                             "', got rank ", hello.rank, " of ", hello.size})
                                   : concat({"expected each rank of job '", job_,
                                             "' once, got rank ", hello.rank, " twice"});
    strangers_.push_back(std::move(stranger));  // is told, too
    refuse_all(text);
  }
  peers_[r] = std::move(stranger);
  joined.heaps[r] = std::move(message.files[0]);
  joined.processes[r] = hello.process;
}

std::string Rendezvous::missing_ranks() const {
  std::string missing;
  for (int r = 1; r < size_; ++r) {
    if (!peers_[static_cast<size_t>(r)].valid())
      missing += concat({missing.empty() ? "" : ", ", r});
  }
  return missing;
}

Joined Rendezvous::host(FileDescriptor board, FileDescriptor heap) {
  sockaddr_un address{};
  const socklen_t length = fill_address(address, job_);
  listener_ = make_socket(SOCK_NONBLOCK);
  // A job of this name that is just ending lets go of it within moments.
  while (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno != EADDRINUSE || left() == 0)
      refuse_join(
          concat({"expected a name of its own for job '", job_, "', got: ", std::strerror(errno)}));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  WEFT_CHECK(listen(listener_.get(), size_) == 0, "join_shm",
             "expected to listen, got: ", std::strerror(errno));

  Joined joined;
  joined.board = std::move(board);
  joined.heaps.resize(static_cast<size_t>(size_));
  joined.processes.resize(static_cast<size_t>(size_));
  joined.heaps[0] = std::move(heap);
  joined.processes[0] = getpid();
  peers_.resize(static_cast<size_t>(size_));
  for (std::string missing; !(missing = missing_ranks()).empty();) {
    std::vector<int> fds = {listener_.get()};
    for (int r = 1; r < size_; ++r)
      fds.push_back(peers_[static_cast<size_t>(r)].get());
    for (const FileDescriptor& stranger : strangers_)
      fds.push_back(stranger.get());
    std::vector<bool> which;
    if (!readable(fds, which)) {
      refuse_all(concat({"expected ", size_, " ranks of job '", job_, "' within ", timeout_,
                         " s, got no rank ", missing}));
    }
    for (int r = 1; r < size_; ++r) {
      if (which[static_cast<size_t>(r)])  // nothing is to be said yet: this is its end
        refuse_all(concat({"expected ", size_, " ranks of job '", job_, "', got no rank ", r,
                           ": it died (process ", joined.processes[static_cast<size_t>(r)],
                           ") while joining"}));
    }
    // From the last on, so that the others keep their numbers.
    for (size_t i = strangers_.size(); i-- > 0;) {
      if (!which[static_cast<size_t>(size_) + i]) continue;
      FileDescriptor stranger = std::move(strangers_[i]);
      strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
      ask_in(std::move(stranger), joined);
    }
    if (which[0]) accept_stranger();
  }

  listener_ = FileDescriptor();  // the name is free again
  strangers_.clear();

  std::vector<int> files = {joined.board.get()};
  for (const FileDescriptor& file : joined.heaps)
    files.push_back(file.get());
  for (int r = 1; r < size_; ++r) {
    for (size_t begin = 0; begin < files.size(); begin += kBatch) {
      const size_t end = std::min(files.size(), begin + kBatch);
      std::vector<char> bytes = {static_cast<char>(Kind::files)};
      const auto* processes = reinterpret_cast<const char*>(joined.processes.data());
      if (begin == 0)
        bytes.insert(bytes.end(), processes, processes + joined.processes.size() * sizeof(int));
      // A peer that has died meanwhile is found out when it does not confirm.
      send_message(peers_[static_cast<size_t>(r)].get(), bytes.data(), bytes.size(),
                   std::vector<int>(files.begin() + static_cast<std::ptrdiff_t>(begin),
                                    files.begin() + static_cast<std::ptrdiff_t>(end)));
    }
  }
  return joined;
}

Joined Rendezvous::visit(FileDescriptor heap) {
  sockaddr_un address{};
  const socklen_t length = fill_address(address, job_);
  peers_.push_back(make_socket());
  while (connect(peers_[0].get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (left() == 0)
      refuse_join(
          concat({"expected rank 0 of job '", job_, "' within ", timeout_, " s, got nobody"}));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (!same_user(peers_[0].get()))
    refuse_join(concat({"expected a rank 0 of the same user in job '", job_, "', got another's"}));
  const Hello hello{kJoinMagic, rank_, size_, getpid()};
  send_message(peers_[0].get(), &hello, sizeof hello, {heap.get()});

  Joined joined;
  joined.processes.resize(static_cast<size_t>(size_));
  std::vector<FileDescriptor> files;
  while (files.size() < static_cast<size_t>(size_) + 1) {
    std::vector<bool> which;
    if (!readable({peers_[0].get()}, which))
      refuse_join(concat(
          {"expected rank 0 of job '", job_, "' within ", timeout_, " s, got no answer from it"}));
    JoinMessage message = receive_message(peers_[0].get());
    check_from_host(message, Kind::files);
    if (files.empty() && message.bytes.size() == 1 + joined.processes.size() * sizeof(int)) {
      std::memcpy(joined.processes.data(), message.bytes.data() + 1, message.bytes.size() - 1);
    }
    for (FileDescriptor& file : message.files)
      files.push_back(std::move(file));
  }
  joined.board = std::move(files[0]);
  for (size_t i = 1; i < files.size(); ++i)
    joined.heaps.push_back(std::move(files[i]));
  return joined;
}

void Rendezvous::confirm() {
  if (size_ == 1) return;
  if (rank_ != 0) {
    const char ready = static_cast<char>(Kind::ready);
    send_message(peers_[0].get(), &ready, 1, {});
    std::vector<bool> which;
    if (!readable({peers_[0].get()}, which))
      refuse_join(concat({"expected all ranks of job '", job_, "' within ", timeout_,
                          " s, got no answer from rank 0"}));
    check_from_host(receive_message(peers_[0].get()), Kind::go);
    return;
  }
  for (int r = 1; r < size_; ++r) {
    const int peer = peers_[static_cast<size_t>(r)].get();
    std::vector<bool> which;
    const bool answered = readable({peer}, which);
    if (!answered || receive_message(peer).closed)
      refuse_all(concat({"expected ", size_, " ranks of job '", job_, "', got no rank ", r,
                         answered ? ": it died while joining" : ": it stopped while joining"}));
  }
  const char go = static_cast<char>(Kind::go);
  for (int r = 1; r < size_; ++r)
    send_message(peers_[static_cast<size_t>(r)].get(), &go, 1, {});
}

}  // namespace weft::dist::detail
