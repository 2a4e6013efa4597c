// Convolution by oneDNN: images stay NHWC, the weight is reordered once a call into the layout the
// primitive likes best, primitives are cached.
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/detail/conv.h"
#include "ops/detail/conv_ways.h"
#include "ops/detail/copies.h"
#include "ops/detail/images.h"
#include "ops/detail/onednn.h"
#include "ops/elementwise.h"

namespace weft::detail::conv {
namespace {

using dnnl::algorithm;
using dnnl::memory;

struct Geometry {
  explicit Geometry(const ConvShape& shape, const Tensor& weight) {
    for (size_t i = 0; i < 2; ++i) {
      strides.push_back(shape.stride[i]);
      dilates.push_back(shape.dilation[i] - 1);
      padding.push_back(shape.padding[i]);
      const int64_t reach =
          (shape.out[i] - 1) * shape.stride[i] + (shape.kernel[i] - 1) * shape.dilation[i] + 1;
      end_padding.push_back(reach - shape.in[i] -
                            shape.padding[i]);  // exactly what the last window needs
    }
    const DType dtype = weight.dtype();
    const Shape in = shape.in_shape();
    const Shape out = shape.out_shape();
    x = onednn::describe(in, channels_last_strides(in), dtype);
    y = onednn::describe(out, channels_last_strides(out), dtype);
    w = onednn::describe_any(weight_shape(shape), dtype);
    bias = onednn::describe({shape.outputs}, {1}, dtype);
  }

  // oneDNN's shape of a grouped weight: [groups, O / groups, C / groups, kernel].
  static Shape weight_shape(const ConvShape& shape) {
    if (shape.groups == 1) return shape.weight_shape();
    return {shape.groups, shape.group_outputs(), shape.group_channels(), shape.kernel[0],
            shape.kernel[1]};
  }

  memory::dims strides, dilates, padding, end_padding;
  memory::desc x, y, w, bias;
};

onednn::Key key_of(const char* op, const ConvShape& shape, DType dtype, bool bias) {
  onednn::Key key(op);
  key.add(shape.in_shape()).add(shape.weight_shape()).add(static_cast<int64_t>(dtype)).add(bias);
  for (size_t i = 0; i < 2; ++i)
    key.add(shape.stride[i]).add(shape.padding[i]).add(shape.dilation[i]);
  return key.add(shape.groups);
}

// The weight in oneDNN's shape; the same elements.
Tensor grouped(const ConvShape& shape, const Tensor& weight) {
  if (shape.groups == 1) return weight;
  const Strides& s = weight.strides();
  return alias(weight, Geometry::weight_shape(shape),
               {shape.group_outputs() * s[0], s[0], s[1], s[2], s[3]});
}

Tensor arranged_weight(onednn::Primitive& primitive, const Tensor& weight) {
  if (!primitive.has_layout_of(DNNL_ARG_WEIGHTS, weight)) ++copy_counts().weights;
  return primitive.arranged(DNNL_ARG_WEIGHTS, weight);
}

dnnl::convolution_forward::primitive_desc forward_description(const Geometry& at, bool bias) {
  const auto kind = dnnl::prop_kind::forward_training;
  if (bias) {
    return {onednn::engine(),
            kind,
            algorithm::convolution_direct,
            at.x,
            at.w,
            at.bias,
            at.y,
            at.strides,
            at.dilates,
            at.padding,
            at.end_padding,
            onednn::attributes()};
  }
  return {onednn::engine(),
          kind,
          algorithm::convolution_direct,
          at.x,
          at.w,
          at.y,
          at.strides,
          at.dilates,
          at.padding,
          at.end_padding,
          onednn::attributes()};
}

// For what oneDNN has but its reference implementation: the same by another way, in f32.
ConvWay other_way(DType dtype) {
  return dtype == f32 ? ConvWay::direct : ConvWay::best;
}
Tensor wide(const Tensor& x) {
  return x.defined() ? to(x, f32) : x;
}

void forward_otherwise(const ConvShape& shape, const Tensor& x, const Tensor& weight,
                       const Tensor& bias, const Tensor& y) {
  const Tensor result = x.dtype() == f32 ? y : empty_images(shape.out_shape(), f32);
  forward(shape, images(x, f32), wide(weight), wide(bias), result, other_way(x.dtype()));
  if (x.dtype() != f32) copy_(y, result);
}

void backward_data_otherwise(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                             const Tensor& bias, const Tensor& dx) {
  const Tensor result = g.dtype() == f32 ? dx : empty_images(shape.in_shape(), f32);
  backward_data(shape, images(g, f32), wide(weight), wide(bias), result, other_way(g.dtype()));
  if (g.dtype() != f32) copy_(dx, result);
}

void backward_weights_otherwise(const ConvShape& shape, const Tensor& x, const Tensor& g,
                                const Tensor& dw, const Tensor& db) {
  const bool same = x.dtype() == f32;
  const Tensor weights = same ? dw : empty_like(dw, f32);
  const Tensor biases = same || !db.defined() ? db : empty_like(db, f32);
  backward_weights(shape, images(x, f32), images(g, f32), weights, biases, other_way(x.dtype()));
  if (same) return;
  copy_(dw, weights);
  if (db.defined()) copy_(db, biases);
}

}  // namespace

void onednn_forward(const ConvShape& shape, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, const Tensor& y) {
  onednn::Primitive& primitive =
      onednn::cached(key_of("conv2d", shape, x.dtype(), bias.defined()), [&] {
        return onednn::Primitive(forward_description(Geometry(shape, weight), bias.defined()));
      });
  if (primitive.is_reference()) return forward_otherwise(shape, x, weight, bias, y);
  const Tensor packed = arranged_weight(primitive, grouped(shape, weight));
  if (bias.defined()) {
    primitive.run({{DNNL_ARG_SRC, x.raw()},
                   {DNNL_ARG_WEIGHTS, packed.raw()},
                   {DNNL_ARG_BIAS, bias.raw()},
                   {DNNL_ARG_DST, y.raw()}});
  } else {
    primitive.run(
        {{DNNL_ARG_SRC, x.raw()}, {DNNL_ARG_WEIGHTS, packed.raw()}, {DNNL_ARG_DST, y.raw()}});
  }
}

void onednn_backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                          const Tensor& bias, const Tensor& dx) {
  onednn::Primitive& primitive =
      onednn::cached(key_of("conv2d backward data", shape, g.dtype(), false), [&] {
        const Geometry at(shape, weight);
        return onednn::Primitive(dnnl::convolution_backward_data::primitive_desc(
            onednn::engine(), algorithm::convolution_direct, at.x, at.w, at.y, at.strides,
            at.dilates, at.padding, at.end_padding, forward_description(at, false),
            onednn::attributes()));
      });
  if (primitive.is_reference()) return backward_data_otherwise(shape, g, weight, bias, dx);
  const Tensor packed = arranged_weight(primitive, grouped(shape, weight));
  primitive.run({{DNNL_ARG_DIFF_DST, g.raw()},
                 {DNNL_ARG_WEIGHTS, packed.raw()},
                 {DNNL_ARG_DIFF_SRC, dx.raw()}});
  if (!bias.defined()) return;
  const NoGrad no_grad;
  add_(dx, alias(bias, {1, shape.channels, 1, 1}, {0, 1, 0, 0}));
}

void onednn_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                             const Tensor& dw, const Tensor& db) {
  onednn::Primitive& primitive =
      onednn::cached(key_of("conv2d backward weights", shape, x.dtype(), db.defined()), [&] {
        const Geometry at(shape, dw);
        const auto forward = forward_description(at, db.defined());
        if (db.defined()) {
          return onednn::Primitive(dnnl::convolution_backward_weights::primitive_desc(
              onednn::engine(), algorithm::convolution_direct, at.x, at.w, at.bias, at.y,
              at.strides, at.dilates, at.padding, at.end_padding, forward, onednn::attributes()));
        }
        return onednn::Primitive(dnnl::convolution_backward_weights::primitive_desc(
            onednn::engine(), algorithm::convolution_direct, at.x, at.w, at.y, at.strides,
            at.dilates, at.padding, at.end_padding, forward, onednn::attributes()));
      });
  if (primitive.is_reference()) return backward_weights_otherwise(shape, x, g, dw, db);
  const Tensor result = grouped(shape, dw);
  const bool in_place = primitive.has_layout_of(DNNL_ARG_DIFF_WEIGHTS, result);
  const Tensor buffer = in_place ? result : primitive.buffer(DNNL_ARG_DIFF_WEIGHTS);
  if (db.defined()) {
    primitive.run({{DNNL_ARG_SRC, x.raw()},
                   {DNNL_ARG_DIFF_DST, g.raw()},
                   {DNNL_ARG_DIFF_WEIGHTS, buffer.raw()},
                   {DNNL_ARG_DIFF_BIAS, db.raw()}});
  } else {
    primitive.run({{DNNL_ARG_SRC, x.raw()},
                   {DNNL_ARG_DIFF_DST, g.raw()},
                   {DNNL_ARG_DIFF_WEIGHTS, buffer.raw()}});
  }
  if (in_place) return;
  ++copy_counts().weights;
  primitive.restore(DNNL_ARG_DIFF_WEIGHTS, buffer, result);
}

}  // namespace weft::detail::conv
