// Products of tensors: every dtype, any leading dims, by the kernel in gemm.cpp or by oneDNN.
#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/detail/gemm.h"
#include "ops/detail/onednn.h"

#include <algorithm>

namespace weft::detail {
namespace {

// Offsets, in elements, of each matrix of a batch: the leading dims of `x` in row-major order.
std::vector<int64_t> matrix_offsets(const Tensor& x) {
  std::vector<int64_t> offsets = {0};
  for (int d = 0; d + 2 < x.dims(); ++d) {
    std::vector<int64_t> finer;
    finer.reserve(offsets.size() * static_cast<size_t>(x.shape()[d]));
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < x.shape()[d]; ++i)
        finer.push_back(offset + i * x.strides()[d]);
    }
    offsets = std::move(finer);
  }
  return offsets;
}

template <class T>
void multiply_integers(const Gemm<T>& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = 0; j < g.n; ++j) {
      uint64_t sum = g.bias ? static_cast<uint64_t>(g.bias[j * g.bias_col])
                            : 0;  // unsigned: wrapping is defined
      for (int64_t p = 0; p < g.k; ++p) {
        sum += static_cast<uint64_t>(g.a[i * g.a_row + p * g.a_col]) *
               static_cast<uint64_t>(g.b[p * g.b_row + j * g.b_col]);
      }
      g.c[i * g.c_row + j * g.c_col] = static_cast<T>(sum);
    }
  }
}

template <class T>
void multiply_as(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const int last = out.dims() - 1;
  Gemm<T> g{.m = out.shape()[last - 1],
            .n = out.shape()[last],
            .k = a.shape()[last],
            .a_row = a.strides()[last - 1],
            .a_col = a.strides()[last],
            .b_row = b.strides()[last - 1],
            .b_col = b.strides()[last],
            .c_row = out.strides()[last - 1],
            .c_col = out.strides()[last]};
  if (bias.defined()) {
    g.bias = bias.data<T>();
    g.bias_col = bias.strides()[0];
  }
  const auto one = [&](int64_t a_at, int64_t b_at, int64_t c_at) {
    Gemm<T> product = g;
    product.a = a.data<T>() + a_at;
    product.b = b.data<T>() + b_at;
    product.c = out.data<T>() + c_at;
    if constexpr (std::is_floating_point_v<T>) {
      gemm(product);
    } else {
      multiply_integers(product);
    }
  };
  if (out.dims() == 2) return one(0, 0, 0);
  const std::vector<int64_t> a_at = matrix_offsets(a);
  const std::vector<int64_t> b_at = matrix_offsets(b);
  const std::vector<int64_t> c_at = matrix_offsets(out);
  const auto range = [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      one(a_at[i], b_at[i], c_at[i]);
  };
  // Many matrices share out the threads; few are each split over all of them.
  const auto count = static_cast<int64_t>(c_at.size());
  if (count < num_threads()) return range(0, count);
  const int64_t work = std::max<int64_t>(1, g.m * g.n * std::max<int64_t>(g.k, 1));
  parallel_for(0, count, std::max<int64_t>(1, (int64_t{1} << 17) / work), range);
}

}  // namespace

bool multiply_by_onednn(const char* op, const Tensor& out, const Tensor& a, const Tensor& b,
                        const Tensor& bias) {
  // oneDNN refuses strides of 0 and dims that overlap: repeated operands are written out.
  const Tensor left = a.is_dense() ? a : contiguous(a);
  const Tensor right = b.is_dense() ? b : contiguous(b);
  Shape bias_shape = Shape::filled(out.dims(), 1);
  bias_shape[out.dims() - 1] = out.shape().back();
  // For a bias of f16 oneDNN 3.2 has no fast product, for one of f32 it has.
  const Tensor row = bias.defined() ? contiguous(to(bias, f32)) : bias;
  onednn::Key key(op);
  key.add(out).add(left).add(right).add(bias.defined());
  onednn::Primitive& primitive = onednn::cached(key, [&] {
    const auto bias_layout =
        row.defined() ? onednn::describe(bias_shape, contiguous_strides(bias_shape), row.dtype())
                      : dnnl::memory::desc();
    return onednn::Primitive(dnnl::matmul::primitive_desc(
        onednn::engine(), onednn::describe(left), onednn::describe(right), bias_layout,
        onednn::describe(out), onednn::attributes()));
  });
  if (primitive.is_reference()) return false;
  if (row.defined()) {
    primitive.run({{DNNL_ARG_SRC, left.raw()},
                   {DNNL_ARG_WEIGHTS, right.raw()},
                   {DNNL_ARG_BIAS, row.raw()},
                   {DNNL_ARG_DST, out.raw()}});
  } else {
    primitive.run(
        {{DNNL_ARG_SRC, left.raw()}, {DNNL_ARG_WEIGHTS, right.raw()}, {DNNL_ARG_DST, out.raw()}});
  }
  return true;
}

void multiply(const char* op, const Tensor& out, const Tensor& a, const Tensor& b,
              const Tensor& bias) {
  if (out.numel() == 0) return;
  profile_work(2 * out.numel() * a.shape().back(), out.bytes() + a.bytes() + b.bytes());
  switch (out.dtype()) {
    case DType::f32:
      return multiply_as<float>(out, a, b, bias);
    case DType::f64:
      return multiply_as<double>(out, a, b, bias);
    case DType::i64:
      return multiply_as<int64_t>(out, a, b, bias);
    case DType::f16:
    case DType::bf16: {
      const bool can = onednn::supports(out.dtype()) && a.shape().back() > 0;
      if (can && multiply_by_onednn(op, out, a, b, bias)) return;
      const Tensor wide = empty(out.shape(), {.dtype = f32});
      multiply_as<float>(wide, to(a, f32), to(b, f32), bias.defined() ? to(bias, f32) : bias);
      copy_(out, wide);
      return;
    }
    default: {
      const Tensor wide = empty(out.shape(), {.dtype = i64});
      multiply_as<int64_t>(wide, to(a, i64), to(b, i64), bias.defined() ? to(bias, i64) : bias);
      copy_(out, wide);
    }
  }
}

}  // namespace weft::detail
