// Control: how ranks find each other.
#include "dist/communicator.h"
#include "dist/detail/control.h"
#include "dist/detail/control_message.h"
#include "dist/detail/verdict_text.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace weft::dist::detail {
namespace {

constexpr int64_t kHelloMagic = 0x77656674'00000001;  // and the version of what follows

[[noreturn]] void refuse(const std::string& text) {
  throw CommunicationError(text);
}

constexpr const char* kDied = "died";

}  // namespace

Control::Control(Options options, FileDescriptor listener)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      peers_(static_cast<size_t>(options_.size)),
      fates_(static_cast<size_t>(options_.size)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (options_.rank == 0) {
    host();
  } else {
    visit();
  }
}

std::string Control::missing_ranks() const {
  std::string list;
  for (int r = 1; r < options_.size; ++r) {
    if (!peers_[static_cast<size_t>(r)].socket.valid())
      list += (list.empty() ? "" : ", ") + std::to_string(r);
  }
  return list;
}

void Control::refuse_all(const std::string& text) {
  for (const Peer& peer : peers_) {
    if (peer.socket.valid()) peer.socket.write(Frame(refused).put(text));
  }
  refuse(text);
}

std::string Control::text_without(int rank, const std::string& fate) const {
  return concat({"[", options_.op, "] expected ", options_.size, " ranks of job '", options_.job,
                 "', got no rank ", rank, ": it ", fate, " (process ",
                 peers_[static_cast<size_t>(rank)].process, ")"});
}

void Control::host() {
  const std::string& op = options_.op;
  const double deadline = clock_seconds() + options_.timeout_seconds;
  if (!listener_.valid()) {
    listener_port_ = options_.port;
    listener_ = listen_at(options_.address, listener_port_, op);
  }
  own_address_ = resolved(options_.address);
  std::vector<FrameSocket> strangers;
  for (int present = 1; present < options_.size;) {
    const double left = deadline - clock_seconds();
    if (left <= 0) {
      refuse_all(concat({"[", op, "] expected ", options_.size, " ranks of job '", options_.job,
                         "' within ", seconds_text(options_.timeout_seconds), ", got no rank ",
                         missing_ranks()}));
    }
    std::vector<pollfd> look{{listener_.get(), POLLIN, 0}};
    for (const FrameSocket& socket : strangers)
      look.push_back({socket.get(), POLLIN, 0});
    for (const Peer& peer : peers_)
      look.push_back({peer.socket.get(), POLLIN, 0});  // -1 is passed over
    poll(look.data(), look.size(), static_cast<int>(std::min(left, 0.5) * 1000) + 1);
    for (int r = 1; r < options_.size; ++r) {
      Peer& peer = peers_[static_cast<size_t>(r)];
      if (!peer.socket.valid() || peer.socket.fill()) continue;
      refuse_all(text_without(r, kDied));
    }
    if (look[0].revents != 0) {
      FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.valid()) {
        watch_connection(socket.get());
        strangers.emplace_back(std::move(socket));
      }
    }
    // Whoever does not speak as ranks do is no rank.
    std::vector<FrameSocket> silent;
    for (FrameSocket& socket : strangers) {
      std::optional<Frame> frame;
      bool there = socket.fill();
      try {
        frame = socket.next();
        if (!frame) {
          if (there) silent.push_back(std::move(socket));
          continue;
        }
        if (frame->kind() != hello || frame->number() != kHelloMagic) continue;
        const std::string job = frame->text();
        const int64_t rank = frame->number();
        const int64_t size = frame->number();
        if (job != options_.job) {
          socket.write(Frame(refused).put(
              concat({"[", op, "] expected ranks of job '", options_.job, "' at ", options_.address,
                      ":", listener_port_, ", got one of job '", job, "'"})));
          continue;
        }
        std::string text;
        if (size != options_.size) {
          text = concat({"[", op, "] expected ranks of ", options_.size, " in job '", job,
                         "', got rank ", rank, " of ", size});
        } else if (rank < 1 || rank >= size || peers_[static_cast<size_t>(rank)].socket.valid()) {
          text = concat({"[", op, "] expected every rank of job '", job, "' once, got rank ", rank,
                         " twice"});
        }
        if (!text.empty()) {
          socket.write(Frame(refused).put(text));
          refuse_all(text);
        }
        Peer& peer = peers_[static_cast<size_t>(rank)];
        peer.process = frame->number();
        peer.address = frame->text();
        peer.port = static_cast<int>(frame->number());
        if (own_address_.empty()) own_address_ = address_of_socket(socket.get());
        peer.socket = std::move(socket);
        ++present;
      } catch (const CommunicationError&) {
        throw;
      } catch (const Error&) {
        continue;  // no frame of ours
      }
    }
    strangers = std::move(silent);
  }
  peers_[0].process = getpid();
  Frame all(welcome);
  for (const Peer& peer : peers_)
    all.put(peer.process).put(peer.address).put(peer.port);
  tell_all(all);
}

void Control::visit() {
  const std::string& op = options_.op;
  const double deadline = clock_seconds() + options_.timeout_seconds;
  const auto at = [&] { return concat({options_.address, ":", options_.port}); };
  FileDescriptor socket;
  while (!(socket = connect_to(options_.address, options_.port, 1)).valid()) {
    if (clock_seconds() > deadline) {
      refuse(concat({"[", op, "] expected rank 0 of job '", options_.job, "' at ", at(), " within ",
                     seconds_text(options_.timeout_seconds), ", got nobody"}));
    }
    usleep(20'000);
  }
  watch_connection(socket.get());
  own_address_ = address_of_socket(socket.get());
  listener_ = listen_at(own_address_, listener_port_, op);
  FrameSocket& hub = peers_[0].socket;
  hub = FrameSocket(std::move(socket));
  hub.write(Frame(hello)
                .put(kHelloMagic)
                .put(options_.job)
                .put(options_.rank)
                .put(options_.size)
                .put(getpid())
                .put(own_address_)
                .put(listener_port_));
  // Rank 0 gives up before this rank does, and says why.
  std::optional<Frame> frame = hub.read(deadline + 2);
  if (frame && frame->kind() == refused) refuse(frame->text());
  if (!frame || frame->kind() != welcome) {
    refuse(concat({"[", op, "] expected rank 0 of job '", options_.job, "' at ", at(),
                   ", got a lost connection"}));
  }
  for (Peer& peer : peers_) {
    peer.process = frame->number();
    peer.address = frame->text();
    peer.port = static_cast<int>(frame->number());
  }
}

std::vector<std::string> Control::exchange(const std::string& own) {
  const double deadline = clock_seconds() + options_.timeout_seconds;
  std::vector<std::string> all(static_cast<size_t>(options_.size));
  all[static_cast<size_t>(options_.rank)] = own;
  if (options_.rank == 0) {
    std::vector<bool> here(all.size());
    here[0] = true;
    for (int missing = options_.size - 1; missing > 0;) {
      std::vector<pollfd> look;
      for (int r = 1; r < options_.size; ++r)
        look.push_back({peers_[static_cast<size_t>(r)].socket.get(), POLLIN, 0});
      const double left = deadline - clock_seconds();
      poll(look.data(), look.size(), static_cast<int>(std::clamp(left, 0.0, 0.5) * 1000) + 1);
      for (int r = 1; r < options_.size; ++r) {
        const auto index = static_cast<size_t>(r);
        Peer& peer = peers_[index];
        const bool there = peer.socket.fill();
        std::optional<Frame> frame = here[index] ? std::nullopt : peer.socket.next();
        if (frame && frame->kind() == piece) {
          all[index] = frame->text();
          here[index] = true;
          --missing;
        } else if (!there || frame) {
          refuse_all(text_without(r, kDied));
        } else if (!here[index] && left <= 0) {
          refuse_all(text_without(r, "said nothing for " + seconds_text(options_.timeout_seconds)));
        }
      }
    }
    Frame frame(pieces);
    for (const std::string& text : all)
      frame.put(text);
    tell_all(frame);
    return all;
  }
  FrameSocket& hub = peers_[0].socket;
  hub.write(Frame(piece).put(own));
  std::optional<Frame> frame = hub.read(deadline + 2);
  if (frame && frame->kind() == refused) refuse(frame->text());
  if (!frame || frame->kind() != pieces) refuse(text_without(0, kDied));
  for (std::string& text : all)
    text = frame->text();
  return all;
}

void Control::check_joining() {
  if (options_.rank == 0) {
    for (int r = 1; r < options_.size; ++r) {
      Peer& peer = peers_[static_cast<size_t>(r)];
      // One that has joined, done its part and left has said so.
      if (!peer.socket.fill() && !peer.socket.has_more()) refuse_all(text_without(r, kDied));
    }
    return;
  }
  FrameSocket& hub = peers_[0].socket;
  const bool there = hub.fill();
  while (auto frame = hub.next()) {
    if (frame->kind() == refused) refuse(frame->text());
    heard_early_.push_back(*frame);
    if (frame->kind() != gone) continue;
    const auto rank = static_cast<int>(frame->number());
    if (frame->text() != kLeft) refuse(text_without(rank, kDied));
  }
  if (!there && heard_early_.empty()) refuse(text_without(0, kDied));
}

}  // namespace weft::dist::detail
