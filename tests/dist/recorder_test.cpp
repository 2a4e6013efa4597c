#include "dist/recorder.h"

#include "dist/thread_ranks.h"
#include "tests/support/tensors.h"

#include <mutex>

namespace weft::dist {
namespace {

TEST(Recorder, DescribesEvents) {
  Event event;
  event.collective = Collective::all_reduce;
  event.sequence = 42;
  event.count = 1024;
  event.communicator = "world";
  event.unit = "blocks.3";
  event.tag_end = 1024;
  EXPECT_EQ(describe(event),
            "all_reduce #42 of 'world', 1024 x f32, sum, unit 'blocks.3' [0, 1024)");
  event.collective = Collective::barrier;
  event.unit = "";
  event.tag_end = 0;
  EXPECT_EQ(describe(event), "barrier #42 of 'world'");
}

TEST(Recorder, KeepsTheLatest) {
  Recorder recorder(3);
  for (int i = 0; i < 5; ++i) {
    Event event;
    event.sequence = i;
    recorder.ended(recorder.begin(std::move(event)));
  }
  const auto events = recorder.events();
  ASSERT_EQ(events.size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(events[i].sequence, static_cast<int64_t>(i) + 2);
}

TEST(Recorder, CountsCallsAndTheBytesThatARankMustSend) {
  run_thread_ranks(4, [](Communicator& comm) {
    std::vector<float> memory(400), other(400);
    const auto elements = [&](int64_t count) { return Elements{memory.data(), count, f32}; };
    const auto sent = [&](Collective collective) {
      return comm.recorder().totals()[static_cast<size_t>(collective)].sent_bytes;
    };
    comm.all_reduce(elements(400));
    EXPECT_EQ(sent(Collective::all_reduce), 2 * 1600 * 3 / 4);
    const Elements own = elements(400).part(comm.rank() * 100, 100);
    comm.reduce_scatter(elements(400), own);
    EXPECT_EQ(sent(Collective::reduce_scatter), 1600 * 3 / 4);
    comm.all_gather(own, elements(400));
    EXPECT_EQ(sent(Collective::all_gather), 1600 * 3 / 4);
    comm.all_to_all(elements(400), {other.data(), 400, f32});
    EXPECT_EQ(sent(Collective::all_to_all), 1600 * 3 / 4);
    comm.broadcast(elements(10), 1);
    EXPECT_EQ(sent(Collective::broadcast), comm.rank() == 1 ? 40 : 0);
    comm.barrier();
    EXPECT_EQ(sent(Collective::barrier), 0);

    comm.recorder().reset_totals();
    // One node a rank is the traffic of a plain all-reduce.
    comm.run(Communicator::all_reduce_nodes({{{0, comm.rank()}, elements(400)}},
                                            {{{2, 0}, elements(400)}}, 4));
    const auto totals = comm.recorder().totals();
    EXPECT_EQ(totals[0].calls, 1);
    EXPECT_EQ(totals[0].sent_bytes, 2 * 1600 * 3 / 4);
  });
}

TEST(Recorder, CountsForEachUnit) {
  run_thread_ranks(2, [](Communicator& comm) {
    std::vector<float> memory(100);
    comm.recorder().reset_totals();
    comm.all_reduce({memory.data(), 100, f32}, ReduceOp::sum, {"a", 0, 100});
    comm.all_reduce({memory.data(), 60, f32}, ReduceOp::sum, {"a", 0, 60});
    comm.broadcast({memory.data(), 10, f32}, 0, {"b"});
    comm.barrier();
    auto units = comm.recorder().totals_by_unit();
    ASSERT_EQ(units.size(), 3u);
    const auto total = [&](const char* unit, Collective collective) {
      return units.at(unit)[static_cast<size_t>(collective)];
    };
    EXPECT_EQ(total("a", Collective::all_reduce).calls, 2);
    EXPECT_EQ(total("a", Collective::all_reduce).sent_bytes, 400 + 240);
    EXPECT_EQ(total("a", Collective::broadcast).calls, 0);
    EXPECT_EQ(total("b", Collective::broadcast).calls, 1);
    EXPECT_EQ(total("b", Collective::broadcast).sent_bytes, comm.rank() == 0 ? 40 : 0);
    EXPECT_EQ(total("", Collective::barrier).calls, 1);
    comm.recorder().reset_totals();
    EXPECT_TRUE(comm.recorder().totals_by_unit().empty());
  });
}

TEST(Recorder, TellsItsListenerOfEveryEndInOrder) {
  run_thread_ranks(2, [](Communicator& comm) {
    std::mutex mutex;
    std::vector<Event> heard;
    comm.recorder().set_listener([&](const Event& event) {
      const std::lock_guard lock(mutex);
      heard.push_back(event);
    });
    std::vector<float> memory(4000);
    std::vector<Handle> handles;
    for (int i = 0; i < 5; ++i)
      handles.push_back(comm.start_all_reduce({memory.data(), 4000, f32}, ReduceOp::sum,
                                              {.unit = "layer", .begin = i, .end = i + 1}));
    comm.wait_all();
    comm.recorder().set_listener({});
    comm.barrier();
    const std::lock_guard lock(mutex);
    ASSERT_EQ(heard.size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(heard[i].sequence, static_cast<int64_t>(i));
      EXPECT_EQ(heard[i].unit, "layer");
      EXPECT_EQ(heard[i].begin, static_cast<int64_t>(i));
      EXPECT_LE(heard[i].queued, heard[i].start);
      EXPECT_LE(heard[i].start, heard[i].end);
      if (i > 0) {
        EXPECT_LE(heard[i - 1].end, heard[i].start);
      }
    }
    EXPECT_GT(comm.recorder().waited_seconds(), 0);
    const auto events = comm.recorder().events();
    EXPECT_EQ(events.back().collective, Collective::barrier);
    EXPECT_GT(events.back().end, 0);
  });
}

}  // namespace
}  // namespace weft::dist
