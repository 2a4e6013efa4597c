// One end of a TCP connection between two ranks, and the messages that are under way on it.
//
// What travels is a sequence of frames: a header, and after that of a message its data. An offer
// says "there is memory for a message with this tag"; a message follows an offer, in their order.
#pragma once

#include "dist/detail/file_descriptor.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

namespace weft::dist::detail {

// A message that is to be sent or received. Whoever asked for it and the link share it.
struct TcpMessage {
  uint64_t tag = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;       // of a receiver: at most
  bool done = false;      // all of it has come, or has been given to the system
  bool given_up = false;  // its memory may be gone
};

// Not thread safe. Nothing here waits.
class TcpLink {
 public:
  TcpLink() = default;
  explicit TcpLink(FileDescriptor socket);

  int socket() const { return socket_.get(); }
  // Why nothing comes any more, or nothing goes; "" while it does. What has come already can be
  // read when nothing goes any more.
  const std::string& lost() const { return lost_; }
  const std::string& cut() const { return cut_; }
  // Whether there is anything to write.
  bool has_output() const { return !output_.empty(); }
  // How many tags have something under way.
  size_t busy_channels() const { return channels_.size(); }

  void send(std::shared_ptr<TcpMessage> message);
  void receive(std::shared_ptr<TcpMessage> message);
  void give_up(const std::shared_ptr<TcpMessage>& message);

  // Writes and reads what the system takes and has at the moment, up to about kStep bytes each;
  // false if that was nothing.
  bool write();
  bool read();

 private:
  enum class Kind : uint32_t { offer, message };
  struct Header {
    Kind kind = Kind::offer;
    uint32_t unused = 0;
    uint64_t tag = 0;
    uint64_t bytes = 0;
  };
  static_assert(sizeof(Header) == 24, "it travels as it is");
  struct Output {
    Header header;
    std::shared_ptr<TcpMessage> message;  // none behind an offer
    size_t written = 0;                   // bytes of the header and the data
  };
  struct Channel {                                    // of one tag
    std::deque<std::shared_ptr<TcpMessage>> sends;    // without an offer
    std::deque<std::shared_ptr<TcpMessage>> offered;  // without a message
    int64_t offers = 0;                               // of the other end, without a message
  };
  using Channels = std::unordered_map<uint64_t, Channel>;
  // Bytes that one call of the system moves at most; so that both directions get their turn.
  static constexpr size_t kStep = size_t{256} << 10;

  void put(const Header& header, std::shared_ptr<TcpMessage> message);
  void match(Channels::iterator channel);
  void forget_if_idle(Channels::iterator channel);
  void wrote(size_t bytes);
  void take(const Header& header);
  void parse(size_t bytes);
  void cut(const std::string& reason);
  void lose(const std::string& reason);

  FileDescriptor socket_;
  std::string lost_;
  std::string cut_;
  Channels channels_;
  std::deque<Output> output_;
  // What comes: first a header, then `left_` bytes of the message it announced.
  std::array<std::byte, 4096> input_{};
  size_t in_input_ = 0;  // bytes of a header that is not there in full
  std::shared_ptr<TcpMessage> incoming_;
  size_t received_ = 0;
  size_t left_ = 0;
};

}  // namespace weft::dist::detail
