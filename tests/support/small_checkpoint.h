// A small checkpoint for tests that damage it: two files, several dtypes, several blocks a tensor.
#pragma once

#include "dist/checkpoint.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/training_rank.h"

#include <fstream>
#include <iterator>
#include <string>

namespace weft::test {

struct Small : nn::Module {
  nn::Linear fc{3, 5};
  Tensor wide = full({4}, 0.5, {f64});
  Tensor count = zeros({2}, {i64});
  Small() {
    add("fc", fc);
    add_parameter("wide", wide);
    add_buffer("count", count);
  }
  Tensor forward(const Tensor& x) override { return fc(x) * weft::to(sum(wide), f32); }
};

// Two ranks' checkpoint with several blocks a tensor.
inline void save_small(const std::string& directory, std::initializer_list<int64_t> steps) {
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Small model;
    dist::Parallel parallel(model, comm, {.strategy = "zero3"});
    optim::Sgd optimizer(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory, .block_bytes = 16});
    checkpoints.add(optimizer);
    uint64_t at = 0;
    for (const int64_t step : steps) {
      parallel.begin_step(at++);
      for (const dist::Shard& shard : parallel.shards()) {
        parallel.begin_shard(shard);
        parallel.backward(sum(square(model(ones({2, 3})))));
      }
      optimizer.step();
      checkpoints.save({.step = step});
      checkpoints.wait();
    }
  });
}

inline std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace weft::test
