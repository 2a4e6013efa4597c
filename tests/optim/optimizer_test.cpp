// Optimizers against PyTorch's results, an independent double reference, and their own promises.
#include "autograd/grad_mode.h"
#include "core/parallel.h"
#include "core/random.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>

namespace weft {
namespace {

using test::error_of;
using Named = std::vector<NamedTensor>;

Tensor find(const Named& list, const std::string& name) {
  for (const auto& entry : list) {
    if (entry.name == name) return entry.tensor;
  }
  return {};
}

Tensor parameter(const Shape& shape, uint64_t seed, DType dtype = f32) {
  const Tensor tensor = to(test::normal(shape, seed), dtype);
  return tensor.set_requires_grad();
}

// ---- against PyTorch ----

const Named& golden() {
  static const Named list =
      load_safetensors(std::string(WEFT_TESTS_DIR) + "/golden/optim.safetensors");
  return list;
}

using Make = std::function<std::unique_ptr<optim::Optimizer>(const optim::Parameters&)>;

template <class O>
Make make(const typename O::Options& options) {
  return [options](const optim::Parameters& p) { return std::make_unique<O>(p, options); };
}

const std::vector<std::pair<std::string, Make>>& cases() {
  using optim::Adam;
  using optim::AdamW;
  using optim::Sgd;
  static const std::vector<std::pair<std::string, Make>> list = {
      {"sgd", make<Sgd>({.lr = 0.1})},
      {"sgd_decay", make<Sgd>({.lr = 0.1, .weight_decay = 0.05})},
      {"sgd_momentum", make<Sgd>({.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01})},
      {"sgd_dampening", make<Sgd>({.lr = 0.05, .momentum = 0.9, .dampening = 0.3})},
      {"sgd_nesterov",
       make<Sgd>({.lr = 0.05, .momentum = 0.8, .weight_decay = 0.01, .nesterov = true})},
      {"adam", make<Adam>({.lr = 0.02})},
      {"adam_decay",
       make<Adam>({.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1})},
      {"adamw", make<AdamW>({.lr = 0.02})},
      {"adamw_decay",
       make<AdamW>({.lr = 0.02, .beta1 = 0.7, .beta2 = 0.9, .eps = 1e-5, .weight_decay = 0.2})},
  };
  return list;
}

TEST(Optimizer, AgreesWithPyTorch) {
  const Tensor gradients = find(golden(), "gradients");
  const auto columns = gradients.size(1);
  for (const auto& [name, make_one] : cases()) {
    for (const DType dtype : {f64, f32}) {
      const Tensor p = to(find(golden(), "start"), dtype);
      const Tensor leaf = clone(p).set_requires_grad();
      const auto optimizer = make_one(Named{{"w", leaf}});
      for (int64_t step = 0; step < gradients.size(0); ++step) {
        leaf.set_grad(to(clone(alias(gradients, {columns}, {1}, step * columns)), dtype));
        optimizer->step();
      }
      const Tensor expected = find(golden(), name + "." + to_string(dtype));
      ASSERT_TRUE(expected.defined());
      test::expect_near(leaf, expected, dtype == f64 ? 1e-13 : 1e-6, name + " " + to_string(dtype));
    }
  }
}

// ---- against a reference in double, over many steps, layouts and sizes ----

struct ElementReference {
  std::vector<double> p, m, v;

  void adamw(const std::vector<double>& g, int t, double lr, double b1, double b2, double eps,
             double decay) {
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] -= lr * decay * p[i];
      m[i] = b1 * m[i] + (1 - b1) * g[i];
      v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(b1, t));
      const double variance = v[i] / (1 - std::pow(b2, t));
      p[i] -= lr * mean / (std::sqrt(variance) + eps);
    }
  }
};

TEST(Optimizer, AdamWFollowsTheAlgorithmOverHundredSteps) {
  std::vector<Tensor> tensors;
  std::vector<ElementReference> references;
  const std::vector<Shape> shapes = {{3}, {0}, {5000, 3}, {}, {2, 3, 5, 7}, {64, 65}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    Tensor tensor = to(test::normal(shapes[i], i + 1), f64);
    if (shapes[i].dims() == 4) tensor = channels_last(tensor);
    tensor.set_requires_grad();
    tensors.push_back(tensor);
    const auto values = tensor.to_vector<double>();
    references.push_back(
        {values, std::vector<double>(values.size()), std::vector<double>(values.size())});
  }
  optim::AdamW optimizer(
      tensors, {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-7, .weight_decay = 0.03});
  for (int step = 1; step <= 100; ++step) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor grad = test::normal(shapes[i], 1000 + static_cast<uint64_t>(step) * 10 + i);
      tensors[i].set_grad(grad);  // row-major also where the parameter is not
      references[i].adamw(grad.to_vector<double>(), step, 0.01, 0.8, 0.99, 1e-7, 0.03);
    }
    optimizer.step();
  }
  EXPECT_EQ(optimizer.steps(), 100);
  for (size_t i = 0; i < tensors.size(); ++i) {
    test::expect_near(tensors[i], from_values(references[i].p, shapes[i]), 1e-11,
                      to_string(shapes[i]));
  }
}

// Runs a model-like mix of parameters and returns all values.
std::vector<float> run_mixed(
    int threads,
    const std::function<std::unique_ptr<optim::Optimizer>(std::vector<Tensor>)>& make_one) {
  const int before = num_threads();
  set_num_threads(threads);
  std::vector<Tensor> tensors;
  for (const Shape& shape :
       {Shape{10007}, Shape{1}, Shape{0}, Shape{333, 77}, Shape{4096}, Shape{4097}}) {
    tensors.push_back(parameter(shape, tensors.size() + 1));
  }
  const auto optimizer = make_one(tensors);
  for (uint64_t step = 0; step < 3; ++step) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].set_grad(test::normal(tensors[i].shape(), 100 * step + i, f32));
    }
    optimizer->step();
  }
  set_num_threads(before);
  std::vector<float> values;
  for (const Tensor& tensor : tensors) {
    const auto own = tensor.to_vector<float>();
    values.insert(values.end(), own.begin(), own.end());
  }
  return values;
}

TEST(Optimizer, BitsDependNotOnThreads) {
  const auto sgd = [](std::vector<Tensor> t) {
    return std::make_unique<optim::Sgd>(
        t, optim::SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
  };
  const auto adam = [](std::vector<Tensor> t) { return std::make_unique<optim::AdamW>(t); };
  EXPECT_EQ(run_mixed(1, sgd), run_mixed(4, sgd));
  EXPECT_EQ(run_mixed(1, adam), run_mixed(3, adam));
}

TEST(Update, BitsDependNotOnWhereARunBegins) {
  const int64_t count = 203;
  const Tensor p = test::normal({count}, 1, f32);
  const Tensor g = test::normal({count}, 2, f32);
  const Tensor m = test::normal({count}, 3, f32);
  const Tensor v = to(test::normal({count}, 4, f32) * test::normal({count}, 4, f32), f32);
  const optim::AdamStep adam{.lr = 0.1,
                             .beta1 = 0.9,
                             .beta2 = 0.99,
                             .eps = 1e-8,
                             .weight_decay = 0.1,
                             .decoupled = true,
                             .correction1 = 0.1,
                             .correction2 = 0.01};
  const optim::SgdStep sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
  const auto run = [&](const std::vector<int64_t>& borders) {
    const Tensor a = clone(p), b = clone(m), c = clone(v);
    const Tensor d = clone(p), e = clone(m);
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      const int64_t at = borders[i], size = borders[i + 1] - at;
      optim::adam_update(adam, a.data<float>() + at, g.data<float>() + at, b.data<float>() + at,
                         c.data<float>() + at, size);
      optim::sgd_update(sgd, d.data<float>() + at, g.data<float>() + at, e.data<float>() + at,
                        size);
    }
    auto values = a.to_vector<float>();
    for (const Tensor& t : {b, c, d, e}) {
      const auto own = t.to_vector<float>();
      values.insert(values.end(), own.begin(), own.end());
    }
    return values;
  };
  const auto whole = run({0, count});
  EXPECT_EQ(run({0, 1, 2, 3, 10, 61, 100, 203}), whole);
  EXPECT_EQ(run({0, 97, 98, 101, 203}), whole);
}

// ---- 16-bit parameters ----

TEST(Optimizer, SixteenBitParametersKeepSmallSteps) {
  for (const DType dtype : {bf16, f16}) {
    const Tensor p = parameter({1000}, 1, dtype);
    const Tensor wide = to(p.detach(), f32).set_requires_grad();
    optim::Sgd narrow_one(std::vector{p}, {.lr = 1e-5, .momentum = 0.5});
    optim::Sgd wide_one(std::vector{wide}, {.lr = 1e-5, .momentum = 0.5});
    for (uint64_t step = 0; step < 50; ++step) {
      const Tensor g = to(test::normal({1000}, 50 + step, f32), dtype);
      p.set_grad(g);
      wide.set_grad(to(g, f32));
      narrow_one.step();
      wide_one.step();
    }
    // The master is exactly the f32 run; the parameter its rounding.
    EXPECT_EQ(find(narrow_one.state_dict(), "master.0").to_vector<float>(),
              wide.to_vector<float>());
    EXPECT_EQ(p.to_vector<float>(), to(wide.detach(), dtype).to_vector<float>());
    EXPECT_EQ(narrow_one.state_bytes(), 8 * 1000);
  }
}

TEST(Optimizer, MasterFollowsWhatIsWrittenIntoTheParameter) {
  const Tensor p = parameter({4}, 1, bf16);
  optim::Sgd optimizer(std::vector{p}, {.lr = 1e-4});
  p.set_grad(ones_like(p.detach()));
  optimizer.step();
  const auto before = find(optimizer.state_dict(), "master.0").to_vector<float>();
  {
    const NoGrad no_grad;
    p.data<BFloat16>()[2] = BFloat16(7.0f);
    p.bump_version();
  }
  p.set_grad(zeros_like(p.detach()));
  optimizer.step();
  const auto after = find(optimizer.state_dict(), "master.0").to_vector<float>();
  EXPECT_EQ(after[2], 7.0f);
  for (const size_t i : {0u, 1u, 3u})
    EXPECT_EQ(after[i], before[i]);
}

// ---- groups, skipping, memory ----

TEST(Optimizer, GroupsHaveTheirOwnOptions) {
  const Tensor a = parameter({3}, 1), b = parameter({3}, 1);
  optim::Sgd optimizer(
      {{std::vector{a}, {.lr = 0.1}}, {std::vector{b}, {.lr = 0.2, .momentum = 0.9}}});
  EXPECT_EQ(optimizer.groups(), 2);
  const auto start = a.to_vector<float>();
  a.set_grad(ones_like(a.detach()));
  b.set_grad(ones_like(b.detach()));
  optimizer.step();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_FLOAT_EQ(a.to_vector<float>()[i], start[i] - 0.1f);
    EXPECT_FLOAT_EQ(b.to_vector<float>()[i], start[i] - 0.2f);
  }
  optimizer.set_lr(1, 0.5);
  EXPECT_EQ(optimizer.lr(0), 0.1);
  EXPECT_EQ(optimizer.lr(1), 0.5);
  optimizer.set_lr(0.25);
  EXPECT_EQ(optimizer.lr(0), 0.25);
  EXPECT_NE(error_of([&] { optimizer.set_lr(2, 0.5); }).find("group"), std::string::npos);
}

TEST(Optimizer, ParametersWithoutGradientAreLeftAlone) {
  const Tensor a = parameter({3}, 1), frozen = parameter({3}, 2), unused = parameter({3}, 3);
  optim::Adam optimizer(std::vector{a, frozen, unused}, {.lr = 0.1});
  const auto before = frozen.to_vector<float>();
  a.set_grad(ones_like(a.detach()));
  frozen.set_grad(ones_like(frozen.detach()));
  frozen.set_requires_grad(false);
  const uint32_t version = a.version();
  optimizer.step();
  EXPECT_GT(a.version(), version);
  EXPECT_EQ(frozen.to_vector<float>(), before);
  EXPECT_EQ(optimizer.state_bytes(), 2 * 3 * 4);
  // A parameter that joins later starts its own bias correction: the first step of Adam is lr.
  unused.set_grad(ones_like(unused.detach()));
  const auto start = unused.to_vector<float>();
  optimizer.step();
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(unused.to_vector<float>()[i], start[i] - 0.1f, 1e-6);
}

TEST(Optimizer, StateIsChargedToItsCategory) {
  Ledger ledger;
  const LedgerScope scope(ledger);
  {
    const Tensor p = parameter({1000}, 1, bf16);
    optim::AdamW optimizer(std::vector{p});
    p.set_grad(ones_like(p.detach()));
    EXPECT_EQ(ledger.current(Category::optimizer), 0);
    optimizer.step();
    EXPECT_EQ(ledger.current(Category::optimizer), 12000);
  }
  EXPECT_EQ(ledger.current(Category::optimizer), 0);
}

TEST(Optimizer, RunningOutOfMemoryChangesNoParameter) {
  Ledger ledger;
  const LedgerScope scope(ledger);
  const Tensor a = parameter({1000}, 1), b = parameter({100000}, 2);
  a.set_grad(ones_like(a.detach()));
  b.set_grad(ones_like(b.detach()));
  const auto before = a.to_vector<float>();
  optim::Sgd optimizer(std::vector{a, b}, {.lr = 0.1, .momentum = 0.9});
  ledger.set_limit(ledger.current_total() + 100000);
  EXPECT_THROW(optimizer.step(), OutOfMemory);
  EXPECT_EQ(a.to_vector<float>(), before);
  EXPECT_EQ(optimizer.steps(), 0);
  ledger.set_limit(0);
  optimizer.step();
  EXPECT_FLOAT_EQ(a.to_vector<float>()[0], before[0] - 0.1f);
}

TEST(Optimizer, ZeroGradDropsOrFills) {
  const Tensor p = parameter({3}, 1);
  optim::Sgd optimizer(std::vector{p});
  p.set_grad(ones_like(p.detach()));
  const Tensor grad = p.grad();
  optimizer.zero_grad(false);
  EXPECT_EQ(grad.to_vector<float>(), std::vector<float>(3, 0));
  EXPECT_TRUE(p.grad().is_same(grad));
  optimizer.zero_grad();
  EXPECT_FALSE(p.grad().defined());
}

// ---- saving ----

TEST(Optimizer, StateSurvivesAFileAndContinuesBitForBit) {
  const auto path =
      (std::filesystem::temp_directory_path() / "weft_optimizer_test.safetensors").string();
  for (const auto& [name, make_one] : cases()) {
    for (const DType dtype : {f32, bf16}) {
      const auto steps = [&](optim::Optimizer& optimizer, const Tensor& p, uint64_t from,
                             uint64_t to_step) {
        for (uint64_t step = from; step < to_step; ++step) {
          p.set_grad(to(test::normal({50}, step + 7, f32), dtype));
          optimizer.step();
        }
      };
      const Tensor a = parameter({50}, 1, dtype);
      const auto whole = make_one(Named{{"w", a}});
      steps(*whole, a, 0, 10);

      const Tensor b = parameter({50}, 1, dtype);
      const auto first = make_one(Named{{"w", b}});
      steps(*first, b, 0, 4);
      save_safetensors(path, first->state_dict());
      const Tensor c = clone(b.detach()).set_requires_grad();
      const auto second = make_one(Named{{"w", c}});
      second->load_state_dict(load_safetensors(path));
      EXPECT_EQ(second->steps(), 4);
      steps(*second, c, 4, 10);
      EXPECT_EQ(c.to_vector<float>(), a.to_vector<float>()) << name << " " << to_string(dtype);
    }
  }
  std::filesystem::remove(path);
}

// Options may change between steps: what is saved then is what the next step would begin from.
TEST(Optimizer, StateOfOptionsThatHaveJustChangedLoads) {
  for (const bool momentum_first : {true, false}) {
    const Tensor w = parameter({3}, 1);
    const double before = momentum_first ? 0.9 : 0.0;
    const double after = momentum_first ? 0.0 : 0.9;
    optim::Sgd optimizer(Named{{"w", w}}, {.lr = 0.1, .momentum = before});
    w.set_grad(ones({3}));
    optimizer.step();
    optimizer.options().momentum = after;
    const auto state = optimizer.state_dict();
    optim::Sgd other(Named{{"w", w}}, {.lr = 0.1, .momentum = after});
    other.load_state_dict(state);
    EXPECT_EQ(other.state_dict().size(), state.size());
  }
  optim::Sgd optimizer(Named{{"w", parameter({3}, 1)}}, {.lr = 0.1});
  EXPECT_NE(error_of([&] {
              optimizer.load_state_dict(std::vector<NamedTensor>{{"step", Tensor()}});
            }).find("undefined: step"),
            std::string::npos);
}

TEST(Optimizer, LoadingNamesAllThatIsWrongAndChangesNothing) {
  const Tensor a = parameter({2}, 1), b = parameter({3}, 2);
  const auto step = [](optim::Optimizer& optimizer, std::initializer_list<Tensor> tensors) {
    for (const Tensor& t : tensors)
      t.set_grad(ones_like(t.detach()));
    optimizer.step();
  };
  optim::Sgd optimizer(Named{{"a", a}, {"b", b}}, {.lr = 0.1, .momentum = 0.9});
  step(optimizer, {a, b});
  const auto before = find(optimizer.state_dict(), "momentum.a").to_vector<float>();

  const Tensor other = parameter({3}, 1);
  optim::Sgd source(Named{{"a", other}, {"c", b}}, {.lr = 0.1, .momentum = 0.9});
  step(source, {other, b});
  step(source, {other, b});
  const std::string error = error_of([&] { optimizer.load_state_dict(source.state_dict()); });
  EXPECT_NE(error.find("momentum.a: expected f32[2], got f32[3]"), std::string::npos) << error;
  EXPECT_NE(error.find("missing: step.b"), std::string::npos) << error;
  EXPECT_NE(error.find("unexpected: step.c"), std::string::npos) << error;
  EXPECT_NE(error.find("unexpected: momentum.c"), std::string::npos) << error;
  EXPECT_EQ(find(optimizer.state_dict(), "momentum.a").to_vector<float>(), before);
  EXPECT_EQ(optimizer.steps(), 1);
}

TEST(Optimizer, ErrorsNameTheParameter) {
  const Tensor a = parameter({2}, 1);
  EXPECT_NE(error_of([&] {
              optim::Sgd(Named{{"fc.weight", a}, {"tied", a}});
            }).find("tied"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              optim::Sgd(Named{{"ids", arange(3)}});
            }).find("ids"),
            std::string::npos);
  EXPECT_NE(error_of([&] { optim::Sgd(Named{{"none", {}}}); }).find("none"), std::string::npos);
  EXPECT_NE(error_of([&] {
              optim::Sgd(Named{{"gaps", test::strided(test::leaf({2, 2}))}});
            }).find("gaps"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              optim::Sgd(Named{{"result", a * 2.0}});
            }).find("result"),
            std::string::npos);
  for (const optim::SgdOptions& bad :
       {optim::SgdOptions{.lr = -1}, optim::SgdOptions{.lr = NAN},
        optim::SgdOptions{.nesterov = true}, optim::SgdOptions{.momentum = -0.1},
        optim::SgdOptions{.weight_decay = -1},
        optim::SgdOptions{.momentum = 0.9, .dampening = 0.1, .nesterov = true}}) {
    EXPECT_NE(error_of([&] { optim::Sgd(std::vector{a}, bad); }).find("[sgd] expected"),
              std::string::npos);
  }
  for (const optim::AdamOptions& bad :
       {optim::AdamOptions{.beta1 = 1}, optim::AdamOptions{.beta2 = -0.1},
        optim::AdamOptions{.eps = -1}, optim::AdamOptions{.weight_decay = -1}}) {
    EXPECT_NE(error_of([&] { optim::AdamW(std::vector{a}, bad); }).find("[adamw] expected"),
              std::string::npos);
  }
}

TEST(Optimizer, TransposedParametersAreStepped) {
  const Tensor p = alias(test::normal({3, 4}, 1, f32), {4, 3}, {1, 4}).set_requires_grad();
  const auto before = p.to_vector<float>();
  const Tensor g = test::normal({4, 3}, 2, f32);
  p.set_grad(g);
  optim::Sgd(std::vector{p}, {.lr = 0.5}).step();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_FLOAT_EQ(p.to_vector<float>()[i], before[i] - 0.5f * g.to_vector<float>()[i]);
  }
}

}  // namespace
}  // namespace weft
