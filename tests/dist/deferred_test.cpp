// Models built without memory: the same bits, and never the whole of them on one rank.
#include "nn/deferred.h"

#include "core/ledger.h"
#include "core/random.h"
#include "ops/ops.h"
#include "tests/support/parallel_models.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace weft::test {
namespace {

TestModel deferred(TestModel model) {
  model.make = [make = model.make] {
    const nn::Deferred scope;
    return make();
  };
  return model;
}

TEST(Deferred, MaterialisesToTheSameBits) {
  for (const char* name : {"mlp", "cnn", "gpt"}) {
    for (const DType dtype : {f32, bf16}) {
      manual_seed(3);
      const auto plain = test_model(name).make();
      const auto next = random_state().take();
      if (dtype != f32) plain->to(dtype);
      manual_seed(3);
      const auto later = deferred(test_model(name)).make();
      EXPECT_EQ(random_state().take().stream, next.stream);
      if (dtype != f32) later->to(dtype);
      for (const Tensor& parameter : later->parameters()) {
        EXPECT_TRUE(nn::is_deferred(parameter));
        EXPECT_TRUE(parameter.requires_grad());
      }
      manual_seed(99);  // whenever the values are made, the keys are those of construction
      nn::materialise(*later);
      EXPECT_EQ(digest_of(*later), digest_of(*plain)) << name;
      EXPECT_EQ(random_state().next_stream, 0u);
      for (const Tensor& parameter : later->parameters())
        EXPECT_FALSE(nn::is_deferred(parameter));
    }
  }
}

TEST(Deferred, EveryInitialiserIsReplayed) {
  const auto fill = [](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
    nn::init::orthogonal_(a, 1.5);
    nn::init::trunc_normal_(b, 0.1, 0.5);
    nn::init::kaiming_normal_(c);
    nn::init::xavier_uniform_(d);
    nn::init::constant_(d, 3);  // the last one counts
    nn::init::kaiming_uniform_(c, 0.2);
  };
  struct Net : nn::Module {
    nn::Linear a{7, 5, false}, b{5, 7, false}, c{6, 6, false}, d{2, 3, false};
    Net() {
      add("a", a);
      add("b", b);
      add("c", c);
      add("d", d);
    }
    Tensor forward(const Tensor& x) override { return x; }
  };
  manual_seed(4);
  Net plain;
  fill(plain.a.weight, plain.b.weight, plain.c.weight, plain.d.weight);
  manual_seed(4);
  const auto later = [&] {
    const nn::Deferred scope;
    auto net = std::make_unique<Net>();
    fill(net->a.weight, net->b.weight, net->c.weight, net->d.weight);
    return net;
  }();
  EXPECT_EQ(random_state().next_stream, 4u + 5u);
  nn::materialise(*later);
  EXPECT_EQ(digest_of(*later), digest_of(plain));
}

TEST(Deferred, TrainsToTheSameBitsOnEveryStrategy) {
  for (const char* name : {"cnn", "gpt"}) {
    const TestModel model = test_model(name);
    const Trained alone = train(model, {.strategy = "single", .steps = 3});
    for (const char* strategy : {"single", "ddp", "zero1", "zero2", "zero3", "fsdp"}) {
      for (const int ranks : {1, 2, 4}) {
        if (ranks > 1 && strategy == std::string("single")) continue;
        EXPECT_EQ(train(deferred(model), {.strategy = strategy, .ranks = ranks, .steps = 3}), alone)
            << name << " " << strategy << " on " << ranks;
      }
    }
  }
}

struct Tower : nn::Module {
  static constexpr int64_t kWidth = 64, kLayers = 8;
  nn::Sequential layers;
  Tower() {
    for (int64_t i = 0; i < kLayers; ++i)
      layers.add<nn::Linear>(kWidth, kWidth, false);
    add("layers", layers);
  }
  Tensor forward(const Tensor& x) override { return layers(x); }
};

// Most bytes that a rank holds while its part of a tower is made.
int64_t peak_of_building(bool defer, int ranks) {
  int64_t peak = 0;
  dist::run_thread_ranks(ranks, [&](dist::Communicator& comm) {
    std::unique_ptr<Tower> model;
    if (defer) {
      const nn::Deferred scope;
      model = std::make_unique<Tower>();
      EXPECT_EQ(current_ledger().peak_total(), 0);
    } else {
      model = std::make_unique<Tower>();
    }
    const dist::Parallel parallel(*model, comm, {.strategy = "zero3"});
    if (comm.rank() == 0) peak = current_ledger().peak_total();
  });
  return peak;
}

TEST(Deferred, NoRankEverHoldsTheWholeModel) {
  const int64_t unit = 4 * Tower::kWidth * Tower::kWidth;
  const int64_t whole = Tower::kLayers * unit;
  EXPECT_GE(peak_of_building(false, 4), whole);
  // The shards and gradients of shards that rest, and one unit at a time.
  EXPECT_EQ(peak_of_building(true, 4), std::max(whole / 4 + unit, 2 * whole / 4));
}

// Values that a state gives are taken when values are made, one parameter at a time.
TEST(Deferred, TakesGivenValues) {
  for (const char* strategy : {"single", "ddp", "zero2", "fsdp"}) {
    const int ranks = strategy == std::string("single") ? 1 : 3;
    const auto given = test_model("gpt").make();
    const std::string path =
        testing::TempDir() + "/weft_deferred_" + std::to_string(getpid()) + ".safetensors";
    given->save(path);
    dist::run_thread_ranks(ranks, [&](dist::Communicator& comm) {
      for (const bool from_file : {true, false}) {
        const auto model = deferred(test_model("gpt")).make();
        if (from_file) {
          model->load(path);
          EXPECT_EQ(current_ledger().current_total(), 0);
        } else {
          model->load_state_dict(given->state_dict());
        }
        dist::ParallelOptions options{.strategy = strategy};
        if (strategy == std::string("fsdp")) options.wrap.min_parameters = 300;
        dist::Parallel parallel(*model, comm, options);
        parallel.with_full_parameters([&] { EXPECT_EQ(digest_of(*model), digest_of(*given)); });
      }
    });
    std::filesystem::remove(path);
  }
}

TEST(Deferred, ReadingValuesThatAreNotThereIsAnError) {
  const nn::Deferred scope;
  nn::Linear linear(3, 4);
  EXPECT_EQ(linear.weight.shape(), (Shape{4, 3}));
  EXPECT_NE(error_of([&] { linear(ones({2, 3})); }).find("yet to be made"), std::string::npos);
}

}  // namespace
}  // namespace weft::test
