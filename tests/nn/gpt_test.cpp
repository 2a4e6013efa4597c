// The transformer: names and ties, the weights it starts from, what it may see, recomputation.
#include "nn/models/gpt.h"

#include "weft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace weft {
namespace {

using nn::models::Gpt;
using nn::models::GptOptions;

constexpr GptOptions kSmall{.vocabulary = 11, .context = 8, .layers = 2, .width = 16, .heads = 2};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

double deviation(const Tensor& x) {
  return stddev(x).item();
}

TEST(Gpt, NamesTiesAndCounts) {
  const Gpt tied(kSmall);
  const Gpt untied(
      {.vocabulary = 11, .context = 8, .layers = 2, .width = 16, .heads = 2, .tied = false});
  // A block of width d has 12 d² + 13 d; around them 2 tables, the last norm and perhaps a head.
  constexpr int64_t kBlocks = 2 * (12 * 16 * 16 + 13 * 16);
  EXPECT_EQ(tied.parameter_count(), kBlocks + (11 + 8 + 2) * 16);
  EXPECT_EQ(untied.parameter_count(), tied.parameter_count() + 11 * 16);
  const auto aliases = tied.aliases();
  ASSERT_EQ(aliases.size(), 1u);
  EXPECT_EQ(aliases[0].first, "head.weight");
  EXPECT_EQ(aliases[0].second, "tokens.weight");
  EXPECT_TRUE(untied.aliases().empty());
  EXPECT_EQ(tied.named_parameters()[2].name, "blocks.0.norm1.weight");
}

TEST(Gpt, BlocksAreModulesOfOneType) {
  Gpt model(kSmall);
  std::vector<std::string> blocks;
  for (const auto& [name, module] : model.named_modules()) {
    if (module->type() == "TransformerBlock") blocks.push_back(name);
  }
  EXPECT_EQ(blocks, (std::vector<std::string>{"blocks.0", "blocks.1"}));
}

TEST(Gpt, StartsAsGpt2Does) {
  manual_seed(1);
  Gpt model({.vocabulary = 200, .context = 64, .layers = 8, .width = 128, .heads = 4});
  for (const auto& [name, tensor] : model.named_parameters()) {
    if (name.ends_with(".bias")) {
      EXPECT_EQ(max(abs(tensor)).item(), 0) << name;
    } else if (tensor.dims() == 1) {
      EXPECT_EQ(min(tensor).item(), 1) << name;
      EXPECT_EQ(max(tensor).item(), 1) << name;
    } else {
      const bool writes = name.ends_with("attention.out.weight") || name.ends_with("fc2.weight");
      EXPECT_NEAR(deviation(tensor), writes ? 0.005 : 0.02, writes ? 2e-4 : 8e-4) << name;
    }
  }
  // So the first guess is nearly uniform.
  const Tensor ids = randint(0, 200, {4, 64});
  const Tensor targets = randint(0, 200, {4 * 64});
  EXPECT_NEAR(cross_entropy(flatten(model(ids), 0, 1), targets).item(), std::log(200), 0.15);
}

TEST(Gpt, ATokenSeesItselfAndThosePast) {
  manual_seed(2);
  Gpt model(kSmall);
  model.eval();
  const NoGrad no_grad;
  const Tensor ids = randint(0, 11, {2, 8});
  const Tensor before = model(ids);
  const Tensor changed = empty(ids.shape(), ids.options());
  copy_(changed, ids);
  changed.data<int64_t>()[5] = (changed.data<int64_t>()[5] + 1) % 11;
  const Tensor after = model(changed);
  EXPECT_TRUE(same_bits(contiguous(narrow(select(before, 0, 0), 0, 0, 5)),
                        contiguous(narrow(select(after, 0, 0), 0, 0, 5))));
  EXPECT_TRUE(same_bits(contiguous(select(before, 0, 1)), contiguous(select(after, 0, 1))));
  for (int64_t at = 5; at < 8; ++at) {
    EXPECT_FALSE(same_bits(contiguous(select(select(before, 0, 0), 0, at)),
                           contiguous(select(select(after, 0, 0), 0, at))));
  }
  // A shorter sequence gives what the longer one gave there.
  EXPECT_LT(max(abs(model(narrow(ids, 1, 0, 3)) - narrow(before, 1, 0, 3))).item(), 1e-6);
}

TEST(Gpt, RecomputationGivesTheSameGradientsInLessMemory) {
  Ledger ledgers[2];  // they outlive what is charged to them
  std::vector<Tensor> gradients[2];
  int64_t peak[2];
  for (const bool again : {false, true}) {
    Ledger& ledger = ledgers[again];
    const LedgerScope scope(ledger);
    manual_seed(3);
    GptOptions options = kSmall;
    options.layers = 6;
    options.dropout = 0.1;
    options.recompute = again;
    Gpt model(options);
    const Tensor ids = randint(0, 11, {8, 8});
    backward(cross_entropy(flatten(model(ids), 0, 1), flatten(ids)));
    for (const Tensor& parameter : model.parameters())
      gradients[again].push_back(parameter.grad());
    peak[again] = ledger.peak(Category::activations);
  }
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  for (size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_TRUE(same_bits(gradients[0][i], gradients[1][i])) << i;
  EXPECT_LT(2 * peak[1], peak[0]);
}

TEST(Gpt, LearnsInBf16) {
  manual_seed(4);
  Gpt model(kSmall);
  model.to(bf16);
  optim::AdamW optimizer(model.parameters(), {.lr = 3e-3});
  const Tensor ids = randint(0, 11, {2, 8});
  double first = 0;
  double last = 0;
  for (int step = 0; step < 40; ++step) {
    optimizer.zero_grad();
    const Tensor logits = model(ids);
    ASSERT_EQ(logits.dtype(), bf16);
    const Tensor loss = cross_entropy(flatten(logits, 0, 1), flatten(ids));
    backward(loss);
    optimizer.step();
    last = loss.item();
    if (step == 0) first = last;
  }
  EXPECT_GT(first, 2);
  EXPECT_LT(last, 1);
}

TEST(Gpt, RefusesWhatDoesNotFit) {
  GptOptions options = kSmall;
  options.heads = 3;
  EXPECT_THROW(Gpt{options}, Error);
  options = kSmall;
  options.layers = 0;
  EXPECT_THROW(Gpt{options}, Error);
  Gpt model(kSmall);
  EXPECT_THROW(model(zeros({1, 9}, {.dtype = i64})), Error);     // past the context
  EXPECT_THROW(model(zeros({8}, {.dtype = i64})), Error);        // no batch
  EXPECT_THROW(model(full({1, 8}, 11, {.dtype = i64})), Error);  // no such token
  EXPECT_THROW(model(zeros({1, 8})), Error);                     // no ids
}

}  // namespace
}  // namespace weft
