// Ranks that call different things, and calls that no rank can honour.
#include "dist/thread_ranks.h"
#include "tests/support/tensors.h"

#include <gmock/gmock.h>

#include <array>
#include <mutex>

namespace weft::dist {
namespace {

using test::error_of;
using testing::HasSubstr;

// What each of `ranks` ranks got: "no error", or the text of a ContractError.
std::vector<std::string> contract_errors(int ranks,
                                         const std::function<void(Communicator&)>& body) {
  std::vector<std::string> texts(static_cast<size_t>(ranks), "no error");
  run_thread_ranks(ranks, [&](Communicator& comm) {
    std::string& text = texts[static_cast<size_t>(comm.rank())];
    try {
      body(comm);
    } catch (const ContractError& error) {
      text = error.what();
    }
    // A broken communicator repeats its verdict.
    if (text != "no error") {
      EXPECT_EQ(error_of([&] { comm.barrier(); }), text);
      EXPECT_EQ(error_of([&] { (void)comm.start_all_reduce({}); }), text);
      EXPECT_EQ(error_of([&] { comm.split(0, 0, "x"); }), text);
    }
  });
  return texts;
}

struct Memory {
  std::array<float, 64> a{}, b{};
  std::array<int32_t, 64> integers{};
  Elements in(int64_t count) { return {a.data(), count, f32}; }
  Elements out(int64_t count) { return {b.data(), count, f32}; }
};

// Rank 1 of two does `other`, rank 0 `usual`.
std::string mismatch(const std::function<void(Communicator&, Memory&)>& usual,
                     const std::function<void(Communicator&, Memory&)>& other) {
  const auto texts = contract_errors(2, [&](Communicator& comm) {
    Memory memory;
    memory.a.fill(3);
    comm.barrier();
    const auto call = [&] { (comm.rank() == 1 ? other : usual)(comm, memory); };
    try {
      call();
    } catch (const ContractError&) {
      for (const float x : memory.a)
        EXPECT_EQ(x, 3) << "data was touched";
      throw;
    }
  });
  EXPECT_EQ(texts[0], texts[1]);
  return texts[0];
}

TEST(Contract, EveryKindOfDifferenceIsNamed) {
  const auto sum4 = [](Communicator& c, Memory& m) {
    c.all_reduce(m.in(4), ReduceOp::sum, {"blocks.3", 0, 4});
  };
  EXPECT_EQ(mismatch(sum4,
                     [](Communicator& c, Memory& m) {
                       c.all_reduce(m.in(5), ReduceOp::sum, {"blocks.3", 0, 4});
                     }),
            "[all_reduce] expected the same call on all 2 ranks, got on rank 0: all_reduce #1 of "
            "'world', 4 x f32, sum, unit 'blocks.3' [0, 4); on rank 1: all_reduce #1 of 'world', 5 "
            "x f32, sum, unit 'blocks.3' [0, 4)");
  EXPECT_THAT(mismatch(sum4, [](Communicator& c, Memory& m) { c.all_gather(m.in(4), m.out(8)); }),
              HasSubstr("on rank 1: all_gather #1 of 'world', 4 x f32"));
  EXPECT_THAT(mismatch(sum4,
                       [](Communicator& c, Memory& m) {
                         c.all_reduce(m.in(4), ReduceOp::max, {"blocks.3", 0, 4});
                       }),
              HasSubstr("4 x f32, max"));
  EXPECT_THAT(
      mismatch(sum4,
               [](Communicator& c, Memory& m) {
                 c.all_reduce({m.integers.data(), 4, i32}, ReduceOp::sum, {"blocks.3", 0, 4});
               }),
      HasSubstr("4 x i32"));
  EXPECT_THAT(mismatch(sum4,
                       [](Communicator& c, Memory& m) {
                         c.all_reduce(m.in(4), ReduceOp::sum, {"blocks.4", 0, 4});
                       }),
              HasSubstr("unit 'blocks.4'"));
  EXPECT_THAT(mismatch(sum4,
                       [](Communicator& c, Memory& m) {
                         c.all_reduce(m.in(4), ReduceOp::sum, {"blocks.3", 4, 8});
                       }),
              HasSubstr("[4, 8)"));
  EXPECT_THAT(mismatch([](Communicator& c, Memory& m) { c.broadcast(m.in(4), 0); },
                       [](Communicator& c, Memory& m) { c.broadcast(m.in(4), 1); }),
              HasSubstr("root 1"));
  EXPECT_THAT(mismatch(sum4, [](Communicator& c, Memory&) { c.barrier(); }),
              HasSubstr("on rank 1: barrier #1 of 'world'"));
  EXPECT_THAT(mismatch([](Communicator& c, Memory&) { c.split(0, 0, "shard"); },
                       [](Communicator& c, Memory&) { c.split(0, 0, "replicate"); }),
              HasSubstr("unit 'replicate'"));
}

TEST(Contract, LargeCallsAreComparedBeforeAnythingIsTouched) {
  std::vector<std::vector<float>> memory(3, std::vector<float>(100'000, 3.0f));
  const auto texts = contract_errors(3, [&](Communicator& comm) {
    auto& own = memory[static_cast<size_t>(comm.rank())];
    comm.all_reduce({own.data(), comm.rank() == 2 ? 99'999 : 100'000, f32});
  });
  for (const std::string& text : texts)
    EXPECT_THAT(text, HasSubstr("on rank 2: all_reduce #0 of 'world', 99999 x f32, sum"));
  for (const auto& own : memory)
    EXPECT_EQ(own, std::vector<float>(100'000, 3.0f));
}

TEST(Contract, SendAndReceiveAreComparedToo) {
  EXPECT_THAT(mismatch([](Communicator& c, Memory& m) { c.send(m.in(4), 1); },
                       [](Communicator& c, Memory& m) { c.recv(m.in(5), 0); }),
              HasSubstr("got on rank 0: send #0 of 'world', 4 x f32, to rank 1; on rank 1: recv #0 "
                        "of 'world', 5 x f32, from rank 0"));
  EXPECT_THAT(mismatch([](Communicator& c, Memory& m) { c.send(m.in(4), 1, {"grad"}); },
                       [](Communicator& c, Memory& m) { c.recv(m.in(4), 0, {"loss"}); }),
              HasSubstr("unit 'loss'"));
}

TEST(Contract, NodesMustBeDisjointAndResultsTheSame) {
  const auto node_sum = [](Node own, Node result, int64_t leaves) {
    return [=](Communicator& c, Memory& m) {
      c.run(Communicator::all_reduce_nodes({{own, m.in(4)}}, {{result, m.out(4)}}, leaves));
    };
  };
  EXPECT_THAT(mismatch(node_sum({0, 0}, {1, 0}, 2), node_sum({0, 1}, {1, 0}, 3)),
              HasSubstr("tree of 3 leaves"));
  // Both contribute leaf 0, or name another sum: an error on both ranks, whatever its kind.
  for (const auto& [own, result] : {std::pair{Node{0, 0}, Node{1, 0}}, {Node{0, 1}, Node{0, 1}}}) {
    std::array<std::string, 2> texts;
    const auto run = [&, own = own, result = result](Communicator& comm) {
      Memory memory;
      texts[static_cast<size_t>(comm.rank())] = error_of([&] {
        if (comm.rank() == 0) {
          node_sum({0, 0}, {1, 0}, 2)(comm, memory);
        } else {
          node_sum(own, result, 2)(comm, memory);
        }
        comm.barrier();
      });
    };
    run_thread_ranks(2, run);
    for (const std::string& text : texts)
      EXPECT_THAT(text, HasSubstr("expected"));
  }
}

// Found when all are about to write to each other's memory: none must wait for the others' end. The
// nodes differ in the last of many, so that all are looking for them at the same time.
TEST(Contract, ResultsOfOtherNodesInOthersMemoryAreRefusedAtOnce) {
  constexpr double kTimeout = 30;
  constexpr int kNodes = 6000;
  const double start = clock_seconds();
  std::array<std::string, 2> texts;
  const auto body = [&](Communicator& comm) {
    std::array<float, 4> in{};
    std::vector<float> out(4 * kNodes);
    std::vector<Part> results;
    for (int i = 0; i < kNodes; ++i)
      results.push_back({{0, i}, {&out[static_cast<size_t>(4 * i)], 4, f32}});
    results.back().node.index += comm.rank();
    texts[static_cast<size_t>(comm.rank())] = error_of([&] {
      comm.run(Communicator::all_reduce_nodes({{{0, comm.rank()}, {in.data(), 4, f32}}},
                                              std::move(results), kNodes + 1));
    });
  };
  run_thread_ranks(2, body, {.communicator = {.timeout_seconds = kTimeout}});
  EXPECT_THAT(texts[0], HasSubstr("expected a result for the same nodes on every rank"));
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_LT(clock_seconds() - start, kTimeout) << "they waited for each other";
}

TEST(Contract, DifferencesWithinAGroupNameTheGroup) {
  std::array<std::string, 4> texts;
  run_thread_ranks(4, [&](Communicator& comm) {
    const auto group = comm.split(comm.rank() % 2, 0, "shard");
    Memory memory;
    texts[static_cast<size_t>(comm.rank())] =
        error_of([&] { group->all_reduce(memory.in(comm.rank() == 3 ? 7 : 6)); });
    comm.barrier();  // the world is whole
  });
  EXPECT_EQ(texts[0], "no error");
  EXPECT_EQ(texts[2], "no error");
  EXPECT_EQ(texts[1], texts[3]);
  EXPECT_THAT(texts[1],
              HasSubstr("on rank 1 (of the job: 3): all_reduce #0 of 'world/shard[1]', 7"));
}

TEST(Arguments, AreCheckedBeforeAnyRankIsAsked) {
  run_thread_ranks(4, [](Communicator& comm) {
    Memory m;
    const auto refused = [](const std::function<void()>& call, const std::string& text) {
      EXPECT_EQ(error_of(call), text);
    };
    refused([&] { comm.all_gather(m.in(2), m.out(6)); },
            "[all_gather] expected out of 8 elements (4 ranks × 2), got 6");
    refused([&] { comm.reduce_scatter(m.in(9), m.out(2)); },
            "[reduce_scatter] expected in of 8 elements (4 ranks × 2), got 9");
    refused(
        [&] {
          comm.all_gather(m.in(2), {m.integers.data(), 8, i32});
        },
        "[all_gather] expected in and out of one dtype, got i32 and f32");
    refused(
        [&] {
          comm.all_reduce({m.integers.data(), 8, i32}, ReduceOp::mean);
        },
        "[all_reduce] expected a floating dtype for a mean, got i32");
    refused(
        [&] {
          comm.all_reduce({m.a.data(), 8, boolean});
        },
        "[all_reduce] expected f32, f64, bf16, f16, i64, i32 or u8, got bool");
    refused(
        [&] {
          comm.all_reduce({nullptr, 8, f32});
        },
        "[all_reduce] expected memory for 8 elements, got none");
    refused([&] { comm.broadcast(m.in(2), 4); }, "[broadcast] expected a root out of 4, got 4");
    refused([&] { comm.send(m.in(2), comm.rank()); },
            concat({"[send] expected another rank out of 4, got ", comm.rank()}));
    refused([&] { comm.all_to_all(m.in(6), m.out(6)); },
            "[all_to_all] expected a piece of equal size for each of 4 ranks, got 6 elements");
    refused([&] { comm.all_to_all(m.in(8), m.in(8)); },
            "[all_to_all] expected in and out apart in memory, got overlapping ones");
    refused([&] { comm.reduce_scatter(m.in(8), m.in(8).part((comm.rank() * 2 + 2) % 8, 2)); },
            concat({"[reduce_scatter] expected in and out apart in memory, or one to be piece ",
                    comm.rank(), " of the other, got overlapping ones"}));
    refused([&] { comm.split(0, 0, ""); }, "[split] expected a label, got an empty one");
    refused(
        [&] {
          comm.run(Communicator::all_reduce_nodes({{{0, 0}, m.in(4)}}, {}, 0));
        },
        "[all_reduce] expected a tree of 1 to 2^31 - 1 leaves, got 0");
    comm.barrier();  // nothing of this broke anything
  });
}

}  // namespace
}  // namespace weft::dist
