#include "dist/detail/gloo_transport.h"

#include "dist/communicator.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace weft::dist::detail {
namespace {

namespace transport = ::gloo::transport;

// A wait of Gloo's that runs into its own limit closes all connections, so it never does: it is
// aborted by nudges instead.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(1000);

class GlooTransfer final : public Transport::Transfer {
 public:
  std::unique_ptr<transport::UnboundBuffer> buffer;
  bool sends = false;
  bool done = false;
  std::string error;
};

class GlooTransport final : public Transport {
 public:
  using Contexts = std::array<std::shared_ptr<transport::Context>, 2>;

  GlooTransport(int rank, std::shared_ptr<transport::Device> device, Contexts contexts)
      : rank_(rank), device_(std::move(device)), contexts_(std::move(contexts)) {}

  const char* backend() const override { return "gloo"; }

  std::unique_ptr<Transfer> send(int to, uint64_t tag, const std::byte* data,
                                 size_t bytes) override {
    return begin(to, tag, const_cast<std::byte*>(data), bytes, true);
  }
  std::unique_ptr<Transfer> recv(int from, uint64_t tag, std::byte* data, size_t most) override {
    return begin(from, tag, data, most, false);
  }

  bool wait(Transfer& transfer) override {
    auto& own = static_cast<GlooTransfer&>(transfer);
    if (own.done) return true;
    if (!own.error.empty()) throw TransportError(own.error);
    const Waiting waiting(*this, own);
    try {
      own.done = own.sends ? own.buffer->waitSend(kForever) : own.buffer->waitRecv(kForever);
    } catch (const std::exception& error) {
      own.error = error.what();
      throw TransportError(own.error);
    }
    return own.done;
  }

  void nudge() override {
    const std::lock_guard lock(mutex_);
    for (GlooTransfer* transfer : waiting_) {
      if (transfer->sends) {
        transfer->buffer->abortWaitSend();
      } else {
        transfer->buffer->abortWaitRecv();
      }
    }
  }

 private:
  // While it lives nudges reach the transfer.
  struct Waiting {
    Waiting(GlooTransport& transport, GlooTransfer& of) : owner(transport), transfer(of) {
      const std::lock_guard lock(owner.mutex_);
      owner.waiting_.push_back(&transfer);
    }
    ~Waiting() {
      const std::lock_guard lock(owner.mutex_);
      std::erase(owner.waiting_, &transfer);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    GlooTransport& owner;
    GlooTransfer& transfer;
  };

  std::unique_ptr<Transfer> begin(int peer, uint64_t tag, std::byte* data, size_t bytes,
                                  bool sends) {
    auto transfer = std::make_unique<GlooTransfer>();
    transfer->sends = sends;
    try {
      // Two ranks have a connection for either direction, as one that sends cannot receive.
      const bool upwards = sends ? peer > rank_ : peer < rank_;
      transfer->buffer = contexts_[upwards ? 0 : 1]->createUnboundBuffer(data, bytes);
      if (sends) {
        transfer->buffer->send(peer, tag, 0, bytes);
      } else {
        transfer->buffer->recv(peer, tag, 0, bytes);
      }
    } catch (const std::exception& error) {
      transfer->error = error.what();
    }
    return transfer;
  }

  const int rank_;
  const std::shared_ptr<transport::Device> device_;
  const Contexts contexts_;
  std::mutex mutex_;
  std::vector<GlooTransfer*> waiting_;
};

// Gloo writes to connections whose other end may have died, which by default ends the process. A
// handler that does nothing, unlike ignoring, is not passed on to programs started from here.
void survive_lost_connections() {
  struct sigaction present {};
  if (sigaction(SIGPIPE, nullptr, &present) != 0 || (present.sa_flags & SA_SIGINFO) != 0 ||
      present.sa_handler != SIG_DFL) {
    return;
  }
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  nothing.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &nothing, nullptr);
}

// Gloo's own thread, which the device starts, looks at a connection again and again while another
// thread is about to send on it. So it must not push that thread off its processor when data come
// in: as a batch thread it does not.
std::shared_ptr<transport::Device> make_device(const transport::tcp::attr& attributes) {
  std::shared_ptr<transport::Device> device;
  std::exception_ptr error;
  std::thread([&] {
    const sched_param no_priority{};
    (void)sched_setscheduler(0, SCHED_BATCH, &no_priority);
    try {
      device = transport::tcp::CreateDevice(attributes);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return device;
}

}  // namespace

std::unique_ptr<Transport> make_gloo_transport(Control& control, const std::string& own_address,
                                               double timeout_seconds) {
  const int rank = control.rank();
  const int size = control.size();
  survive_lost_connections();
  try {
    transport::tcp::attr attributes;
    attributes.hostname = own_address.empty() ? control.own_address() : own_address;
    auto device = make_device(attributes);
    GlooTransport::Contexts contexts;
    // Every rank offers two addresses to every other one.
    Frame own(0);
    for (auto& context : contexts) {
      context = device->createContext(rank, size);
      // Gloo waits for a connection five times as long.
      context->setTimeout(std::chrono::milliseconds(
          std::max<int64_t>(1, static_cast<int64_t>(timeout_seconds * 1000 / 5))));
      for (int r = 0; r < size; ++r) {
        const std::vector<char> bytes =
            r == rank ? std::vector<char>() : context->createPair(r)->address().bytes();
        own.put(std::string_view(bytes.data(), bytes.size()));
      }
    }
    const std::vector<std::string> offers = control.exchange(own.bytes());
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      Frame theirs = Frame::of(offers[static_cast<size_t>(r)]);
      for (auto& context : contexts) {
        std::string address;
        for (int i = 0; i < size; ++i) {
          const std::string offered = theirs.text();
          if (i == rank) address = offered;
        }
        context->getPair(r)->connect(std::vector<char>(address.begin(), address.end()));
      }
    }
    return std::make_unique<GlooTransport>(rank, std::move(device), std::move(contexts));
  } catch (const CommunicationError&) {
    throw;
  } catch (const std::exception& error) {
    throw CommunicationError(concat({"[join_tcp] expected connections between all ", size,
                                     " ranks, got on rank ", rank, ": ", error.what()}));
  }
}

}  // namespace weft::dist::detail
