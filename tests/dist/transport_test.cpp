// What the communicators across hosts rely on, of each way to carry messages over TCP.
#include "dist/detail/transport.h"

#include "dist/detail/frame.h"
#include "dist/detail/gloo_transport.h"
#include "dist/detail/network.h"
#include "dist/detail/tcp_link.h"
#include "dist/detail/tcp_transport.h"
#include "dist/tcp.h"
#include "tests/support/processes.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <numeric>

namespace weft::dist {
namespace {

using detail::Control;
using detail::Transport;

constexpr double kTimeout = 30;
constexpr size_t kMany = size_t{12} << 20;  // numbers; more than the system takes by itself
constexpr uint64_t kTag = 8;
constexpr uint64_t kOther = 9;

using Make = std::unique_ptr<Transport> (*)(Control&, const std::string&, double);

// One of two ranks.
struct End {
  std::shared_ptr<detail::Network> network;
  int rank = 0;

  Transport& transport() const { return network->transport(); }
  std::unique_ptr<Transport::Transfer> send(uint64_t tag, const std::vector<float>& values) const {
    return transport().send(1 - rank, tag, reinterpret_cast<const std::byte*>(values.data()),
                            values.size() * sizeof(float));
  }
  std::unique_ptr<Transport::Transfer> recv(uint64_t tag, std::vector<float>& values) const {
    return transport().recv(1 - rank, tag, reinterpret_cast<std::byte*>(values.data()),
                            values.size() * sizeof(float));
  }
  void wait(Transport::Transfer& transfer) const {
    const double start = clock_seconds();
    while (!transport().wait(transfer)) {
      if (clock_seconds() - start > kTimeout) throw Error("a message did not come");
    }
  }
  void await(const std::unique_ptr<Transport::Transfer>& transfer) const { wait(*transfer); }
};

std::vector<float> counted(size_t count, float from) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), from);
  return values;
}

void expect_same(const std::vector<float>& came, const std::vector<float>& sent) {
  if (came != sent) throw Error("something else came");
}

class Messages : public testing::TestWithParam<Make> {
 protected:
  // Runs both ends; each is done only when the other is, or has failed.
  void run(const std::function<void(const End&)>& sender,
           const std::function<void(const End&)>& receiver) {
    const std::string job = test::fresh_job_name();
    const int port = free_port("127.0.0.1");
    const auto outcomes = test::run_processes(
        2,
        [&](int rank) {
          auto control = std::make_unique<Control>(Control::Options{.job = job,
                                                                    .address = "127.0.0.1",
                                                                    .port = port,
                                                                    .rank = rank,
                                                                    .size = 2,
                                                                    .timeout_seconds = kTimeout});
          auto transport = GetParam()(*control, "", kTimeout);
          const End end{std::make_shared<detail::Network>(std::move(transport), std::move(control)),
                        rank};
          (rank == 0 ? sender : receiver)(end);
          return std::string();
        },
        {.seconds = 90});
    for (const test::Outcome& outcome : outcomes)
      EXPECT_EQ(outcome.code, test::kReturned) << outcome.text;
  }
};
std::string name_of_make(const testing::TestParamInfo<Make>& of) {
  return of.index == 0 ? "tcp" : "gloo";
}
INSTANTIATE_TEST_SUITE_P(Over, Messages,
                         testing::Values(&detail::make_tcp_transport, &detail::make_gloo_transport),
                         name_of_make);

TEST_P(Messages, ArriveInOrderAndMayBeShorterThanTheirPlace) {
  run(
      [](const End& end) {
        const auto first = counted(5, 1);
        const auto second = counted(kMany, 2);
        const auto third = counted(1, 3);
        const auto a = end.send(kTag, first);
        const auto b = end.send(kTag, second);
        const auto c = end.send(kTag, third);
        for (const auto* transfer : {&a, &b, &c})
          end.await(*transfer);
      },
      [](const End& end) {
        std::vector<float> first(9, -1);
        std::vector<float> second(kMany);
        std::vector<float> third(1);
        const auto a = end.recv(kTag, first);
        const auto b = end.recv(kTag, second);
        const auto c = end.recv(kTag, third);
        for (const auto* transfer : {&c, &a, &b})
          end.await(*transfer);
        expect_same(first, {1, 2, 3, 4, 5, -1, -1, -1, -1});
        expect_same(second, counted(kMany, 2));
        expect_same(third, {3});
      });
}

// One communicator's data are not in another's way.
TEST_P(Messages, OfOneTagDoNotWaitForThoseOfAnother) {
  run(
      [](const End& end) {
        const auto large = counted(kMany, 1);
        const auto small = counted(10, 2);
        const auto a = end.send(kTag, large);
        const auto b = end.send(kOther, small);
        end.await(b);
        end.await(a);
      },
      [](const End& end) {
        std::vector<float> small(10);
        const auto b = end.recv(kOther, small);
        end.await(b);
        expect_same(small, counted(10, 2));
        std::vector<float> large(kMany);
        const auto a = end.recv(kTag, large);
        end.await(a);
        expect_same(large, counted(kMany, 1));
      });
}

// The sender may wait for something else altogether, such as a rank of its own host.
TEST_P(Messages, ArriveThoughTheirSenderDoesNotWait) {
  run(
      [](const End& end) {
        std::vector<float> asked(1);
        const auto question = end.recv(kOther, asked);
        end.await(question);  // now the memory over there has been announced
        const auto values = counted(kMany, 1);
        const auto unheeded = end.send(kTag, values);
        const double start = clock_seconds();
        while (end.network->control().fate(1, 0).empty() && clock_seconds() - start < kTimeout)
          usleep(1000);
        if (clock_seconds() - start >= kTimeout) throw Error("the message did not arrive");
      },
      [](const End& end) {
        std::vector<float> values(kMany);
        const auto data = end.recv(kTag, values);
        const std::vector<float> word = {7};
        end.await(end.send(kOther, word));
        end.await(data);
        expect_same(values, counted(kMany, 1));
        end.network->control().leave(0);
      });
}

// As long as a rank computes, or a job is paused, nobody reads.
TEST_P(Messages, WaitForAReceiverThatDoesNotRead) {
  run(
      [](const End& end) {
        const auto values = counted(kMany, 1);
        end.await(end.send(kTag, values));
      },
      [](const End& end) {
        std::vector<float> values(kMany);
        const auto data = end.recv(kTag, values);
        const std::vector<float> word = {7};
        const auto begins =
            end.send(kOther, word);  // never received; the announcement goes with it
        usleep(17'000'000);
        end.await(data);
        expect_same(values, counted(kMany, 1));
      });
}

TEST_P(Messages, OfALostConnectionThrow) {
  run(
      [](const End& end) {
        const auto last = counted(1000, 1);
        const auto sent = end.send(kTag, last);
        end.await(sent);
      },
      [](const End& end) {
        std::vector<float> last(1000);
        std::vector<float> never(1000);
        const auto a = end.recv(kTag, last);
        const auto b = end.recv(kTag, never);
        end.network->control().leave(0);
        end.await(a);
        expect_same(last, counted(1000, 1));
        const double start = clock_seconds();
        bool lost = false;
        while (!lost && clock_seconds() - start < kTimeout) {
          // Rank 0 leaves when this rank has; until it has gone, nudges come.
          if (!end.network->control().fate(0, 1).empty()) return;
          try {
            (void)end.transport().wait(*b);
          } catch (const detail::TransportError&) {
            lost = true;
          }
        }
        if (!lost) throw Error("the loss went unnoticed");
      });
}

// ---- messages that are given up, as they are after a verdict ----

class TcpMessages : public Messages {};
INSTANTIATE_TEST_SUITE_P(Over, TcpMessages, testing::Values(&detail::make_tcp_transport),
                         name_of_make);

TEST_P(TcpMessages, ThatAreGivenUpLeaveTheConnectionWhole) {
  run(
      [](const End& end) {
        std::vector<float> asked(1);
        end.await(end.recv(kOther, asked));
        std::vector<float> large = counted(kMany, 1);
        // Begun and given up: the rest that comes is nothing of this memory.
        { const auto begun = end.send(kTag, large); }
        large.assign(large.size(), -7);
        // There is no place for it and never will be.
        { const auto unasked = end.send(kTag + 100, large); }
        end.await(end.recv(kOther, asked));
        const auto small = counted(10, 5);
        end.await(end.send(kTag, small));
        end.await(end.send(kTag, small));
        end.await(end.recv(kOther, asked));
      },
      [](const End& end) {
        std::vector<float> large(kMany, -1);
        std::vector<float> dropped(20, -1);
        std::vector<float> small(10);
        const auto a = end.recv(kTag, large);
        auto b = end.recv(kTag, dropped);
        const std::vector<float> word = {7};
        end.await(end.send(kOther, word));
        end.await(a);
        int64_t strange = 0;
        for (size_t i = 0; i < large.size(); ++i)
          strange += large[i] != 0 && large[i] != static_cast<float>(i + 1) ? 1 : 0;
        // It may have been cut within a number.
        if (strange > 1) throw Error("memory that had been given up was read");
        b = nullptr;  // announced and given up: what comes for it is dropped
        end.await(end.send(kOther, word));
        const auto c = end.recv(kTag, small);
        end.await(c);
        expect_same(small, counted(10, 5));
        expect_same(dropped, std::vector<float>(20, -1));
        end.await(end.send(kOther, word));
      });
}

// ---- one connection ----

using detail::TcpLink;
using detail::TcpMessage;

class TcpLinks : public testing::Test {
 protected:
  TcpLinks() {
    int port = 0;
    const auto listener = detail::listen_at("127.0.0.1", port, "test");
    near_ = TcpLink(detail::connect_to("127.0.0.1", port, 5));
    far_ = TcpLink(detail::FileDescriptor(accept(listener.get(), nullptr, nullptr)));
  }
  static std::shared_ptr<TcpMessage> message(uint64_t tag, std::vector<float>& values) {
    return std::make_shared<TcpMessage>(TcpMessage{tag, reinterpret_cast<std::byte*>(values.data()),
                                                   values.size() * sizeof(float)});
  }
  // Until a message is done or nothing has moved for a while.
  void move(const std::shared_ptr<TcpMessage>& until) {
    const double start = clock_seconds();
    while (!until->done && clock_seconds() - start < 5) {
      near_.write();
      far_.write();
      near_.read();
      far_.read();
    }
  }
  void move_some() {
    for (int i = 0; i < 100; ++i) {
      near_.write();
      far_.write();
      near_.read();
      far_.read();
      usleep(100);
    }
  }

  TcpLink near_;
  TcpLink far_;
};

TEST_F(TcpLinks, GiveTheOfferOfASendGivenUpToTheNext) {
  std::vector<float> came(1);
  std::vector<float> first = {1};
  std::vector<float> second = {2};
  const auto place = message(kTag, came);
  far_.receive(place);
  far_.write();
  move_some();
  const auto unwanted = message(kTag, first);
  const auto wanted = message(kTag, second);
  near_.send(unwanted);  // takes the offer
  near_.send(wanted);    // waits for one
  near_.give_up(unwanted);
  move(place);
  ASSERT_TRUE(place->done);
  EXPECT_TRUE(wanted->done);
  EXPECT_FALSE(unwanted->done);
  EXPECT_EQ(came, second);
}

TEST_F(TcpLinks, ForgetTagsOfWhichNothingIsUnderWay) {
  std::vector<float> came(3);
  std::vector<float> sent = {1, 2, 3};
  for (uint64_t tag = 0; tag < 100; ++tag) {
    const auto place = message(tag, came);
    const auto data = message(tag, sent);
    far_.receive(place);
    near_.send(data);
    move(place);
    ASSERT_TRUE(place->done && data->done);
    const auto unwanted = message(tag, sent);
    near_.send(unwanted);
    near_.give_up(unwanted);
  }
  EXPECT_EQ(near_.busy_channels(), 0U);
  EXPECT_EQ(far_.busy_channels(), 0U);
}

// What is not of this protocol, or not what was asked for.
TEST_F(TcpLinks, AreLostWhereStrangeBytesCome) {
  std::vector<float> sent = {1, 2, 3};
  std::vector<float> came(1);
  const auto place = message(kTag, came);
  far_.receive(place);
  move_some();
  const auto data = message(kTag, sent);
  near_.send(data);
  move_some();
  EXPECT_EQ(far_.lost(), "it sent what was not asked for");
  EXPECT_FALSE(place->done);
  EXPECT_EQ(came, std::vector<float>{0});
}

// ---- while ranks connect ----

// What each rank's `body` returns, when all have come.
std::vector<test::Outcome> run_joined(int size, const std::string& job,
                                      const std::function<std::string(Control&, int)>& body) {
  const int port = free_port("127.0.0.1");
  return test::run_processes(size,
                             [&](int rank) {
                               Control control({.job = job,
                                                .address = "127.0.0.1",
                                                .port = port,
                                                .rank = rank,
                                                .size = size,
                                                .timeout_seconds = kTimeout});
                               return body(control, rank);
                             },
                             {.seconds = 90});
}

// By the number of the rank that dies when all have exchanged addresses, before it connects.
class TcpMeeting : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Without, TcpMeeting, testing::Values(0, 1, 2));

TEST_P(TcpMeeting, NoticesADeathAtOnce) {
  const std::string job = test::fresh_job_name();
  const int dies = GetParam();
  const auto outcomes = run_joined(3, job, [&](Control& control, int rank) -> std::string {
    if (rank == dies) {
      const int own_port = free_port("127.0.0.1");  // where nobody listens
      control.exchange(detail::Frame(0)
                           .put(std::string_view("127.0.0.1"))
                           .put(own_port)
                           .put(std::string_view("sixteen letters."))
                           .bytes());
      _exit(7);
    }
    const double start = clock_seconds();
    try {
      (void)detail::make_tcp_transport(control, "", kTimeout);
    } catch (const Error& error) {
      return concat({clock_seconds() - start < kTimeout / 3 ? "soon: " : "late: ", error.what()});
    }
    return std::string("it went on");
  });
  for (int rank = 0; rank < 3; ++rank) {
    const test::Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    if (rank == dies) {
      EXPECT_EQ(outcome.code, 7);
    } else {
      EXPECT_THAT(outcome.text,
                  testing::HasSubstr(concat({"soon: [join] expected 3 ranks of job '", job,
                                             "', got no rank ", dies, ": it died (process "})))
          << "rank " << rank;
    }
  }
}

// A rank that has joined may speak before rank 0 has, and then say nothing for long.
TEST(TcpMeetings, HearWhatIsSaidWhileTheyJoin) {
  const std::string job = test::fresh_job_name();
  const auto outcomes = run_joined(2, job, [&](Control& control, int rank) -> std::string {
    (void)control.exchange("here");
    if (rank == 1) {
      control.serve([] {});
      control.leave(7);
      const double start = clock_seconds();
      while (control.fate(0, 8).empty() && clock_seconds() - start < kTimeout)
        usleep(1000);
      return std::string(control.fate(0, 8));
    }
    usleep(200'000);
    control.check_joining();
    control.serve([] {});
    const double start = clock_seconds();
    while (control.fate(1, 7).empty() && clock_seconds() - start < kTimeout / 3)
      usleep(1000);
    const std::string heard = control.fate(1, 7);
    control.leave(8);
    return heard;
  });
  for (const size_t rank : {0, 1})
    EXPECT_EQ(outcomes[rank].text, detail::kLeft);
}

// Why rank 0 gives the job up is the verdict of a rank too that has joined already.
TEST(TcpMeetings, TellThoseWhoHaveJoinedWhyThereIsNoJob) {
  const std::string job = test::fresh_job_name();
  const int port = free_port("127.0.0.1");
  const auto outcomes =
      test::run_processes(3,
                          [&](int rank) {
                            Control control({.job = job,
                                             .address = "127.0.0.1",
                                             .port = port,
                                             .rank = rank,
                                             .size = 3,
                                             .timeout_seconds = kTimeout});
                            (void)control.exchange("here");
                            if (rank == 1) _exit(7);
                            if (rank == 2) {
                              control.serve([] {});
                              const auto verdict = control.await_verdict(7, kTimeout);
                              return verdict ? verdict->text : std::string("none");
                            }
                            try {
                              const double start = clock_seconds();
                              for (; clock_seconds() - start < kTimeout; usleep(1000))
                                control.check_joining();
                            } catch (const Error& error) {
                              return std::string(error.what());
                            }
                            return std::string("it went on");
                          },
                          {.seconds = 90});
  EXPECT_THAT(outcomes[0].text, testing::HasSubstr("got no rank 1: it died (process "));
  EXPECT_EQ(outcomes[2].text, outcomes[0].text);
}

// Rank 0 hears of it though it waits for the answer of another first.
TEST(TcpMeetings, NoticeADeathWhileOthersAreSilent) {
  const std::string job = test::fresh_job_name();
  const auto outcomes = run_joined(3, job, [&](Control& control, int rank) -> std::string {
    if (rank == 2) _exit(7);
    if (rank == 1) usleep(3'000'000);
    const double start = clock_seconds();
    try {
      (void)control.exchange("here");
    } catch (const Error& error) {
      return concat({clock_seconds() - start < 2 ? "soon: " : "late: ", error.what()});
    }
    return std::string("it went on");
  });
  for (const size_t rank : {0, 1})
    EXPECT_THAT(outcomes[rank].text, testing::StartsWith("soon: [join] expected 3 ranks"));
}

}  // namespace
}  // namespace weft::dist
