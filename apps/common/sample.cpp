#include "apps/common/sample.h"

#include "weft.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::app {
namespace {

constexpr uint32_t kSampleStream = 0x73616d70;

}  // namespace

int64_t choose_token(const Tensor& logits, const SampleOptions& options, double draw) {
  const std::vector<double> values = logits.to_vector<double>();
  WEFT_CHECK(!values.empty(), "sample", "expected logits, got none");
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  if (options.temperature == 0) return static_cast<int64_t>(order[0]);
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  std::vector<double> sums;
  double sum = 0;
  for (const size_t token : order) {
    sum += std::exp((values[token] - values[order[0]]) / options.temperature);
    sums.push_back(sum);
  }
  WEFT_CHECK(std::isfinite(sum), "sample", "expected finite logits, got a sum of ", sum);
  const auto chosen = std::upper_bound(sums.begin(), sums.end(), draw * sum) - sums.begin();
  return static_cast<int64_t>(order[std::min(static_cast<size_t>(chosen), order.size() - 1)]);
}

std::string write_sample(nn::models::Gpt& model, const data::Tokenizer& tokenizer,
                         const Tensor& prompt, const SampleOptions& options, uint64_t seed) {
  const NoGrad no_grad;
  model.eval();
  std::vector<int64_t> tokens = to(prompt, i64).to_vector<int64_t>();
  WEFT_CHECK(!tokens.empty(), "sample", "expected a prompt of at least one token, got none");
  std::string text;
  for (int64_t i = 0; i < options.length; ++i) {
    const auto seen = std::min(static_cast<int64_t>(tokens.size()), model.options().context);
    const Tensor ids = from_values(std::vector<int64_t>(tokens.end() - seen, tokens.end()));
    const Tensor logits = model(unsqueeze(ids, 0));
    const RandomKey key{
        .seed = seed, .step = static_cast<uint64_t>(i), .shard = 0, .stream = kSampleStream};
    const int64_t token = choose_token(to(select(select(logits, 0, 0), 0, seen - 1), f32), options,
                                       static_cast<double>(random_uniform(key, 0)));
    tokens.push_back(token);
    text += tokenizer.decode(token);
  }
  return text;
}

}  // namespace weft::app
