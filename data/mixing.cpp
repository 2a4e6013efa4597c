#include "data/mixing.h"

#include "core/parallel.h"
#include "data/detail/crop.h"
#include "data/detail/draws.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weft::data {
namespace {

using detail::Draw;
using detail::Draws;

// Draws of Draw::mixing.
enum : uint32_t { kPartner, kPartnerLow, kWhether, kKind, kBoxX, kBoxY, kShare };

// A stream of draws from one number on.
class Sequence {
 public:
  Sequence(Draws& draws, uint32_t first) : draws_(draws), next_(first) {}
  // In (0, 1).
  double uniform() {
    return (static_cast<double>(draws_.bits(Draw::mixing, next_++)) + 0.5) * 0x1p-32;
  }
  // Standard normal: Box and Muller.
  double normal() {
    constexpr double kCircle = 2 * 3.14159265358979323846;
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(kCircle * uniform());
  }
  // Gamma(shape, 1): Marsaglia and Tsang, "A simple method for generating gamma variables", ACM
  // TOMS 2000; below 1 by their section 6.
  double gamma(double shape) {
    if (shape < 1) {
      const double boost = std::pow(uniform(), 1 / shape);
      return gamma(shape + 1) * boost;
    }
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal();
      const double root = 1 + c * x;
      if (root <= 0) continue;
      const double v = root * root * root;
      if (std::log(uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }
  double beta(double shape) {
    const double a = gamma(shape);
    const double b = gamma(shape);
    return a + b > 0 ? a / (a + b) : 0.5;
  }

 private:
  Draws& draws_;
  uint32_t next_;
};

struct Mix {
  int64_t partner = -1;  // none: as it is
  bool cut = false;
  double share = 1;  // of the sample itself
  detail::PixelBox box = {};
};

Mix draw_mix(const MixingOptions& options, const Shape& sample, int64_t size, const EpochKey& key,
             int64_t index) {
  Draws draws(key, index);
  Mix mix;
  if (draws.uniform(Draw::mixing, kWhether) >= options.probability) return mix;
  const uint64_t word = static_cast<uint64_t>(draws.bits(Draw::mixing, kPartner)) << 32 |
                        draws.bits(Draw::mixing, kPartnerLow);
  mix.partner = static_cast<int64_t>(word % static_cast<uint64_t>(size));
  const bool both = options.mixup > 0 && options.cutmix > 0;
  mix.cut = both ? (draws.bits(Draw::mixing, kKind) & 1) != 0 : options.cutmix > 0;
  Sequence sequence(draws, kShare);
  mix.share = sequence.beta(mix.cut ? options.cutmix : options.mixup);
  if (!mix.cut) return mix;
  const int64_t height = sample[1];
  const int64_t width = sample[2];
  const double side = std::sqrt(1 - mix.share);
  const auto span = [&](int64_t pixels, uint32_t draw, int64_t& first, int64_t& count) {
    const auto length = static_cast<int64_t>(side * static_cast<double>(pixels));
    const int64_t middle = draws.below(Draw::mixing, pixels, draw);
    first = std::clamp<int64_t>(middle - length / 2, 0, pixels);
    count = std::clamp<int64_t>(middle + length / 2, 0, pixels) - first;
  };
  span(width, kBoxX, mix.box.x, mix.box.width);
  span(height, kBoxY, mix.box.y, mix.box.height);
  mix.share =
      1 - static_cast<double>(mix.box.width * mix.box.height) / static_cast<double>(width * height);
  return mix;
}

// Samples are stored H, W, C.
void blend(const Mix& mix, const Shape& sample, const float* partner, float* out) {
  if (!mix.cut) {
    const auto own = static_cast<float>(mix.share);
    const float other = 1 - own;
    for (int64_t i = 0; i < sample.numel(); ++i)
      out[i] = own * out[i] + other * partner[i];
    return;
  }
  const int64_t channels = sample[0];
  for (int64_t y = mix.box.y; y < mix.box.y + mix.box.height; ++y) {
    const int64_t at = (y * sample[2] + mix.box.x) * channels;
    std::copy_n(partner + at, mix.box.width * channels, out + at);
  }
}

}  // namespace

Mixing::Mixing(const Dataset& images, MixingOptions options) : images_(images), options_(options) {
  constexpr const char* kMixing = "mixing";
  WEFT_CHECK(images.sample_shape().dims() == 3, kMixing, "expected images [C, H, W], got samples ",
             images.sample_shape());
  WEFT_CHECK(options.classes >= 1, kMixing, "expected at least one class, got ", options.classes);
  WEFT_CHECK(options.mixup >= 0 && options.mixup <= 1e3 && options.cutmix >= 0 &&
                 options.cutmix <= 1e3 && options.mixup + options.cutmix > 0,
             kMixing, "expected mixup and cutmix of 0 to 1000, not both 0, got ", options.mixup,
             " and ", options.cutmix);
  WEFT_CHECK(options.probability >= 0 && options.probability <= 1 && options.label_smoothing >= 0 &&
                 options.label_smoothing <= 1,
             kMixing, "expected a probability and a label smoothing in [0, 1], got ",
             options.probability, " and ", options.label_smoothing);
}

Batch Mixing::gather(std::span<const int64_t> indices, int64_t rows, const EpochKey& key) const {
  const Shape sample = sample_shape();
  std::vector<Mix> mixes;
  std::vector<int64_t> partners;
  std::vector<int64_t> partner_row;
  for (const int64_t index : indices) {
    WEFT_CHECK(index >= 0 && index < size(), "gather", "expected samples in [0, ", size(),
               "), got ", index);
    mixes.push_back(draw_mix(options_, sample, size(), key, index));
    partner_row.push_back(static_cast<int64_t>(partners.size()));
    if (mixes.back().partner >= 0) partners.push_back(mixes.back().partner);
  }
  Batch batch = images_.gather(indices, rows, key);
  WEFT_CHECK(
      batch.inputs.dtype() == f32 && batch.targets.dtype() == i64 && batch.targets.dims() == 1,
      "mixing", "expected batches of f32 images with a class each, got ", batch.inputs.dtype(),
      " with targets ", batch.targets.dtype(), batch.targets.shape());
  WEFT_CHECK(sample[0] == 1 || batch.inputs.is_channels_last(), "mixing",
             "expected images stored N, H, W, C, got strides ", batch.inputs.strides(), " for ",
             batch.inputs.shape());
  const Batch others = images_.gather(partners, static_cast<int64_t>(partners.size()), key);
  const CategoryScope category(Category::data);
  const int64_t classes = options_.classes;
  const Tensor shares = empty({rows, classes}, {.dtype = f32});
  std::fill_n(shares.data<float>(), rows * classes, 0.0f);
  const int64_t* targets = batch.targets.data<int64_t>();
  const int64_t* other_targets = others.targets.data<int64_t>();
  const int64_t values = sample.numel();
  parallel_for(0, batch.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (targets[row] == kNoTarget) continue;
      const Mix& mix = mixes[static_cast<size_t>(row)];
      const int64_t other = partner_row[static_cast<size_t>(row)];
      const bool mixed = mix.partner >= 0 && other_targets[other] != kNoTarget;
      const double own = mixed ? mix.share : 1;
      if (mixed)
        blend(mix, sample, others.inputs.data<float>() + other * values,
              batch.inputs.data<float>() + row * values);
      const auto check = [&](int64_t target) {
        WEFT_CHECK(target >= 0 && target < classes, "mixing", "expected classes below ", classes,
                   ", got ", target);
        return target;
      };
      float* share = shares.data<float>() + row * classes;
      const double kept = 1 - options_.label_smoothing;
      std::fill_n(share, classes,
                  static_cast<float>(options_.label_smoothing / static_cast<double>(classes)));
      share[check(targets[row])] += static_cast<float>(kept * own);
      if (mixed) share[check(other_targets[other])] += static_cast<float>(kept * (1 - own));
    }
  });
  batch.targets = shares;
  return batch;
}

}  // namespace weft::data
