#include "dist/detail/frame.h"

#include "dist/communicator.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

namespace weft::dist::detail {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses addresses_of(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  if (getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &found) != 0)
    found = nullptr;
  return {found, &freeaddrinfo};
}

std::string number_of(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  const int failed =
      getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed ? "" : text.data();
}

void set(int socket, int level, int option, int value) {
  (void)setsockopt(socket, level, option, &value, sizeof value);
}

bool becomes_writable(int socket, double deadline) {
  pollfd look{socket, POLLOUT, 0};
  for (;;) {
    const double left = std::clamp(deadline - clock_seconds(), 0.0, 1000.0);
    const int ready = poll(&look, 1, static_cast<int>(left * 1000));
    if (ready > 0) return true;
    if (clock_seconds() >= deadline || (ready < 0 && errno != EINTR)) return false;
  }
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace

bool FrameSocket::write(const Frame& frame) const {
  const auto size = static_cast<uint32_t>(frame.bytes().size());
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += frame.bytes();
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool FrameSocket::fill() {
  std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t n = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n > 0) {
      arrived_.append(buffer.data(), static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    return n < 0 && errno == EAGAIN;
  }
}

std::optional<Frame> FrameSocket::next() {
  uint32_t size = 0;
  if (arrived_.size() < sizeof size) return std::nullopt;
  std::memcpy(&size, arrived_.data(), sizeof size);
  WEFT_CHECK(size >= 1 && size <= Frame::kMost, "frame", "expected at most ", Frame::kMost,
             " bytes, got ", size);
  if (arrived_.size() - sizeof size < size) return std::nullopt;
  Frame frame = Frame::of(arrived_.substr(sizeof size, size));
  arrived_.erase(0, sizeof size + size);
  return frame;
}

std::optional<Frame> FrameSocket::read(double deadline) {
  for (;;) {
    if (auto frame = next()) return frame;
    const double left = deadline - clock_seconds();
    if (left <= 0) return std::nullopt;
    pollfd look{socket_.get(), POLLIN, 0};
    if (poll(&look, 1, static_cast<int>(std::min(left, 1000.0) * 1000) + 1) <= 0) continue;
    if (!fill()) return next();
  }
}

FileDescriptor listen_at(const std::string& address, int& port, const std::string& op) {
  std::string reason = "no such address";
  for (const std::string& host : {address, std::string()}) {
    const Addresses found = addresses_of(host, port, AI_PASSIVE);
    for (const addrinfo* at = found.get(); at; at = at->ai_next) {
      FileDescriptor socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (!socket.valid()) continue;
      set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
      if (bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0 && listen(socket.get(), 1024) == 0) {
        port = port_of(socket.get());
        return socket;
      }
      reason = std::strerror(errno);
      if (errno == EADDRINUSE) break;
    }
    if (reason == std::strerror(EADDRINUSE)) break;
  }
  throw CommunicationError(
      concat({"[", op, "] expected to listen at ", address, ":", port, ", got: ", reason}));
}

FileDescriptor connect_to(const std::string& address, int port, double seconds) {
  const double deadline = clock_seconds() + seconds;
  const Addresses found = addresses_of(address, port, 0);
  int left = 0;
  for (const addrinfo* at = found.get(); at; at = at->ai_next)
    ++left;
  for (const addrinfo* at = found.get(); at; at = at->ai_next, --left) {
    // One that does not answer at all leaves the others their share of the time.
    const double now = clock_seconds();
    const double until = now + std::max(0.0, deadline - now) / left;
    FileDescriptor socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) continue;
    if (connect(socket.get(), at->ai_addr, at->ai_addrlen) != 0) {
      if (errno != EINPROGRESS) continue;
      if (!becomes_writable(socket.get(), until)) continue;
      int error = 0;
      socklen_t size = sizeof error;
      if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)
        continue;
    }
    const int flags = fcntl(socket.get(), F_GETFL);
    if (flags < 0 || fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK) < 0) continue;
    return socket;
  }
  return {};
}

std::string address_of_socket(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  return number_of(reinterpret_cast<const sockaddr*>(&address), size);
}

std::string resolved(const std::string& host) {
  const Addresses found = addresses_of(host, 0, 0);
  return found ? number_of(found->ai_addr, found->ai_addrlen) : "";
}

void watch_connection(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 5);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 15'000);  // milliseconds
  const timeval limit{5, 0};
  (void)setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

}  // namespace weft::dist::detail
