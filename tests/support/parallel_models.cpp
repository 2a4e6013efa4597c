#include "tests/support/parallel_models.h"

#include "core/random.h"
#include "ops/ops.h"
#include "optim/optim.h"

#include <gtest/gtest.h>

#include <mutex>

namespace weft::test {
namespace {

struct Mlp : nn::Module {
  nn::Linear fc1{20, 33}, fc2{33, 10};
  Mlp() {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
};

struct Cnn : nn::Module {
  nn::Conv2d conv1{1, 8, 3, {.padding = {1, 1}}};
  nn::BatchNorm2d norm1{8};
  nn::Conv2d conv2{8, 12, 3, {.padding = {1, 1}}};
  nn::BatchNorm2d norm2{12};
  nn::Linear fc{12 * 9, 10};
  Cnn() {
    add("conv1", conv1);
    add("norm1", norm1);
    add("conv2", conv2);
    add("norm2", norm2);
    add("fc", fc);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor a = max_pool2d(relu(norm1(conv1(x))), {2, 2});
    return fc(flatten(max_pool2d(relu(norm2(conv2(a))), {2, 2}), 1));
  }
};

struct Gpt : nn::Module {
  static constexpr int64_t kVocabulary = 17, kWidth = 16, kContext = 6;
  nn::Embedding tokens{kVocabulary, kWidth};
  nn::Embedding positions{kContext, kWidth};
  nn::TransformerBlock block0{kWidth, 2, {.causal = true, .dropout = 0.1}};
  nn::TransformerBlock block1{kWidth, 2, {.causal = true, .dropout = 0.1}};
  nn::LayerNorm norm{kWidth};
  nn::Linear head{kWidth, kVocabulary, false};
  Gpt() {
    head.weight = tokens.weight;
    add("tokens", tokens);
    add("positions", positions);
    add("block0", block0);
    add("block1", block1);
    add("norm", norm);
    add("head", head);
  }
  Tensor forward(const Tensor& ids) override {
    const Tensor h = tokens(ids) + positions(arange(kContext));
    return flatten(head(norm(block1(block0(h)))), 0, 1);
  }
};

struct Awkward : nn::Module {
  nn::Linear fc1{20, 7}, fc2{7, 10};
  Tensor frozen = ones({7});
  Tensor unused = ones({5});
  Tensor transposed = transpose(full({7, 7}, 0.3), 0, 1);
  Tensor one = ones({});
  Tensor none = ones({0});
  Tensor wide = full({10}, 0.5, {f64});
  Awkward() {
    transposed = transpose(contiguous(reshape(arange(0, 49, 1, {f32}) * 0.01, {7, 7})), 0, 1);
    add("fc1", fc1);
    add_parameter("frozen", frozen);
    add_parameter("unused", unused);
    add_parameter("transposed", transposed);
    add_parameter("one", one);
    add_parameter("none", none);
    add_parameter("wide", wide);
    add("fc2", fc2);
    frozen.set_requires_grad(false);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = matmul(relu(fc1(x)) * frozen, transposed) * one;
    return fc2(h) + weft::to(wide, f32);
  }
};

template <class M>
std::function<std::unique_ptr<nn::Module>()> maker() {
  return [] { return std::make_unique<M>(); };
}

Rows rows_of(const Shape& sample, int64_t classes, int64_t step, int64_t first, int64_t rows) {
  Shape shape{rows};
  int64_t size = 1;
  for (int dim = 0; dim < sample.dims(); ++dim) {
    shape.push_back(sample[dim]);
    size *= sample[dim];
  }
  const Tensor input = empty(shape);
  const Tensor target = empty({rows}, {i64});
  const RandomKey key{7, static_cast<uint64_t>(step)};
  fill_normal(key, static_cast<uint64_t>(first * size), input.data<float>(), rows * size);
  for (int64_t row = 0; row < rows; ++row) {
    target.data<int64_t>()[row] = static_cast<int64_t>(
        random_below({8, static_cast<uint64_t>(step)}, static_cast<uint64_t>(first + row),
                     static_cast<uint64_t>(classes)));
  }
  return {input, target};
}

}  // namespace

TestModel test_model(const std::string& name) {
  const auto images = [](const Shape& sample) {
    return [sample](int64_t step, int64_t first, int64_t rows) {
      return rows_of(sample, 10, step, first, rows);
    };
  };
  if (name == "mlp") return {maker<Mlp>(), images({20})};
  if (name == "cnn") return {maker<Cnn>(), images({1, 12, 12})};
  if (name == "awkward") return {maker<Awkward>(), images({20})};
  return {maker<Gpt>(), [](int64_t step, int64_t first, int64_t rows) {
            constexpr int64_t kIds = Gpt::kContext;
            const Tensor ids = empty({rows, kIds}, {i64});
            for (int64_t i = 0; i < rows * kIds; ++i) {
              ids.data<int64_t>()[i] = static_cast<int64_t>(
                  random_below({9, static_cast<uint64_t>(step)},
                               static_cast<uint64_t>(first * kIds + i), Gpt::kVocabulary));
            }
            return Rows{ids, flatten(ids, 0, 1)};
          }};
}

uint64_t digest_of(const nn::Module& model) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const auto& [name, tensor] : model.state_dict()) {
    const Tensor values = contiguous(tensor.detach());
    for (int64_t i = 0; i < values.bytes(); ++i)
      digest = (digest ^ static_cast<uint64_t>(values.raw()[i])) * 0x100000001b3;
  }
  return digest;
}

Trained train(const TestModel& test, const Run& run) {
  std::mutex mutex;
  std::vector<Trained> outcomes(static_cast<size_t>(run.ranks));
  const auto body = [&](dist::Communicator& comm) {
    const auto model = test.make();
    dist::ParallelOptions options;
    options.strategy = run.strategy;
    options.logical_shards = run.logical_shards;
    options.mean_over_shards = false;
    options.bucket_bytes = 1500;
    if (run.strategy == "fsdp") options.wrap.min_parameters = 300;
    if (run.change) run.change(options);
    dist::Parallel parallel(*model, comm, options);
    std::unique_ptr<optim::Optimizer> optimizer;
    if (run.optimizer == "adamw") {
      optimizer =
          std::make_unique<optim::AdamW>(parallel.parameters(), optim::AdamOptions{.lr = 0.01});
    } else if (run.optimizer == "lars") {
      optimizer = std::make_unique<optim::Lars>(
          parallel.parameters(),
          optim::LarsOptions{.lr = 1, .weight_decay = 1e-3, .trust = 0.02, .adapt_vectors = true});
    } else if (run.optimizer == "lamb_groups") {
      std::vector<NamedTensor> biases, others;
      const optim::Parameters parameters = parallel.parameters();
      for (const NamedTensor& named : parameters.list())
        (named.name.ends_with("bias") ? biases : others).push_back(named);
      const Ref<optim::Sharding>& sharding = parameters.sharding();
      optimizer =
          std::make_unique<optim::Lamb>(std::vector<optim::ParameterGroup<optim::LambOptions>>{
              {{biases, sharding}, {.lr = 0.01, .weight_decay = 0, .adapt_vectors = true}},
              {{others, sharding}, {.lr = 0.02}}});
    } else if (run.optimizer == "lamb") {
      optimizer =
          std::make_unique<optim::Lamb>(parallel.parameters(), optim::LambOptions{.lr = 0.02});
    } else {
      optimizer = std::make_unique<optim::Sgd>(parallel.parameters(),
                                               optim::SgdOptions{.lr = 0.05, .momentum = 0.9});
    }
    Trained outcome;
    for (int64_t step = 0; step < run.steps; ++step) {
      parallel.begin_step(static_cast<uint64_t>(step));
      for (const dist::Shard& shard : parallel.shards()) {
        parallel.begin_shard(shard);
        const Rows rows = test.rows(step, shard.first_row(kTestBatch), shard.rows(kTestBatch));
        const bool converts = options.parameter_dtype && is_floating(rows.input.dtype());
        const Tensor logits =
            (*model)(converts ? to(rows.input, *options.parameter_dtype) : rows.input);
        parallel.backward(cross_entropy(logits, rows.target, {.reduction = Reduction::sum}) *
                          (1.0 / kTestBatch));
      }
      if (run.clip > 0) optim::clip_grad_norm(parallel.parameters(), run.clip);
      optimizer->step();
      outcome.losses.push_back(parallel.loss());
    }
    parallel.with_full_parameters([&] { outcome.digest = digest_of(*model); });
    const std::lock_guard lock(mutex);
    outcomes[static_cast<size_t>(comm.rank())] = std::move(outcome);
  };
  dist::run_thread_ranks(run.ranks, body);
  for (const Trained& outcome : outcomes)
    EXPECT_EQ(outcome, outcomes.front());
  return outcomes.front();
}

}  // namespace weft::test
