// Dynamic loss scaling for training in f16, whose gradients would vanish below 6e-8 (Micikevicius
// et al., "Mixed precision training", ICLR 2018, §3.2): the loss is multiplied by a scale before
// backward and the gradients are divided by it after. A step whose gradients have overflowed is
// skipped and the scale falls; after many steps that have not, it rises.
//
//   optim::LossScaler scaler;
//   parallel.backward(loss, scaler.scale());
//   if (scaler.unscale(parallel.parameters())) {
//     optimizer.step();
//   } else {
//     parallel.skip_step();
//   }
#pragma once

#include "core/safetensors.h"
#include "optim/parameters.h"

#include <vector>

namespace weft::optim {

// Powers of two change no mantissa.
struct LossScalerOptions {
  double scale = 65536;  // to begin with
  double growth = 2;     // after `interval` steps in a row that were not skipped
  double backoff = 0.5;  // after one that was
  int64_t interval = 2000;
  double largest = 16777216;
  // Gradients that are not finite at so small a scale are not its doing: an error.
  double smallest = 1.0 / 16384;
};

// Belongs to one thread. All ranks call the same, and have the same scale.
class LossScaler {
 public:
  explicit LossScaler(const LossScalerOptions& options = {});

  // What the next loss is to be multiplied by.
  double scale() const;
  // Divides all gradients by it and says whether all of them are finite, on every rank alike; then
  // settles the next scale. Where they are not, the step is to be skipped: the gradients are of no
  // use. Gradients are f32 or f64, as dist::Parallel gives them to optimizers also of an f16 model.
  // Throws Error, naming a parameter, where a smaller scale would not help.
  bool unscale(const Parameters& parameters);

  // Steps that were to be skipped so far.
  int64_t skipped() const;

  // "loss_scaler.scale", "loss_scaler.good_steps", "loss_scaler.skipped": the same on all ranks.
  // They share memory with the scaler: what is copied into them is its state.
  std::vector<NamedTensor> state_dict() const;

 private:
  LossScalerOptions options_;
  Tensor scale_;       // f64 []
  Tensor good_steps_;  // i64 []: in a row, at this scale
  Tensor skipped_;     // i64 []
};

}  // namespace weft::optim
