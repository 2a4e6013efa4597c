// Mixup and CutMix: samples blended with others, and their targets with them.
#pragma once

#include "data/dataset.h"

namespace weft::data {

struct MixingOptions {
  int64_t classes = 0;
  // Mixup (Zhang et al., ICLR 2018): λ x + (1 - λ) x', λ from Beta(mixup, mixup); 0: none.
  double mixup = 0;
  // CutMix (Yun et al., ICCV 2019): a box of share 1 - λ from x', λ from Beta(cutmix, cutmix); λ is
  // then what is really left. 0: none. With both, each sample takes one of them, each as often.
  double cutmix = 0;
  // A sample is mixed at all with this probability.
  double probability = 1;
  // Of the targets, as cross_entropy's, which is to have none then.
  double label_smoothing = 0;
};

// A data set of images over another. The sample that one is mixed with is drawn from the whole set
// by (seed, epoch, sample), as are the kind, λ and the box: so neither ranks nor batches matter,
// and a mixed sample costs reading two. Targets are shares of classes: f32 [rows, classes], which
// add up to 1, or to 0 where a row holds no sample. A sample whose partner could not be read stays
// as it is. `images` must outlive this; its batches are stored N, H, W, C and have one target a
// row.
class Mixing final : public Dataset {
 public:
  Mixing(const Dataset& images, MixingOptions options);

  int64_t size() const override { return images_.size(); }
  Shape sample_shape() const override { return images_.sample_shape(); }
  std::string identity() const override { return images_.identity(); }
  Batch gather(std::span<const int64_t> indices, int64_t rows, const EpochKey& key) const override;

 private:
  const Dataset& images_;
  MixingOptions options_;
};

}  // namespace weft::data
