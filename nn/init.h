// Initialisers. Each fills a tensor in place, without history, with draws of random_state()'s next
// key, and returns it. A deferred parameter (nn/deferred.h) is filled when its memory comes, with
// the key of now.
#pragma once

#include "core/tensor.h"

namespace weft::nn::init {

// How many inputs feed an output of a weight [out, in, kernel…], and how many outputs an input
// feeds. At least two dims.
struct Fans {
  int64_t in = 0;
  int64_t out = 0;
};
Fans fans(const Shape& weight);

Tensor zeros_(const Tensor& target);
Tensor ones_(const Tensor& target);
Tensor constant_(const Tensor& target, double value);
Tensor uniform_(const Tensor& target, double low = 0, double high = 1);
Tensor normal_(const Tensor& target, double mean = 0, double standard_deviation = 1);
// Normal, but never outside [low, high].
Tensor trunc_normal_(const Tensor& target, double mean = 0, double standard_deviation = 1,
                     double low = -2, double high = 2);

// Variance gain^2 * 2 / (fan in + fan out) (Glorot & Bengio 2010, equation 16).
Tensor xavier_uniform_(const Tensor& target, double gain = 1);
Tensor xavier_normal_(const Tensor& target, double gain = 1);

// Variance 2 / ((1 + slope^2) * fan) for a leaky ReLU of that slope (He et al. 2015, equations 14
// and 15).
enum class Fan : uint8_t { in, out };
Tensor kaiming_uniform_(const Tensor& target, double slope = 0, Fan fan = Fan::in);
Tensor kaiming_normal_(const Tensor& target, double slope = 0, Fan fan = Fan::in);

// Rows (or columns, where there are fewer) of unit length at right angles, times gain (Saxe et al.
// 2014). The first dim counts rows, all others together columns.
Tensor orthogonal_(const Tensor& target, double gain = 1);

// What layers with a weight [out, in, kernel…] start from, as in PyTorch: U(-b, b) with b = 1 /
// sqrt(fan in) for the weight and for its bias (may be undefined).
void default_weight_and_bias_(const Tensor& weight, const Tensor& bias);

}  // namespace weft::nn::init
