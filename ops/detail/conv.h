// The three computations of a 2-d convolution, which conv2d and conv_transpose2d share, and the
// ways to do them.
//
// direct:    own kernels, any geometry, f32 and f64. The window of a pixel is read in place, or
// from
//            a padded slab, so nothing is unrolled into matrices.
// gemm:      own kernels, f32 and f64, one group: a product of matrices (detail/gemm.h) for each
// tap
//            of the window.
// winograd:  own kernels, f32: 3x3 windows with stride and dilation 1 by F(2x2, 3x3) of Lavin &
//            Gray, "Fast Algorithms for Convolutional Neural Networks" (2016), 2.25 times fewer
//            multiplications. Sums are regrouped: results differ from the direct ones by a few
//            rounding errors, and an infinity can make its neighbours in a 2x2 tile NaN.
// depthwise: own kernels, f32 and f64: one input channel and one output a group.
// onednn:    f32, and bf16 and f16 where the processor has them (detail/onednn.h).
//
// All but the last give an output the same bits in any batch, on any number of threads; a weight
// gradient's sum depends on shapes alone. oneDNN splits the weight gradient's sum over threads.
#pragma once

#include "ops/detail/conv_shape.h"

namespace weft::detail {

enum class ConvWay : uint8_t { best, direct, gemm, winograd, depthwise, onednn };

// Whether `way` can compute this shape in `dtype`.
bool conv_can(ConvWay way, const ConvShape& shape, DType dtype);
// What `best` stands for forward: the fastest way that was measured for this kind of processor. For
// dx and dw it may be another. Forward and for dx it depends on all sizes but the number of images.
ConvWay conv_best(const ConvShape& shape, DType dtype);

// Below, x, g (like y) and dx are NHWC images and the weight has any strides, all of one dtype; f32
// and f64, or what onednn::supports. Nothing is empty. Bias and db are [channels] without gaps.

// y = conv(x, weight) + bias; bias may be undefined.
void conv_forward(const ConvShape& shape, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& y, ConvWay way = ConvWay::best);
// dx = the adjoint of x ↦ conv(x, weight), at g, + bias[C] (a transposed convolution's); bias may
// be undefined.
void conv_backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                        const Tensor& bias, const Tensor& dx, ConvWay way = ConvWay::best);
// dw = the adjoint of weight ↦ conv(x, weight), at g, in dw's strides; db = the sum of g over
// images and pixels, may be undefined.
void conv_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                           const Tensor& dw, const Tensor& db, ConvWay way = ConvWay::best);

}  // namespace weft::detail
