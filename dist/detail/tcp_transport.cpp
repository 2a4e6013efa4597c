#include "dist/detail/tcp_transport.h"

#include "dist/communicator.h"
#include "dist/detail/frame.h"
#include "dist/detail/tcp_link.h"
#include "dist/recorder.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace weft::dist::detail {
namespace {

class TcpTransport;

class TcpTransfer final : public Transport::Transfer {
 public:
  TcpTransfer(TcpTransport& transport, int rank, bool to_it, std::shared_ptr<TcpMessage> shared)
      : transport_(transport), peer(rank), sends(to_it), message(std::move(shared)) {}
  ~TcpTransfer() override;
  TcpTransfer(const TcpTransfer&) = delete;
  TcpTransfer& operator=(const TcpTransfer&) = delete;

 private:
  TcpTransport& transport_;

 public:
  const int peer;
  const bool sends;
  const std::shared_ptr<TcpMessage> message;
  uint64_t nudges = 0;  // of which the waiting thread knows
};

// One thread of those that wait asks the system for news, without the lock; the others wait for it.
// What the system did not take before the last of them went is left to a thread of the transport's,
// which sleeps otherwise: what a rank has sent must arrive though it waits for nothing from there.
class TcpTransport final : public Transport {
 public:
  // A link for each rank; this rank's own is unused.
  explicit TcpTransport(std::vector<FileDescriptor> sockets)
      : bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    WEFT_CHECK(bell_.valid(), "join_tcp", "expected an event descriptor, got ",
               std::strerror(errno));
    for (FileDescriptor& socket : sockets)
      links_.push_back(socket.valid() ? TcpLink(std::move(socket)) : TcpLink());
    asked_to_write_.resize(links_.size());
    rest_ = std::thread([this] { write_the_rest(); });
  }
  ~TcpTransport() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      ring();
      left_over_.notify_one();
    }
    rest_.join();
  }
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  const char* backend() const override { return "tcp"; }

  std::unique_ptr<Transfer> send(int to, uint64_t tag, const std::byte* data,
                                 size_t bytes) override {
    return begin(to, tag, const_cast<std::byte*>(data), bytes, true);
  }
  std::unique_ptr<Transfer> recv(int from, uint64_t tag, std::byte* data, size_t most) override {
    return begin(from, tag, data, most, false);
  }

  bool wait(Transfer& transfer) override {
    auto& own = static_cast<TcpTransfer&>(transfer);
    std::unique_lock lock(mutex_);
    const Waiting waiting(*this);
    TcpLink& link = links_[static_cast<size_t>(own.peer)];
    double idle_since = 0;
    for (;;) {
      bool moved = link.write();
      if (!own.message->done) moved = link.read() || moved;
      if (moved) others_may_go_on();
      if (own.message->done) {
        link.write();  // with it may have come that the other end waits for something
        return true;
      }
      const std::string& reason = own.sends ? link.cut() : link.lost();
      if (!reason.empty()) throw TransportError(reason);
      if (own.nudges != nudges_) {
        own.nudges = nudges_;
        return false;
      }
      if (moved) {
        idle_since = 0;
        continue;
      }
      if (asking_) {
        ring_for(own.peer);
        changed_.wait(lock);
        continue;
      }
      const double now = clock_seconds();
      if (idle_since == 0) idle_since = now;
      ask(lock, now - idle_since < kSpinSeconds);
    }
  }

  void nudge() override {
    const std::lock_guard lock(mutex_);
    ++nudges_;
    ring();
    changed_.notify_all();
  }

  void give_up(const TcpTransfer& transfer) {
    const std::lock_guard lock(mutex_);
    if (!transfer.message->done)
      links_[static_cast<size_t>(transfer.peer)].give_up(transfer.message);
  }

 private:
  // How long a thread that waits looks again and again before it sleeps: to be woken takes as long.
  static constexpr double kSpinSeconds = 30e-6;
  static constexpr std::chrono::microseconds kPatience{200};

  // While it lives a thread waits, with the lock. When it goes another one is to ask the system.
  struct Waiting {
    explicit Waiting(TcpTransport& of) : transport(of) {
      ++transport.waiting_;
      if (transport.rest_asks_) transport.ring();  // it is this thread's turn
    }
    ~Waiting() {
      --transport.waiting_;
      transport.changed_.notify_all();
      transport.leave_the_rest();
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    TcpTransport& transport;
  };

  std::unique_ptr<Transfer> begin(int peer, uint64_t tag, std::byte* data, size_t bytes,
                                  bool sends) {
    auto message = std::make_shared<TcpMessage>(TcpMessage{tag, data, bytes});
    const std::lock_guard lock(mutex_);
    TcpLink& link = links_[static_cast<size_t>(peer)];
    if (sends) {
      link.send(message);
      if (link.write()) others_may_go_on();
      leave_the_rest();
    } else {
      link.receive(message);  // which the other end hears of with what is sent or waited for next
    }
    ring_for(peer);
    auto transfer = std::make_unique<TcpTransfer>(*this, peer, sends, std::move(message));
    transfer->nudges = nudges_;
    return transfer;
  }

  void ring() {
    const uint64_t one = 1;
    (void)!::write(bell_.get(), &one, sizeof one);
  }

  // Whoever asks the system may not know yet that a link has something to write.
  void ring_for(int peer) {
    const auto index = static_cast<size_t>(peer);
    if (asking_ && !asked_to_write_[index] && links_[index].has_output()) ring();
  }

  // What this thread has moved may be what the one that asks the system waits for there, in vain.
  void others_may_go_on() {
    if (asking_) ring();
    changed_.notify_all();
  }

  bool has_output() const {
    return std::any_of(links_.begin(), links_.end(),
                       [](const TcpLink& link) { return link.has_output(); });
  }

  bool rest_is_left() const { return waiting_ == 0 && !asking_ && has_output(); }

  void leave_the_rest() {
    if (rest_is_left()) left_over_.notify_one();
  }

  void write_the_rest() {
    std::unique_lock lock(mutex_);
    while (!closing_) {
      if (!rest_is_left()) {
        left_over_.wait(lock);
        // Most ranks wait again at once; this thread would only be in their way.
        left_over_.wait_for(lock, kPatience, [&] { return closing_; });
        continue;
      }
      rest_asks_ = true;
      ask(lock, false);
      rest_asks_ = false;
    }
  }

  // Asks the system which links can go on, at once or as soon as one can, and lets them.
  void ask(std::unique_lock<std::mutex>& lock, bool at_once) {
    polled_.assign(1, {bell_.get(), POLLIN, 0});
    polled_links_.assign(1, nullptr);
    for (TcpLink& link : links_) {
      if (link.socket() < 0 || !link.lost().empty()) continue;
      const bool writes = link.has_output();
      asked_to_write_[static_cast<size_t>(&link - links_.data())] = writes;
      const int events = POLLIN | (writes ? POLLOUT : 0);
      polled_.push_back({link.socket(), static_cast<short>(events), 0});
      polled_links_.push_back(&link);
    }
    asking_ = true;
    lock.unlock();
    if (at_once) sched_yield();
    const int ready = poll(polled_.data(), polled_.size(), at_once ? 0 : -1);
    lock.lock();
    asking_ = false;
    if (ready > 0) {
      uint64_t rung = 0;
      if (polled_[0].revents != 0) (void)!::read(bell_.get(), &rung, sizeof rung);
      for (size_t i = 1; i < polled_.size(); ++i) {
        if ((polled_[i].revents & ~POLLOUT) != 0) polled_links_[i]->read();
        polled_links_[i]->write();  // an answer to what has come, too
      }
    }
    changed_.notify_all();
  }

  const FileDescriptor bell_;  // wakes the thread that asks
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TcpLink> links_;
  uint64_t nudges_ = 0;
  int waiting_ = 0;
  bool asking_ = false;
  bool rest_asks_ = false;            // whether it is the thread below that does
  std::vector<bool> asked_to_write_;  // which links the thread that asks would write to
  std::vector<pollfd> polled_;
  std::vector<TcpLink*> polled_links_;
  std::condition_variable left_over_;
  bool closing_ = false;
  std::thread rest_;
};

TcpTransfer::~TcpTransfer() {
  transport_.give_up(*this);
}

// ---- connecting ----

// What a rank says first on a connection: which rank it is, and what the other has told all ranks
// of the job, so that it is no stranger.
struct Greeting {
  std::array<char, 16> password;
  int64_t rank = 0;
};

struct Stranger {
  FileDescriptor socket;
  std::array<char, sizeof(Greeting)> bytes;
  size_t count = 0;
};

// False once it is known to be none of this job's ranks.
bool hear(Stranger& stranger) {
  const ssize_t n = recv(stranger.socket.get(), stranger.bytes.data() + stranger.count,
                         stranger.bytes.size() - stranger.count, MSG_DONTWAIT);
  if (n > 0) stranger.count += static_cast<size_t>(n);
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

class Meeting {
 public:
  Meeting(Control& control, std::string own_address, double timeout_seconds)
      : control_(control),
        rank_(control.rank()),
        sockets_(static_cast<size_t>(control.size())),
        own_address_(std::move(own_address)),
        deadline_(clock_seconds() + timeout_seconds),
        timeout_(timeout_seconds) {}

  std::vector<FileDescriptor> meet() {
    Greeting own{.password = {}, .rank = rank_};
    WEFT_CHECK(getrandom(own.password.data(), own.password.size(), 0) ==
                   static_cast<ssize_t>(own.password.size()),
               "join_tcp", "expected random bytes, got ", std::strerror(errno));
    int port = 0;
    const FileDescriptor listener = listen_at(own_address_, port, "join_tcp");
    const std::vector<std::string> offers =
        control_.exchange(Frame(0)
                              .put(std::string_view(own_address_))
                              .put(int64_t{port})
                              .put(std::string_view(own.password.data(), own.password.size()))
                              .bytes());
    // The system takes connections before this rank does, so all can knock first.
    for (int r = 0; r < rank_; ++r)
      knock(r, Frame::of(offers[static_cast<size_t>(r)]));
    open(listener.get(), own);
    return std::move(sockets_);
  }

 private:
  void knock(int r, Frame offer) {
    const std::string address = offer.text();
    const auto port = static_cast<int>(offer.number());
    Greeting greeting{.password = {}, .rank = rank_};
    const std::string password = offer.text();
    WEFT_CHECK(password.size() == greeting.password.size(), "join_tcp", "expected a password of ",
               greeting.password.size(), " bytes of rank ", r, ", got ", password.size());
    std::memcpy(greeting.password.data(), password.data(), password.size());
    FileDescriptor& socket = sockets_[static_cast<size_t>(r)];
    // It listens as long as it lives, so who refuses is dead, which is soon known.
    while (!socket.valid() && clock_seconds() < deadline_) {
      socket = connect_to(address, port, std::min(kAttempt, deadline_ - clock_seconds()));
      control_.check_joining();
      if (!socket.valid()) usleep(20'000);
    }
    if (!socket.valid() ||
        ::send(socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting) {
      throw CommunicationError(
          concat({"[join_tcp] expected a connection from rank ", rank_, " to rank ", r, " at ",
                  address, ":", port, " within ", timeout_, " s, got none"}));
    }
  }

  void open(int listener, const Greeting& own) {
    std::vector<Stranger> strangers;
    for (;;) {
      std::string missing;
      for (int r = rank_ + 1; r < control_.size(); ++r) {
        if (!sockets_[static_cast<size_t>(r)].valid())
          missing += concat({missing.empty() ? "" : ", ", r});
      }
      if (missing.empty()) return;
      const double left = deadline_ - clock_seconds();
      if (left <= 0) {
        throw CommunicationError(
            concat({"[join_tcp] expected connections to rank ", rank_, " within ", timeout_,
                    " s, got none from rank ", missing}));
      }
      std::vector<pollfd> look = {{listener, POLLIN, 0}};
      for (const Stranger& stranger : strangers)
        look.push_back({stranger.socket.get(), POLLIN, 0});
      control_.check_joining();
      if (poll(look.data(), look.size(), static_cast<int>(std::min(left, 0.1) * 1000) + 1) <= 0)
        continue;
      for (size_t i = 0; i < strangers.size(); ++i) {
        if (look[i + 1].revents == 0) continue;
        if (!hear(strangers[i])) strangers[i].socket = FileDescriptor();
        if (strangers[i].count == sizeof(Greeting)) admit(strangers[i], own);
      }
      std::erase_if(strangers, [](const Stranger& stranger) { return !stranger.socket.valid(); });
      if (look[0].revents != 0) {
        FileDescriptor socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
        // Other errors are those of a connection that broke before it was taken.
        WEFT_CHECK(socket.valid() || (errno != EMFILE && errno != ENFILE && errno != ENOMEM),
                   "join_tcp", "expected to take a connection, got: ", std::strerror(errno));
        if (socket.valid()) strangers.push_back({std::move(socket), {}, 0});
      }
    }
  }

  // Takes its connection, if it is one of this job's ranks.
  void admit(Stranger& stranger, const Greeting& own) {
    FileDescriptor socket = std::move(stranger.socket);
    Greeting greeting;
    std::memcpy(&greeting, stranger.bytes.data(), sizeof greeting);
    if (greeting.password != own.password || greeting.rank <= rank_ ||
        greeting.rank >= control_.size()) {
      return;
    }
    sockets_[static_cast<size_t>(greeting.rank)] = std::move(socket);
  }

  static constexpr double kAttempt = 5;  // seconds: the system has asked three times by then

  Control& control_;
  const int rank_;
  std::vector<FileDescriptor> sockets_;  // by rank
  const std::string own_address_;
  const double deadline_;
  const double timeout_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(Control& control, const std::string& own_address,
                                              double timeout_seconds) {
  Meeting meeting(control, own_address.empty() ? control.own_address() : own_address,
                  timeout_seconds);
  return std::make_unique<TcpTransport>(meeting.meet());
}

}  // namespace weft::dist::detail
