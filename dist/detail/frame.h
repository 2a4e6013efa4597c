// Short messages on stream sockets: what they say, and how they travel.
#pragma once

#include "core/error.h"
#include "dist/detail/file_descriptor.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace weft::dist::detail {

// A message as bytes: a kind, then numbers and texts in the order they were put.
class Frame {
 public:
  static constexpr size_t kMost = size_t{64} << 20;

  explicit Frame(uint8_t kind) : bytes_(1, static_cast<char>(kind)) {}
  static Frame of(std::string bytes) { return Frame(std::move(bytes)); }

  uint8_t kind() const { return bytes_.empty() ? 0 : static_cast<uint8_t>(bytes_[0]); }
  const std::string& bytes() const { return bytes_; }

  Frame& put(int64_t number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
    return *this;
  }
  Frame& put(std::string_view text) {
    put(static_cast<int64_t>(text.size()));
    bytes_.append(text);
    return *this;
  }
  // In the same order. Throws Error where the bytes end early.
  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() {
    const int64_t size = number();
    WEFT_CHECK(size >= 0, "frame", "expected a text, got a size of ", size);
    return std::string(take(static_cast<size_t>(size)));
  }

 private:
  explicit Frame(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string_view take(size_t size) {
    WEFT_CHECK(size <= bytes_.size() - at_, "frame", "expected ", size, " more bytes, got ",
               bytes_.size() - at_);
    at_ += size;
    return std::string_view(bytes_).substr(at_ - size, size);
  }
  std::string bytes_;
  size_t at_ = 1;
};

// A stream socket that carries frames. One thread reads; writes are whole and must not overlap.
class FrameSocket {
 public:
  FrameSocket() = default;
  explicit FrameSocket(FileDescriptor socket) : socket_(std::move(socket)) {}

  int get() const { return socket_.get(); }
  bool valid() const { return socket_.valid(); }
  void close() { socket_ = FileDescriptor(); }

  // False if the connection is lost.
  bool write(const Frame& frame) const;
  // Takes what has arrived, without waiting; false at the end of the connection.
  bool fill();
  // Whether something has arrived that `next` has not given.
  bool has_more() const { return !arrived_.empty(); }
  // The next frame that is there in full.
  std::optional<Frame> next();
  // Waits for one until `deadline` (clock_seconds()); none at the deadline or the end.
  std::optional<Frame> read(double deadline);

 private:
  FileDescriptor socket_;
  std::string arrived_;
};

// ---- addresses: a host's name or number, and a port ----

// A listening socket; `port` 0 takes a free one and tells it. An address of no interface here
// listens on all. Throws CommunicationError in the name of `op`.
FileDescriptor listen_at(const std::string& address, int& port, const std::string& op);
// One attempt, at each of the name's numbers; invalid if nobody answers within `seconds` in all.
FileDescriptor connect_to(const std::string& address, int port, double seconds);
// The number of this end's address.
std::string address_of_socket(int socket);
// The number of a host by name; "" if there is none.
std::string resolved(const std::string& host);
// Notices a host that has vanished, and sends small messages at once.
void watch_connection(int socket);

}  // namespace weft::dist::detail
