// Data that are slower on their way than the news of what has become of their sender.
#include "dist/detail/network.h"
#include "dist/detail/tcp_transport.h"
#include "dist/detail/transport_communicator.h"
#include "dist/tcp.h"
#include "tests/support/processes.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <numeric>

namespace weft::dist {
namespace {

using detail::Control;
using detail::Transport;

constexpr int64_t kMany = int64_t{1} << 19;  // elements of one message
constexpr double kLate = 1.5;                // seconds

// Brings what is large later than it has come.
class SlowTransport final : public Transport {
 public:
  explicit SlowTransport(std::unique_ptr<Transport> fast) : fast_(std::move(fast)) {}

  const char* backend() const override { return fast_->backend(); }
  std::unique_ptr<Transfer> send(int to, uint64_t tag, const std::byte* data,
                                 size_t bytes) override {
    return std::make_unique<Slow>(fast_->send(to, tag, data, bytes), 0);
  }
  std::unique_ptr<Transfer> recv(int from, uint64_t tag, std::byte* data, size_t most) override {
    const double arrives = most >= size_t{1} << 20 ? clock_seconds() + kLate : 0;
    return std::make_unique<Slow>(fast_->recv(from, tag, data, most), arrives);
  }
  bool wait(Transfer& transfer) override {
    const auto& slow = static_cast<const Slow&>(transfer);
    if (clock_seconds() >= slow.arrives) return fast_->wait(*slow.transfer);
    usleep(20'000);
    return false;
  }
  void nudge() override { fast_->nudge(); }

 private:
  struct Slow final : Transfer {
    Slow(std::unique_ptr<Transfer> of, double at) : transfer(std::move(of)), arrives(at) {}
    std::unique_ptr<Transfer> transfer;
    double arrives;
  };
  std::unique_ptr<Transport> fast_;
};

TEST(SlowNetwork, BringsWhatARankHasSentBeforeItLeft) {
  constexpr double kTimeout = 60;
  const std::string job = test::fresh_job_name();
  const int port = free_port("127.0.0.1");
  const auto outcomes = test::run_processes(2, [&](int rank) {
    auto control = std::make_unique<Control>(Control::Options{.job = job,
                                                              .address = "127.0.0.1",
                                                              .port = port,
                                                              .rank = rank,
                                                              .size = 2,
                                                              .timeout_seconds = kTimeout});
    auto transport =
        std::make_unique<SlowTransport>(detail::make_tcp_transport(*control, "", kTimeout));
    const auto network =
        std::make_shared<detail::Network>(std::move(transport), std::move(control));
    detail::TransportCommunicator end(network, 0, rank, {0, 1}, "world",
                                      std::make_shared<Recorder>(), {.timeout_seconds = kTimeout});
    Communicator& comm = end;
    std::vector<float> values(static_cast<size_t>(kMany));
    const Elements all(values.data(), kMany, f32);
    if (rank == 1) {
      std::iota(values.begin(), values.end(), 0.0f);
      comm.send(all, 0);
    } else {
      comm.recv(all, 1);
      if (values.back() != static_cast<float>(kMany - 1)) throw Error("something else came");
    }
    return std::string();
  });
  for (const test::Outcome& outcome : outcomes)
    EXPECT_EQ(outcome.code, test::kReturned) << outcome.text;
}

}  // namespace
}  // namespace weft::dist
