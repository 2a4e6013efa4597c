// Mixed precision and offload: 16-bit parameters to compute with, f32 masters at rest.
#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "core/ledger.h"
#include "core/random.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/parallel_models.h"
#include "tests/support/tensors.h"

#include <gmock/gmock.h>

#include <cstring>
#include <mutex>

namespace weft::test {
namespace {

using testing::HasSubstr;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(contiguous(a.detach()).raw(), contiguous(b.detach()).raw(),
                     static_cast<size_t>(a.bytes())) == 0;
}

void use_bf16(dist::ParallelOptions& options) {
  options.parameter_dtype = bf16;
}

dist::ParallelOptions in_bf16(const std::string& strategy) {
  dist::ParallelOptions options;
  options.strategy = strategy;
  options.parameter_dtype = bf16;
  return options;
}

class MixedPrecision : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, MixedPrecision, testing::Values("mlp", "cnn", "gpt", "awkward"),
                         [](const auto& row) { return std::string(row.param); });

TEST_P(MixedPrecision, GivesTheSameBitsOnEveryStrategyAndNumberOfRanks) {
  const TestModel model = test_model(GetParam());
  const Trained alone = train(model, {.strategy = "single", .steps = 8, .change = use_bf16});
  const Trained in_f32 = train(model, {.strategy = "single", .steps = 8});
  EXPECT_NE(alone.digest, in_f32.digest);
  for (size_t step = 0; step < 8; ++step)
    EXPECT_NEAR(alone.losses[step], in_f32.losses[step], 0.05) << step;
  for (const char* strategy : kStrategies) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      EXPECT_EQ(
          train(model, {.strategy = strategy, .ranks = ranks, .steps = 8, .change = use_bf16}),
          alone)
          << strategy << " on " << ranks << " ranks";
    }
  }
}

TEST_P(MixedPrecision, GivesTheSameBitsWithEveryChoice) {
  const TestModel model = test_model(GetParam());
  const auto f32_sums = [](dist::ParallelOptions& options) {
    options.parameter_dtype = bf16;
    options.reduce_dtype = f32;
  };
  const auto half = [](dist::ParallelOptions& options) {
    options.parameter_dtype = f16;
    options.buffer_dtype = bf16;
  };
  const std::function<void(dist::ParallelOptions&)> choices[] = {use_bf16, f32_sums, half};
  std::vector<uint64_t> digests;
  for (const auto& choice : choices) {
    const Trained alone = train(model, {.strategy = "single", .steps = 5, .change = choice});
    digests.push_back(alone.digest);
    const auto check = [&](const char* strategy, int ranks, auto change) {
      const auto both = [&](dist::ParallelOptions& options) {
        choice(options);
        change(options);
      };
      EXPECT_EQ(train(model, {.strategy = strategy, .ranks = ranks, .steps = 5, .change = both}),
                alone)
          << strategy << " on " << ranks << ", choice " << digests.size();
    };
    for (const char* strategy : kStrategies)
      check(strategy, 3, [](auto&) {});
    for (const char* strategy : {"zero1", "zero2", "fsdp"}) {
      check(strategy, 4, [](auto& options) { options.shard_ranks = 2; });
      check(strategy, 8, [](auto& options) { options.shard_ranks = 4; });
      check(strategy, 2, [](auto& options) { options.shard_ranks = 1; });
    }
    check("zero2", 2, [](auto& options) { options.reduce_every_shard = false; });
    check("fsdp", 2, [](auto& options) { options.reshard_after_forward = false; });
  }
  EXPECT_NE(digests[0], digests[1]);
  EXPECT_NE(digests[0], digests[2]);
}

// Norms of whole parameters are those of the masters.
TEST(MixedPrecisionSteps, ScaledByNorms) {
  const TestModel model = test_model("mlp");
  const Trained alone =
      train(model,
            {.strategy = "single", .steps = 6, .clip = 0, .optimizer = "lamb", .change = use_bf16});
  for (const char* strategy : kStrategies) {
    EXPECT_EQ(train(model, {.strategy = strategy,
                            .ranks = 4,
                            .steps = 6,
                            .clip = 0,
                            .optimizer = "lamb",
                            .change = use_bf16}),
              alone)
        << strategy;
  }
}

// An optimizer that keeps masters of 16-bit parameters by itself does the same arithmetic.
TEST(MixedPrecisionSteps, AreThoseOfAnOptimizerWithMasters) {
  dist::run_thread_ranks(1, [](dist::Communicator& comm) {
    manual_seed(11);
    Wide reference;
    reference.to(bf16);
    Wide model;
    {
      const NoGrad no_grad;
      copy_(model.fc1.weight, reference.fc1.weight);
      copy_(model.fc2.weight, reference.fc2.weight);
    }
    optim::AdamW with_masters(reference, {.lr = 0.01});
    dist::Parallel parallel(model, comm, in_bf16("fsdp"));
    optim::AdamW optimizer(parallel.parameters(), {.lr = 0.01});
    for (uint64_t step = 0; step < 4; ++step) {
      const Tensor input = to(normal({4, 64}, step, f32), bf16);
      with_masters.zero_grad();
      backward(sum(square(reference(input))));
      with_masters.step();
      backward(sum(square(model(input))));
      optimizer.step();
      EXPECT_TRUE(same_bits(model.fc1.weight, reference.fc1.weight));
      EXPECT_TRUE(same_bits(model.fc2.weight, reference.fc2.weight));
    }
    parallel.with_full_parameters([&] {
      for (const auto& [name, tensor] : with_masters.state_dict()) {
        if (!name.starts_with("master.")) continue;
        const Tensor& own = name == "master.fc1.weight" ? model.fc1.weight : model.fc2.weight;
        EXPECT_TRUE(same_bits(tensor, own)) << name;
      }
    });
  });
}

TEST(MixedPrecisionState, IsOfTheDtypesAskedFor) {
  for (const char* strategy : kStrategies) {
    dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
      Wide model;
      dist::Parallel parallel(model, comm, in_bf16(strategy));
      EXPECT_EQ(model.fc1.weight.dtype(), bf16);
      const optim::Parameters parts = parallel.parameters();
      for (const auto& [name, part] : parts.list()) {
        EXPECT_EQ(part.dtype(), f32) << name;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(part.raw()) % 64, 0U) << name;
      }
      backward(sum(square(model(to(ones({2, 64}), bf16)))));
      optim::Sgd optimizer(parallel.parameters(), {.lr = 1e-9});
      parallel.finish_gradients();
      for (const auto& [name, part] : parts.list())
        EXPECT_EQ(part.grad().dtype(), f32) << name;
      optimizer.step();
      // Values that 16 bits cannot hold stay what they are.
      parallel.with_full_parameters(
          [&] {
            EXPECT_EQ(model.fc1.weight.dtype(), f32);
            const NoGrad no_grad;
            copy_(model.fc1.weight, full({128, 64}, 1.0001));
          },
          true);
      EXPECT_EQ(model.fc1.weight.dtype(), bf16);
      EXPECT_EQ(model.fc1.weight.shape(), Shape({128, 64}));
      parallel.with_full_parameters(
          [&] { EXPECT_FLOAT_EQ(model.fc1.weight.data<float>()[8191], 1.0001F); });
      if (parallel.plan().parameters == dist::Rest::replicated) {
        EXPECT_EQ(to(model.fc1.weight, f32).data<float>()[8191], 1.0F);
      }
    });
  }
}

struct MixedReading {
  int64_t parameters, gradients, optimizer;
  dist::Parallel::StateBytes stated;
  int64_t optimizer_stated;
  std::array<dist::Recorder::Total, dist::kCollectives> totals;
  int64_t sent(dist::Collective collective) const {
    return totals[static_cast<size_t>(collective)].sent_bytes;
  }
};

MixedReading measure_mixed(const std::string& strategy, int ranks, std::optional<DType> reduce,
                           bool uneven = false) {
  MixedReading reading{};
  std::mutex mutex;
  dist::run_thread_ranks(ranks, [&](dist::Communicator& comm) {
    std::unique_ptr<nn::Module> model;
    if (uneven) {
      model = std::make_unique<nn::Linear>(64, 67);
    } else {
      model = std::make_unique<Wide>();
    }
    dist::ParallelOptions options = in_bf16(strategy);
    options.reduce_dtype = reduce;
    if (strategy == "fsdp" && !uneven) options.wrap.names = {"fc1", "fc2"};
    dist::Parallel parallel(*model, comm, options);
    optim::AdamW optimizer(parallel.parameters());
    const auto step = [&] {
      backward(sum(square((*model)(to(normal({4, 64}, 3, f32), bf16)))));
      optimizer.step();
    };
    step();
    comm.barrier();
    comm.recorder().reset_totals();
    step();
    const std::lock_guard lock(mutex);
    if (comm.rank() != 0) return;
    const Ledger& ledger = current_ledger();
    reading = {ledger.current(Category::parameters),
               ledger.current(Category::gradients),
               ledger.current(Category::optimizer),
               parallel.state_bytes(),
               optimizer.state_bytes(),
               comm.recorder().totals()};
  });
  return reading;
}

// 2Ψ of parameters, 2Ψ of gradients (or 4Ψ of sums beside those that land), 4Ψ of masters and 8Ψ of
// AdamW's averages, each divided where it rests sharded.
TEST(MixedPrecisionState, TakesWhatTheFormulaSays) {
  for (const int ranks : {1, 2, 4}) {
    for (const bool wide_sums : {false, true}) {
      const auto expect = [&](const char* strategy, int64_t p, int64_t g, int64_t sums, int64_t o) {
        SCOPED_TRACE(concat({strategy, " on ", ranks, wide_sums ? ", f32 sums" : ""}));
        const MixedReading reading =
            measure_mixed(strategy, ranks, wide_sums ? std::optional(f32) : std::nullopt);
        const int64_t gradients = wide_sums ? g + sums : g > 0 ? g : sums / 2;
        EXPECT_EQ(reading.parameters, p);
        EXPECT_EQ(reading.gradients, gradients);
        EXPECT_EQ(reading.optimizer, 3 * o);
        EXPECT_EQ(reading.stated.parameters, p);
        EXPECT_EQ(reading.stated.gradients, gradients);
        EXPECT_EQ(reading.stated.masters, o);
        EXPECT_EQ(reading.stated.padding, 0);
        EXPECT_EQ(reading.optimizer_stated, 2 * o);
      };
      const int64_t whole = 2 * kWidePsi;
      const int64_t share = whole / ranks;
      const int64_t landing = ranks == 1 ? whole : 0;  // a rank alone sums where gradients land
      expect("ddp", whole, whole, 2 * whole, 2 * whole);
      expect("zero1", whole, whole, 2 * share, 2 * share);
      expect("zero2", whole, landing, 2 * share, 2 * share);
      expect("zero3", share, landing, 2 * share, 2 * share);
      expect("fsdp", share, landing, 2 * share, 2 * share);
    }
  }
}

TEST(MixedPrecisionState, StatesItsPadding) {
  const int64_t psi = 64 * 67 + 67;
  for (const char* strategy : kStrategies) {
    const MixedReading reading = measure_mixed(strategy, 4, {}, true);
    SCOPED_TRACE(strategy);
    EXPECT_EQ(reading.parameters, reading.stated.parameters);
    EXPECT_EQ(reading.gradients, reading.stated.gradients);
    const int64_t held =
        reading.stated.parameters + reading.stated.gradients + reading.stated.masters;
    const bool whole_p = reading.stated.parameters > psi;
    const bool whole_g = reading.stated.gradients > psi;
    const bool whole_m = reading.stated.masters > 2 * psi;
    // In quarters of an element's byte.
    const int64_t used =
        psi * (2 * (whole_p ? 4 : 1) + 2 * (whole_g ? 4 : 1) + 4 * (whole_m ? 4 : 1));
    EXPECT_EQ(reading.stated.padding, (4 * held - used) / 4);
    EXPECT_GT(reading.stated.padding, 0);
  }
}

TEST(MixedPrecisionTraffic, IsHalfOfThatInF32) {
  using enum dist::Collective;
  const int ranks = 4;
  const int64_t once = 2 * kWidePsi * (ranks - 1) / ranks;
  const int64_t facts = 2 * (ranks - 1) * (ranks + 3) * 8 / ranks;
  EXPECT_EQ(measure_mixed("ddp", ranks, {}).sent(all_reduce), 2 * once + facts);
  for (const char* strategy : {"zero1", "zero2"}) {
    EXPECT_EQ(measure_mixed(strategy, ranks, {}).sent(reduce_scatter), once) << strategy;
    EXPECT_EQ(measure_mixed(strategy, ranks, {}).sent(all_gather), once) << strategy;
  }
  for (const char* strategy : {"zero3", "fsdp"}) {
    EXPECT_EQ(measure_mixed(strategy, ranks, {}).sent(reduce_scatter), once) << strategy;
    EXPECT_EQ(measure_mixed(strategy, ranks, {}).sent(all_gather), 2 * once) << strategy;
  }
}

TEST(MixedPrecisionBuffers, AreOfTheirDtype) {
  for (const char* strategy : kStrategies) {
    dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
      nn::BatchNorm2d model(3);
      dist::ParallelOptions options;
      options.strategy = strategy;
      options.buffer_dtype = f64;
      const dist::Parallel parallel(model, comm, options);
      EXPECT_EQ(model.running_var.dtype(), f64);
      EXPECT_EQ(model.running_var.to_vector<double>(), std::vector<double>(3, 1.0));
      EXPECT_EQ(model.num_batches_tracked.dtype(), i64);
      EXPECT_EQ(model.weight.dtype(), f32);
    });
  }
}

std::string refusal(int ranks, const std::string& strategy,
                    const std::function<void(dist::ParallelOptions&)>& change) {
  return error_of([&] {
    dist::run_thread_ranks(ranks, [&](dist::Communicator& comm) {
      Wide model;
      dist::ParallelOptions options;
      options.strategy = strategy;
      change(options);
      const dist::Parallel parallel(model, comm, options);
    });
  });
}

TEST(MixedPrecisionOptions, RefuseWhatCannotBe) {
  for (const DType dtype : {f32, i32}) {
    EXPECT_THAT(refusal(1, "ddp", [&](auto& options) { options.parameter_dtype = dtype; }),
                HasSubstr("expected a parameter_dtype of bf16 or f16, got"));
  }
  EXPECT_THAT(refusal(2, "fsdp", [](auto& options) { options.reduce_dtype = bf16; }),
              HasSubstr("together with parameter_dtype"));
  const auto other = [](dist::ParallelOptions& options) {
    options.parameter_dtype = bf16;
    options.reduce_dtype = f16;
  };
  EXPECT_THAT(refusal(2, "zero1", other),
              HasSubstr("expected a reduce_dtype of f32 or bf16, got f16"));
  EXPECT_THAT(refusal(2, "ddp", [](auto& options) { options.buffer_dtype = i64; }),
              HasSubstr("expected a floating buffer_dtype"));
}

TEST(Offload, ToTheProcessorGivesTheSameBits) {
  for (const char* name : {"cnn", "gpt"}) {
    const TestModel model = test_model(name);
    const Trained alone = train(model, {.strategy = "single", .steps = 4});
    for (const char* strategy : {"zero3", "fsdp"}) {
      for (const int ranks : {1, 3}) {
        const auto offload = [](dist::ParallelOptions& options) { options.offload = cpu; };
        EXPECT_EQ(
            train(model, {.strategy = strategy, .ranks = ranks, .steps = 4, .change = offload}),
            alone)
            << name << " " << strategy << " on " << ranks;
      }
    }
  }
}

TEST(Offload, RefusesWhatCannotBe) {
  for (const char* strategy : {"single", "ddp", "zero1", "zero2"}) {
    EXPECT_THAT(refusal(1, strategy, [](auto& options) { options.offload = cpu; }),
                HasSubstr("expected offload for a strategy that shards parameters"));
  }
  EXPECT_THAT(refusal(2, "fsdp",
                      [](auto& options) {
                        options.offload = Device{DeviceKind::cuda, 0};
                      }),
              HasSubstr("expected offload to cpu, got cuda:0"));
}

}  // namespace
}  // namespace weft::test
