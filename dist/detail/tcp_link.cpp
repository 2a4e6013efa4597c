#include "dist/detail/tcp_link.h"

#include "core/error.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::dist::detail {
namespace {

// In place of memory that is gone: what is sent from there, and what comes to there.
constexpr size_t kNowhere = size_t{16} << 10;
std::array<std::byte, kNowhere>& nothing_to_send() {
  static std::array<std::byte, kNowhere> zeros{};
  return zeros;
}

bool would_block() {
  return errno == EAGAIN || errno == EINTR;
}

}  // namespace

// The connection knows no limit of time for data. What is sent to a rank that reads nothing for a
// minute, as it is busy or the whole job is paused, must still arrive; that a rank or its host is
// gone is known from elsewhere (Control). It is kept alive, as what lies between two hosts may
// forget a connection on which nothing travels for long.
TcpLink::TcpLink(FileDescriptor socket) : socket_(std::move(socket)) {
  const int flags = fcntl(socket_.get(), F_GETFL);
  const int yes = 1;
  const int idle_seconds = 60;
  if (flags < 0 || fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK) < 0 ||
      setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) < 0 ||
      setsockopt(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes) < 0 ||
      setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds) <
          0) {
    lose(std::strerror(errno));
  }
}

void TcpLink::cut(const std::string& reason) {
  if (cut_.empty()) cut_ = reason;
  output_.clear();
}

void TcpLink::lose(const std::string& reason) {
  if (lost_.empty()) lost_ = reason;
  cut(reason);
}

void TcpLink::put(const Header& header, std::shared_ptr<TcpMessage> message) {
  if (cut_.empty()) output_.push_back({header, std::move(message), 0});
}

// The first message without an offer goes to the first offer without a message.
void TcpLink::match(Channels::iterator channel) {
  auto& [tag, state] = *channel;
  while (state.offers > 0 && !state.sends.empty()) {
    --state.offers;
    const std::shared_ptr<TcpMessage> message = std::move(state.sends.front());
    state.sends.pop_front();
    put({Kind::message, 0, tag, message->bytes}, message);
  }
  forget_if_idle(channel);
}

// Every communicator has tags of its own, and a job may make many.
void TcpLink::forget_if_idle(Channels::iterator channel) {
  const Channel& state = channel->second;
  if (state.sends.empty() && state.offered.empty() && state.offers == 0) channels_.erase(channel);
}

void TcpLink::send(std::shared_ptr<TcpMessage> message) {
  const auto channel = channels_.try_emplace(message->tag).first;
  channel->second.sends.push_back(std::move(message));
  match(channel);
}

void TcpLink::receive(std::shared_ptr<TcpMessage> message) {
  put({Kind::offer, 0, message->tag, message->bytes}, nullptr);
  channels_[message->tag].offered.push_back(std::move(message));
}

void TcpLink::give_up(const std::shared_ptr<TcpMessage>& message) {
  message->given_up = true;
  // What has been offered comes, and is dropped. What has not begun does not go, and its offer is
  // free for the next.
  const auto channel = channels_.try_emplace(message->tag).first;
  std::erase(channel->second.sends, message);
  const auto waits = std::find_if(output_.begin(), output_.end(), [&](const Output& output) {
    return output.message == message && output.written == 0;
  });
  if (waits != output_.end()) {
    output_.erase(waits);
    ++channel->second.offers;
  }
  match(channel);
}

bool TcpLink::write() {
  if (output_.empty()) return false;
  std::array<iovec, 16> pieces{};
  size_t count = 0;
  size_t bytes = 0;
  for (Output& output : output_) {
    if (count + 2 > pieces.size() || bytes >= kStep) break;
    size_t at = output.written;
    if (at < sizeof(Header)) {
      pieces[count++] = {reinterpret_cast<std::byte*>(&output.header) + at, sizeof(Header) - at};
      bytes += sizeof(Header) - at;
      at = sizeof(Header);
    }
    if (!output.message) continue;
    at -= sizeof(Header);
    size_t length = std::min(output.message->bytes - at, kStep);
    std::byte* from = output.message->data + at;
    if (output.message->given_up) {
      from = nothing_to_send().data();
      length = std::min(length, kNowhere);
    }
    pieces[count++] = {from, length};
    bytes += length;
    // The next one's header follows the last byte of this one.
    if (at + length < output.message->bytes) break;
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  const ssize_t n = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) {
    if (!would_block()) cut(std::strerror(errno));
    return false;
  }
  wrote(static_cast<size_t>(n));
  return n > 0;
}

void TcpLink::wrote(size_t bytes) {
  while (bytes > 0) {
    Output& output = output_.front();
    const size_t all = sizeof(Header) + (output.message ? output.message->bytes : 0);
    const size_t taken = std::min(bytes, all - output.written);
    output.written += taken;
    bytes -= taken;
    if (output.written < all) return;
    if (output.message) output.message->done = true;
    output_.pop_front();
  }
}

void TcpLink::take(const Header& header) {
  if (header.kind == Kind::offer) {
    const auto channel = channels_.try_emplace(header.tag).first;
    ++channel->second.offers;
    match(channel);
    return;
  }
  const auto channel = channels_.find(header.tag);
  if (header.kind != Kind::message || channel == channels_.end() ||
      channel->second.offered.empty() || header.bytes > channel->second.offered.front()->bytes) {
    lose("it sent what was not asked for");
    return;
  }
  incoming_ = std::move(channel->second.offered.front());
  channel->second.offered.pop_front();
  forget_if_idle(channel);
  received_ = 0;
  left_ = header.bytes;
}

// Takes `bytes` more bytes in `input_`: the rest of a header, and what follows it.
void TcpLink::parse(size_t bytes) {
  const size_t end = in_input_ + bytes;
  size_t at = 0;
  while (at < end && lost_.empty()) {
    if (incoming_) {
      const size_t length = std::min(left_, end - at);
      if (!incoming_->given_up) std::memcpy(incoming_->data + received_, &input_[at], length);
      received_ += length;
      left_ -= length;
      at += length;
      if (left_ > 0) break;
      incoming_->done = true;
      incoming_ = nullptr;
      continue;
    }
    if (end - at < sizeof(Header)) break;
    Header header;
    std::memcpy(&header, &input_[at], sizeof header);
    at += sizeof header;
    take(header);
  }
  in_input_ = end - at;
  std::memmove(input_.data(), input_.data() + at, in_input_);
}

bool TcpLink::read() {
  if (!lost_.empty()) return false;
  // Data go to their place; a little of what follows them is read along with them.
  std::array<iovec, 2> pieces{};
  size_t count = 0;
  size_t direct = 0;
  std::array<std::byte, kNowhere> dropped;
  if (incoming_) {
    direct = std::min(left_, kStep);
    std::byte* to = incoming_->data + received_;
    if (incoming_->given_up) {
      to = dropped.data();
      direct = std::min(direct, kNowhere);
    }
    pieces[count++] = {to, direct};
  }
  if (direct == left_) {
    pieces[count++] = {input_.data() + in_input_, input_.size() - in_input_};
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  const ssize_t n = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (n == 0) lose("it has closed the connection");
  if (n < 0 && !would_block()) lose(std::strerror(errno));
  if (n <= 0) return false;
  const size_t placed = std::min(static_cast<size_t>(n), direct);
  if (incoming_) {
    received_ += placed;
    left_ -= placed;
    if (left_ == 0) {
      incoming_->done = true;
      incoming_ = nullptr;
    }
  }
  parse(static_cast<size_t>(n) - placed);
  return true;
}

}  // namespace weft::dist::detail
