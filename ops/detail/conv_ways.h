// The ways of conv.h, each in a file of its own. T is float or double.
#pragma once

#include "ops/detail/conv.h"
#include "ops/detail/conv_shape.h"

#include <algorithm>

namespace weft::detail::conv {

template <class T>
void direct_forward(const ConvShape& shape, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, const Tensor& y);
template <class T>
void direct_backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                          const Tensor& bias, const Tensor& dx);
template <class T>
void direct_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                             const Tensor& dw, const Tensor& db);

template <class T>
void gemm_forward(const ConvShape& shape, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& y);
template <class T>
void gemm_backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                        const Tensor& bias, const Tensor& dx);
template <class T>
void gemm_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                           const Tensor& dw, const Tensor& db);

// dw and db of a window of one pixel in bf16 or f16, as a product of oneDNN's: it takes half the
// time of its convolution.
void narrow_product_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                            const Tensor& dw, const Tensor& db);

void winograd_forward(const ConvShape& shape, const Tensor& x, const Tensor& weight,
                      const Tensor& bias, const Tensor& y);
void winograd_backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                            const Tensor& bias, const Tensor& dx);
void winograd_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                               const Tensor& dw, const Tensor& db);

template <class T>
void depthwise_forward(const ConvShape& shape, const Tensor& x, const Tensor& weight,
                       const Tensor& bias, const Tensor& y);
template <class T>
void depthwise_backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                             const Tensor& bias, const Tensor& dx);
template <class T>
void depthwise_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                                const Tensor& dw, const Tensor& db);

// By a given way, as detail::conv_forward and its like, without counting the work for a profile.
void forward(const ConvShape& shape, const Tensor& x, const Tensor& weight, const Tensor& bias,
             const Tensor& y, ConvWay way);
void backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                   const Tensor& bias, const Tensor& dx, ConvWay way);
void backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g, const Tensor& dw,
                      const Tensor& db, ConvWay way);

void onednn_forward(const ConvShape& shape, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, const Tensor& y);
void onednn_backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                          const Tensor& bias, const Tensor& dx);
void onednn_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                             const Tensor& dw, const Tensor& db);

// How the sum of a weight gradient is split: `count` runs of slabs, which depend on sizes alone.
// Each has `elements` partial sums; together they stay within a few MiB.
struct SumBlocks {
  SumBlocks(int64_t slabs_in_all, int64_t elements)
      : slabs(slabs_in_all),
        count(std::min<int64_t>(std::clamp<int64_t>((int64_t{4} << 20) / elements, 1, 16),
                                slabs_in_all)) {}
  int64_t begin(int64_t block) const { return slabs * block / count; }
  int64_t slabs;
  int64_t count;
};

// The bias of `count` channels from `first`, followed by zeros up to whole panels; zeros if there
// is none.
template <class T>
Tensor padded_bias(const Tensor& bias, int64_t first, int64_t count);

}  // namespace weft::detail::conv
