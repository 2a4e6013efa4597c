// An exponential moving average of weights, which often tests better than the weights themselves
// (Polyak & Juditsky 1992; Szegedy et al., "Rethinking the Inception architecture", 2016, §8):
//   average += (1 - decay) * (weight - average)
//
//   optim::Ema ema(parallel.parameters(), {.decay = 0.999}, model.named_buffers());
//   … optimizer.step(); ema.update(); …
//   ema.swap();  evaluate(model);  ema.swap();     // with the averages, and back
//
// Of parameters that are spread over ranks each rank averages the parts that its optimizer steps,
// with mixed precision the f32 masters: an average costs what a moment of the optimizer costs, and
// its bits do not depend on strategy or ranks. Averages of 16-bit parameters are f32.
#pragma once

#include "core/safetensors.h"
#include "optim/parameters.h"

#include <vector>

namespace weft::optim {

struct EmaOptions {
  double decay = 0.999;
  // Begins with smaller decays, so that the first weights are soon forgotten: update n, from 0,
  // uses min(decay, (1 + n) / (10 + n)).
  bool warm_up = true;
};

// Belongs to one thread; all ranks call the same. Parameters, and buffers if given, must outlive
// it.
class Ema {
 public:
  // Averages start as the values that there are. `buffers`, such as the statistics of BatchNorm,
  // are the same on all ranks; those that are not floating are left out.
  explicit Ema(const Parameters& parameters, const EmaOptions& options = {},
               const std::vector<NamedTensor>& buffers = {});

  // After each step of the optimizer.
  void update();
  int64_t updates() const;

  // Exchanges the weights for their averages, or back: a collective where parameters are spread.
  // Not between forward and backward; no update() while they are exchanged.
  void swap();
  bool swapped() const { return swapped_; }

  // Of each listed parameter: its name, and the average in its layout.
  std::vector<NamedTensor> averages() const;
  // What is the same on all ranks: "updates", and the averages of buffers as "buffer.NAME".
  std::vector<NamedTensor> replicated() const;
  // All of it: averages as "average.NAME". These tensors share memory with this object: what is
  // copied into them is its state.
  std::vector<NamedTensor> state_dict() const;
  int64_t state_bytes() const;

 private:
  struct Item {
    std::string name;
    Tensor value;
    Tensor average;
    Tensor kept;  // the weight of 16 bits, while its average stands in its place
  };
  void add(const NamedTensor& named);
  template <class F>
  void each_run(const F& f);

  EmaOptions options_;
  Ref<Sharding> sharding_;
  std::vector<Item> items_;  // parameters, then buffers
  size_t parameters_ = 0;
  Tensor updates_;  // i64 []
  bool swapped_ = false;
};

}  // namespace weft::optim
