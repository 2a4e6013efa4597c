// The options of a transform, carried out on one sample.
#pragma once

#include "data/detail/draws.h"
#include "data/detail/resample.h"
#include "data/transform.h"

namespace weft::data::detail {

// Buffers that one thread uses again for sample after sample.
struct TransformScratch {
  ResampleScratch resample;
  std::vector<float> resized;
  std::vector<float> moved;
};

class SampleTransform {
 public:
  // Throws an Error where an option has no meaning. Sizes are those of the batch.
  SampleTransform(const ImageOptions& options, int64_t channels);

  const ImageOptions& options() const { return options_; }
  int64_t channels() const { return channels_; }

  Cut cut(int64_t height, int64_t width, Draws& draws) const {
    return choose_cut(options_, height, width, draws);
  }
  // Whether samples of so many pixels are copied: a hundredth of the work of resizing, turning or
  // recolouring them.
  bool only_copies(int64_t height, int64_t width) const;
  // What a cut shows, into one sample of a batch: [height, width, channels].
  void run(const PixelView& view, Draws& draws, TransformScratch& scratch, float* out) const;

 private:
  struct Motion;
  bool jitters() const;
  Motion draw_motion(Draws& draws) const;
  void copy(const PixelView& view, const Motion& motion, float* out) const;
  void move(const float* from, const Motion& motion, float* to) const;
  void jitter(Draws& draws, float* pixels) const;
  void erase(Draws& draws, float* out) const;

  ImageOptions options_;
  int64_t channels_;
  Affine values_;
};

}  // namespace weft::data::detail
