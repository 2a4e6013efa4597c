// Module: registry, modes, state, hooks, conversion, summary.
#include "nn/module.h"

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "nn/models/mnist.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace weft {
namespace {

using test::error_of;
using Names = std::vector<std::string>;

Names names_of(const std::vector<NamedTensor>& list) {
  Names names;
  for (const auto& entry : list)
    names.push_back(entry.name);
  return names;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Block : nn::Module {
  nn::Linear fc{4, 4};
  nn::BatchNorm1d norm{4};
  Block() {
    add("fc", fc);
    add("norm", norm);
  }
  Tensor forward(const Tensor& x) override { return norm(fc(x)); }
};

struct Net : nn::Module {
  Tensor scale = ones({4});
  Block block;
  nn::Dropout drop{0.5};
  nn::Linear head{4, 2, false};
  Net() {
    add("block", block);
    add("drop", drop);
    add("head", head);
    add_parameter("scale", scale);
  }
  Tensor forward(const Tensor& x) override { return head(drop(block(x * scale))); }
};

// A table and a head that are one tensor.
struct Tied : nn::Module {
  nn::Embedding table{7, 3};
  nn::Linear head{3, 7};
  Tied() {
    add("table", table);
    add("head", head);
    head.weight = table.weight;
  }
  Tensor forward(const Tensor& ids) override { return head(table(ids)); }
};

// ---- registry ----

TEST(Module, ListsOwnBeforePartsInOrder) {
  const Net net;
  EXPECT_EQ(names_of(net.named_parameters()),
            (Names{"scale", "block.fc.weight", "block.fc.bias", "block.norm.weight",
                   "block.norm.bias", "head.weight"}));
  EXPECT_EQ(names_of(net.named_buffers()),
            (Names{"block.norm.running_mean", "block.norm.running_var",
                   "block.norm.num_batches_tracked"}));
  EXPECT_EQ(net.parameters().size(), 6u);
  EXPECT_EQ(net.parameter_count(), 4 + 16 + 4 + 4 + 4 + 8);
  for (const auto& [name, tensor] : net.named_parameters())
    EXPECT_TRUE(tensor.requires_grad()) << name;
  for (const auto& [name, tensor] : net.named_buffers())
    EXPECT_FALSE(tensor.requires_grad()) << name;
}

TEST(Module, NamesModules) {
  Net net;
  Names names;
  for (const auto& [name, module] : net.named_modules())
    names.push_back(name + ":" + module->type());
  EXPECT_EQ(names, (Names{":Net", "block:Block", "block.fc:Linear", "block.norm:BatchNorm1d",
                          "drop:Dropout", "head:Linear"}));
  EXPECT_EQ(net.parts().size(), 3u);
}

TEST(Module, RefusesBadNames) {
  Net net;
  nn::Linear part(1, 1);
  Tensor tensor = ones({1});
  EXPECT_TRUE(contains(error_of([&] { net.add("", part); }), "without dots"));
  EXPECT_TRUE(contains(error_of([&] { net.add("a.b", part); }), "a.b"));
  EXPECT_TRUE(contains(error_of([&] { net.add("head", part); }), "\"head\" again"));
  EXPECT_TRUE(contains(error_of([&] { net.add_parameter("block", tensor); }), "\"block\" again"));
  EXPECT_TRUE(contains(error_of([&] { net.add_buffer("scale", tensor); }), "\"scale\" again"));
  EXPECT_TRUE(contains(error_of([&] { net.block.add("up", net); }), "does not contain"));
  EXPECT_TRUE(contains(error_of([&] { net.add("me", net); }), "does not contain"));
  Tensor result = net.scale * 2.0;
  EXPECT_TRUE(contains(error_of([&] { net.add_parameter("result", result); }), "leaf"));
}

TEST(Module, TiedParametersComeOnce) {
  Tied model;
  EXPECT_EQ(names_of(model.named_parameters()), (Names{"table.weight", "head.bias"}));
  EXPECT_EQ(names_of(model.state_dict()), (Names{"table.weight", "head.bias"}));
  ASSERT_EQ(model.aliases().size(), 1u);
  EXPECT_EQ(model.aliases()[0], std::pair(std::string("head.weight"), std::string("table.weight")));
  EXPECT_EQ(model.parameter_count(), 21 + 7);
  // Both uses add to one gradient.
  backward(sum(model(from_values(std::vector<int64_t>{1, 2}))));
  EXPECT_TRUE(model.head.weight.grad().is_same(model.table.weight.grad()));
}

TEST(Module, ParametersAreChargedToTheirCategory) {
  Ledger ledger;
  const LedgerScope scope(ledger);
  {
    const Net net;
    EXPECT_EQ(ledger.current(Category::parameters), 4 * net.parameter_count() + 2 * 4 * 4 + 8);
    EXPECT_EQ(ledger.current(Category::activations), 0);
  }
  EXPECT_EQ(ledger.current_total(), 0);
}

// ---- modes ----

TEST(Module, TrainAndEvalReachAllParts) {
  Net net;
  EXPECT_TRUE(net.block.norm.training());
  net.eval();
  for (const auto& [name, module] : net.named_modules())
    EXPECT_FALSE(module->training()) << name;
  net.train();
  for (const auto& [name, module] : net.named_modules())
    EXPECT_TRUE(module->training()) << name;
}

TEST(Module, ZeroGrad) {
  Net net;
  net.scale.set_grad(ones({4}));
  const Tensor grad = net.scale.grad();
  net.zero_grad(false);
  EXPECT_EQ(grad.to_vector<float>(), std::vector<float>(4, 0));
  net.zero_grad();
  EXPECT_FALSE(net.scale.grad().defined());
}

TEST(Module, ToConvertsInPlace) {
  Tied tied;
  const Tensor handle = tied.table.weight;
  tied.table.weight.set_grad(ones({7, 3}));
  optim::Sgd optimizer(tied, {.lr = 0.5});
  const auto before = handle.to_vector<float>();
  const uint32_t version = handle.version();
  tied.to(f64);
  EXPECT_EQ(handle.dtype(), f64);
  EXPECT_TRUE(tied.head.weight.is_same(handle));
  EXPECT_EQ(handle.grad().dtype(), f64);
  EXPECT_EQ(handle.to_vector<float>(), before);
  EXPECT_GT(handle.version(), version);
  EXPECT_EQ(handle.storage()->category(), Category::parameters);
  optimizer.step();
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_FLOAT_EQ(handle.to_vector<float>()[i], before[i] - 0.5f);

  Net net;
  net.to(bf16);
  EXPECT_EQ(net.block.fc.weight.dtype(), bf16);
  EXPECT_EQ(net.block.norm.running_mean.dtype(), f32);
  net.to(f64, true);
  EXPECT_EQ(net.block.norm.running_mean.dtype(), f64);
  EXPECT_EQ(net.block.norm.num_batches_tracked.dtype(), i64);
  EXPECT_TRUE(contains(error_of([&] { net.to(i64); }), "floating"));
}

TEST(Module, ToKeepsOptimizerStateUsable) {
  nn::Linear layer(3, 3);
  optim::AdamW optimizer(layer, {.lr = 0.1});
  for (const DType dtype : {f32, bf16, f64, f32}) {
    layer.to(dtype);
    const auto before = layer.weight.to_vector<double>();
    layer.weight.set_grad(ones_like(layer.weight.detach()));
    optimizer.step();
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_NEAR(layer.weight.to_vector<double>()[i], before[i] - 0.1, 0.02);
  }
}

// ---- state ----

class State : public testing::Test {
 protected:
  // The process id keeps tests that run side by side apart.
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("weft_module_test_" + std::to_string(getpid())))
          .string();
  void TearDown() override { std::filesystem::remove(path_); }
};

TEST_F(State, RoundTripThroughAFile) {
  Net a, b;
  a(test::normal({8, 4}, 1, f32));  // moves the running statistics
  a.save(path_);
  b.load(path_);
  const auto from = a.state_dict(), to = b.state_dict();
  ASSERT_EQ(names_of(from), names_of(to));
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].tensor.to_vector<double>(), to[i].tensor.to_vector<double>()) << from[i].name;
    EXPECT_FALSE(from[i].tensor.storage() == to[i].tensor.storage());
  }
  EXPECT_EQ(b.block.norm.num_batches_tracked.item_int(), 1);
  a.eval();
  b.eval();
  const Tensor x = test::normal({3, 4}, 2, f32);
  EXPECT_EQ(a(x).to_vector<float>(), b(x).to_vector<float>());
}

TEST_F(State, LoadNamesAllThatIsWrongAndChangesNothing) {
  Net net;
  auto state = net.state_dict();
  for (auto& entry : state)
    entry.tensor = full_like(entry.tensor, 5);
  state[0].name = "skale";                     // missing and unexpected
  state[1].tensor = ones({4, 5});              // shape
  state[2].tensor = to(state[2].tensor, f64);  // dtype
  const auto before = net.head.weight.to_vector<float>();
  for (const bool strict : {true, false}) {
    const std::string error = error_of([&] { net.load_state_dict(state, strict); });
    EXPECT_EQ(contains(error, "missing: scale"), strict) << error;
    EXPECT_EQ(contains(error, "unexpected: skale"), strict) << error;
    EXPECT_TRUE(contains(error, "block.fc.weight: expected f32[4, 4], got f32[4, 5]")) << error;
    EXPECT_TRUE(contains(error, "block.fc.bias: expected f32[4], got f64[4]")) << error;
    EXPECT_FALSE(contains(error, "missing: block")) << error;
    EXPECT_TRUE(contains(error, "the state of Net")) << error;
    EXPECT_EQ(net.head.weight.to_vector<float>(), before);
  }
  state.erase(state.begin() + 1, state.begin() + 3);
  net.load_state_dict(state, false);
  EXPECT_EQ(net.head.weight.to_vector<float>(), std::vector<float>(8, 5));
  EXPECT_EQ(net.scale.to_vector<float>(), std::vector<float>(4, 1));
  state.push_back(state.back());
  EXPECT_TRUE(contains(error_of([&] { net.load_state_dict(state, false); }), "twice: "));
}

TEST_F(State, TiedTensorsLoadByAnyOfTheirNames) {
  Tied model;
  const Tensor values = test::normal({7, 3}, 5, f32);
  const Tensor bias = zeros({7});
  const Tensor handle = model.table.weight;
  for (const Names& names :
       {Names{"table.weight"}, Names{"head.weight"}, Names{"table.weight", "head.weight"}}) {
    {
      const NoGrad no_grad;
      zero_(handle);
    }
    std::vector<NamedTensor> state = {{"head.bias", bias}};
    for (const auto& name : names)
      state.push_back({name, clone(values)});
    model.load_state_dict(state);
    EXPECT_EQ(handle.to_vector<float>(), values.to_vector<float>());
    EXPECT_TRUE(model.head.weight.is_same(handle));
  }
  const std::vector<NamedTensor> differing = {
      {"head.bias", bias}, {"table.weight", values}, {"head.weight", values * 2.0}};
  EXPECT_TRUE(contains(error_of([&] { model.load_state_dict(differing); }), "which it is tied to"));
  EXPECT_TRUE(contains(error_of([&] {
                         model.load_state_dict(std::vector<NamedTensor>{{"head.bias", bias}});
                       }),
                       "missing: table.weight"));
  model.save(path_);
  EXPECT_EQ(load_safetensors(path_).size(), 2u);
  Tied other;
  other.load(path_);
  EXPECT_EQ(other.head.weight.to_vector<float>(), values.to_vector<float>());
}

TEST_F(State, LoadingDuringAGraphIsNoticed) {
  nn::Linear layer(2, 2);
  const Tensor x = test::normal({1, 2}, 1, f32).set_requires_grad();
  const Tensor loss = sum(layer(x));
  layer.load_state_dict(layer.state_dict());
  EXPECT_TRUE(contains(error_of([&] { backward(loss); }), "changed in place"));
}

// ---- hooks ----

TEST(Module, HooksSeeAndReplace) {
  nn::Identity identity;
  Names order;
  const HookId pre = identity.add_forward_pre_hook([&](nn::Module& module, const Tensor& input) {
    order.push_back("pre " + module.type());
    return input + 1.0;
  });
  const HookId watch =
      identity.add_forward_hook([&](nn::Module&, const Tensor& input, const Tensor& output) {
        order.push_back("post");
        EXPECT_EQ(input.item(), 2);
        EXPECT_EQ(output.item(), 2);
        return Tensor();
      });
  const HookId last = identity.add_forward_hook(
      [](nn::Module&, const Tensor&, const Tensor& y) { return y * 10.0; });
  EXPECT_EQ(identity(ones({})).item(), 20);
  EXPECT_EQ(order, (Names{"pre Identity", "post"}));
  identity.remove_hook(pre);
  identity.remove_hook(watch);
  EXPECT_EQ(identity(ones({})).item(), 10);
  identity.remove_hook(last);
  identity.remove_hook(last);
  EXPECT_EQ(identity(ones({})).item(), 1);
}

TEST(Module, AHookMayRemoveItself) {
  nn::Identity identity;
  int calls = 0;
  HookId own;
  own = identity.add_forward_hook([&](nn::Module& module, const Tensor&, const Tensor&) {
    ++calls;
    module.remove_hook(own);
    return Tensor();
  });
  identity(ones({}));
  identity(ones({}));
  EXPECT_EQ(calls, 1);
}

// ---- summary ----

TEST(Module, SummaryIsATableAndLeavesNoTrace) {
  nn::models::MnistMlp model;
  EXPECT_EQ(model.summary({3, 784}),
            "layer  type      output    parameters       bytes\n"
            "-------------------------------------------------\n"
            "fc1    Linear    [3, 128]     100,480  392.50 KiB\n"
            "fc2    Linear    [3, 10]        1,290    5.04 KiB\n"
            "-------------------------------------------------\n"
            "total  MnistMlp  [3, 10]      101,770  397.54 KiB\n");

  Net net;
  net.block.eval();  // an odd mix of modes must come back
  const auto before = net.block.norm.running_mean.to_vector<float>();
  const auto state = random_state().next_stream;
  const std::string text = net.summary({2, 4});
  EXPECT_TRUE(contains(text, "block.norm")) << text;
  EXPECT_TRUE(contains(text, "(model)")) << text;
  EXPECT_TRUE(contains(text, "[2, 2]")) << text;
  EXPECT_EQ(net.block.norm.running_mean.to_vector<float>(), before);
  EXPECT_EQ(net.block.norm.num_batches_tracked.item_int(), 0);
  EXPECT_EQ(random_state().next_stream, state);
  EXPECT_TRUE(net.training());
  EXPECT_TRUE(net.drop.training());
  EXPECT_FALSE(net.block.training());
  EXPECT_FALSE(net.block.norm.training());
  EXPECT_THROW(net.summary({2, 5}), Error);
  EXPECT_TRUE(net.training());
  EXPECT_EQ(net.summary({2, 4}), text);

  Tied tied;
  EXPECT_TRUE(contains(tied.summary({2}, i64), "total")) << tied.summary({2}, i64);
}

}  // namespace
}  // namespace weft
