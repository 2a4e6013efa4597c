// Small models, and a training run on them that gives what must not depend on strategy or ranks.
#pragma once

#include "dist/parallel.h"
#include "dist/thread_ranks.h"
#include "nn/nn.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace weft::test {

// Input and target of `rows` rows from row `first` on, the same whoever asks.
struct Rows {
  Tensor input;
  Tensor target;
};

struct TestModel {
  std::function<std::unique_ptr<nn::Module>()> make;
  std::function<Rows(int64_t step, int64_t first, int64_t rows)> rows;
};

// "mlp"; "cnn": convolutions with BatchNorm; "gpt": transformer blocks, with the head tied to the
// embedding and dropout; "awkward": a frozen, an unused, a transposed, a one-element and an empty
// parameter, of f32 and f64.
TestModel test_model(const std::string& name);

inline constexpr const char* kStrategies[] = {"ddp", "zero1", "zero2", "zero3", "fsdp"};
inline constexpr int64_t kTestBatch = 16;  // rows of a step, over all ranks

// Of sizes that 1, 2, 4 and 8 ranks divide into whole alignments: no padding.
struct Wide : nn::Module {
  nn::Linear fc1{64, 128, false}, fc2{128, 64, false};
  Wide() {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
};
inline constexpr int64_t kWidePsi = 2 * 64 * 128;  // its parameters

struct Run {
  std::string strategy = "ddp";
  int ranks = 1;
  int64_t logical_shards = 8;
  int64_t steps = 20;
  double clip = 0.5;
  std::string optimizer = "adamw";  // or sgd, lars, lamb; "lamb_groups": biases on their own
  std::function<void(dist::ParallelOptions&)> change = {};
};

struct Trained {
  uint64_t digest = 0;  // of all parameters and buffers
  std::vector<double> losses;
  bool operator==(const Trained&) const = default;
};

// Trains on thread ranks; the outcome of rank 0, after a check that all ranks have the same.
Trained train(const TestModel& model, const Run& run);

uint64_t digest_of(const nn::Module& model);

}  // namespace weft::test
