#include "ops/attention.h"

#include "core/parallel.h"
#include "core/profiler.h"
#include "core/random.h"
#include "ops/copy.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/gemm.h"
#include "ops/detail/parts.h"
#include "ops/detail/row_math.h"
#include "ops/view.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft {
namespace {

using detail::Gemm;

// Queries of the smallest block: fewer would cost more in packing than they spare.
constexpr int64_t kLeastBlock = 64;

Shape leading(const Tensor& x) {
  return Shape(std::span(x.shape().begin(), x.shape().end() - 2));
}

Shape with_matrix(Shape batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// Uninitialised [batch, heads, rows, columns], stored with rows before heads; other numbers of dims
// row-major.
Tensor empty_heads(const Shape& shape, DType dtype) {
  if (shape.dims() != 4) return empty(shape, {.dtype = dtype});
  const Tensor stored = empty({shape[0], shape[2], shape[1], shape[3]}, {.dtype = dtype});
  return alias(
      stored, shape,
      {stored.strides()[0], stored.strides()[2], stored.strides()[1], stored.strides()[3]});
}

// Uninitialised tensors for gradients of dtype T. Where q, k and v lie side by side, as parts of
// one product do, so do they.
template <class T>
std::array<Tensor, 3> empty_gradients(const std::array<Tensor, 3>& qkv, const Shape& batch) {
  const Tensor& q = qkv[0];
  const int heads = q.dims() - 3;
  if (heads >= 0 && q.dtype() == dtype_of<T> && leading(q) == batch) {
    if (const Tensor whole = detail::side_by_side(qkv, heads); whole.defined()) {
      const std::vector<Tensor> parts = split(empty_like(whole), q.size(heads), heads);
      if (parts.size() == 3 && leading(qkv[1]) == batch && leading(qkv[2]) == batch)
        return {parts[0], parts[1], parts[2]};
    }
  }
  const auto apart = [&](const Tensor& x) {
    return empty_heads(with_matrix(batch, x.size(-2), x.size(-1)), dtype_of<T>);
  };
  return {apart(qkv[0]), apart(qkv[1]), apart(qkv[2])};
}

// The element offset of each matrix of a batch.
std::vector<int64_t> matrix_offsets(const Tensor& x) {
  std::vector<int64_t> offsets(static_cast<size_t>(leading(x).numel()));
  for (size_t i = 0; i < offsets.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    for (int d = x.dims() - 3; d >= 0; --d) {
      offsets[i] += rest % x.shape()[d] * x.strides()[d];
      rest /= x.shape()[d];
    }
  }
  return offsets;
}

// One matrix of each head, wherever it lies.
template <class T>
struct Heads {
  explicit Heads(const Tensor& x)
      : tensor(x),
        offsets(matrix_offsets(x)),
        row(x.strides()[x.dims() - 2]),
        col(x.strides()[x.dims() - 1]) {}
  T* at(int64_t head) const { return tensor.data<T>() + offsets[static_cast<size_t>(head)]; }

  Tensor tensor;
  std::vector<int64_t> offsets;
  int64_t row;
  int64_t col;
};

// A tile [rows, columns] of scratch.
template <class T>
struct Tile {
  Tile(int64_t rows, int64_t columns)
      : tensor(empty({rows, columns}, {.dtype = dtype_of<T>})), width(columns) {}
  T* row(int64_t i) const { return tensor.data<T>() + i * width; }
  Tensor tensor;
  int64_t width;
};

template <class T>
class Attention {
 public:
  // Inputs expanded to one batch, of dtype T; the mask, expanded too, is bool or T.
  Attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
            const RandomKey& key)
      : q_(q),
        k_(k),
        v_(v),
        options_(options),
        key_(key),
        queries_(q.size(-2)),
        keys_(k.size(-2)),
        depth_(q.size(-1)),
        width_(v.size(-1)),
        heads_(leading(q).numel()),
        block_(
            std::max<int64_t>(options.causal ? std::max(kLeastBlock, queries_ / 8) : queries_, 1)) {
    const double depth = std::max<double>(static_cast<double>(depth_), 1);
    scale_ = static_cast<T>(options.scale != 0 ? options.scale : 1 / std::sqrt(depth));
  }

  // out = weights · v; lse gets log Σ exp(score) of each query.
  void forward(const Tensor& out_tensor, const Tensor& lse) const {
    const Heads<T> out(out_tensor);
    parallel_for(0, heads_, 1, [&](int64_t begin, int64_t end) {
      const Tile<T> weights(std::min(queries_, block_), keys_);
      std::vector<T> divisors(static_cast<size_t>(weights.tensor.size(0)));
      for (int64_t head = begin; head < end; ++head) {
        for (int64_t from = 0; from < queries_; from += block_) {
          const int64_t rows = std::min(block_, queries_ - from);
          const int64_t columns = keys_seen(from + rows - 1);
          scores(head, from, rows, columns, weights.row(0));
          for (int64_t i = 0; i < rows; ++i) {
            const int64_t query = from + i;
            T* row = weights.row(i);
            const int64_t seen = keys_seen(query);
            adjust(head, query, row, seen);
            const T shift = detail::exp_shift(row, seen);
            const T sum = shift == kNone ? T(0) : detail::exp_and_sum_row(row, shift, seen);
            std::fill(row + (shift == kNone ? 0 : seen), row + columns, T(0));
            lse.data<T>()[head * queries_ + query] = shift == kNone ? kNone : shift + std::log(sum);
            divisors[static_cast<size_t>(i)] = shift == kNone ? T(1) : sum;
            drop(head, query, row, seen);
          }
          T* to = out.at(head) + from * out.row;
          product(rows, width_, columns, weights.row(0), keys_, 1, v_.at(head), v_.row, v_.col, to,
                  out.row, out.col);
          for (int64_t i = 0; i < rows; ++i) {
            const T factor = 1 / divisors[static_cast<size_t>(i)];
            for (int64_t j = 0; j < width_; ++j)
              to[i * out.row + j * out.col] *= factor;
          }
        }
      }
    });
  }

  // Gradients of q, k and v, and of the scores where `dmask` is defined; undefined ones are left
  // out.
  void backward(const Tensor& g_tensor, const Tensor& lse, const Tensor& dq, const Tensor& dk,
                const Tensor& dv, const Tensor& dmask) const {
    const Heads<T> g(g_tensor);
    parallel_for(0, heads_, 1, [&](int64_t begin, int64_t end) {
      const Tile<T> weights(queries_, keys_);
      const Tile<T> slopes(queries_, keys_);
      for (int64_t head = begin; head < end; ++head) {
        for (int64_t from = 0; from < queries_; from += block_) {
          const int64_t rows = std::min(block_, queries_ - from);
          const int64_t columns = keys_seen(from + rows - 1);
          scores(head, from, rows, columns, weights.row(from));
          // d weights = g · vᵀ, dropped as the weights were.
          product(rows, columns, width_, g.at(head) + from * g.row, g.row, g.col, v_.at(head),
                  v_.col, v_.row, slopes.row(from), keys_, 1);
          for (int64_t query = from; query < from + rows; ++query) {
            slope_row(
                head, query, columns, lse.data<T>()[head * queries_ + query], weights.row(query),
                slopes.row(query),
                dmask.defined() ? dmask.data<T>() + (head * queries_ + query) * keys_ : nullptr);
          }
          if (dq.defined()) {
            const Heads<T> to(dq);
            product(rows, depth_, columns, slopes.row(from), keys_, 1, k_.at(head), k_.row, k_.col,
                    to.at(head) + from * to.row, to.row, to.col);
          }
        }
        // dk = slopesᵀ · q, dv = weightsᵀ · g.
        if (dk.defined()) by_key(slopes, q_, head, depth_, Heads<T>(dk));
        if (dv.defined()) by_key(weights, g, head, width_, Heads<T>(dv));
      }
    });
  }

 private:
  static constexpr T kNone = -std::numeric_limits<T>::infinity();

  static void product(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_col,
                      const T* b, int64_t b_row, int64_t b_col, T* c, int64_t c_row,
                      int64_t c_col) {
    detail::gemm(Gemm<T>{.m = m,
                         .n = n,
                         .k = k,
                         .a = a,
                         .a_row = a_row,
                         .a_col = a_col,
                         .b = b,
                         .b_row = b_row,
                         .b_col = b_col,
                         .c = c,
                         .c_row = c_row,
                         .c_col = c_col});
  }

  // The first keys, those that a query may see if the order alone decides; the others' weights are
  // 0.
  int64_t keys_seen(int64_t query) const {
    return options_.causal ? std::min(query + 1, keys_) : keys_;
  }

  // q kᵀ for the queries from … from + rows and the first `columns` keys.
  void scores(int64_t head, int64_t from, int64_t rows, int64_t columns, T* to) const {
    product(rows, columns, depth_, q_.at(head) + from * q_.row, q_.row, q_.col, k_.at(head), k_.col,
            k_.row, to, keys_, 1);
  }

  // Scales a query's scores and applies the mask: -inf where it may not look.
  void adjust(int64_t head, int64_t query, T* row, int64_t seen) const {
    const T scale = scale_;
    for (int64_t j = 0; j < seen; ++j)
      row[j] *= scale;
    const Tensor& mask = options_.mask;
    if (!mask.defined()) return;
    const int64_t at = mask_offset(head) + query * mask.stride(-2);
    const int64_t step = mask.stride(-1);
    if (mask.dtype() == boolean) {
      const bool* looks = mask.data<bool>() + at;
      for (int64_t j = 0; j < seen; ++j)
        row[j] = looks[j * step] ? row[j] : kNone;
    } else {
      const T* added = mask.data<T>() + at;
      for (int64_t j = 0; j < seen; ++j)
        row[j] += added[j * step];
    }
  }

  // From a query's scores and its gradient d of the weights: its weights as they were applied, and
  // the slopes of its products, weight · (d - Σ weight d) · scale. `plain` gets them without the
  // scale.
  void slope_row(int64_t head, int64_t query, int64_t columns, T normaliser, T* weights, T* slopes,
                 T* plain) const {
    const int64_t seen = normaliser == kNone ? 0 : keys_seen(query);
    adjust(head, query, weights, seen);
    detail::exp_row(weights, normaliser, T(1), weights, seen);
    drop(head, query, slopes, seen);
    const T mean = detail::dot_row(weights, slopes, seen);
    if (plain) {
      for (int64_t j = 0; j < seen; ++j)
        plain[j] = weights[j] * (slopes[j] - mean);
      std::fill(plain + seen, plain + keys_, T(0));
    }
    const T scale = scale_;
    for (int64_t j = 0; j < seen; ++j)
      slopes[j] = weights[j] * (slopes[j] - mean) * scale;
    std::fill(slopes + seen, slopes + columns, T(0));
    std::fill(weights + seen, weights + columns, T(0));
    drop(head, query, weights, seen);
  }

  // tileᵀ · x, a block of keys at a time: with causality earlier queries do not see them.
  void by_key(const Tile<T>& tile, const Heads<T>& x, int64_t head, int64_t width,
              const Heads<T>& to) const {
    const auto block_of = [&](int64_t key, int64_t count, int64_t first) {
      product(count, width, queries_ - first, tile.row(first) + key, 1, keys_,
              x.at(head) + first * x.row, x.row, x.col, to.at(head) + key * to.row, to.row, to.col);
    };
    if (!options_.causal) return block_of(0, keys_, 0);
    const int64_t seen = std::min(queries_, keys_);
    for (int64_t key = 0; key < seen; key += block_)
      block_of(key, std::min(block_, seen - key), key);
    block_of(seen, keys_ - seen, queries_);  // by nobody
  }

  int64_t mask_offset(int64_t head) const {
    int64_t offset = 0;
    for (int d = options_.mask.dims() - 3; d >= 0; --d) {
      offset += head % options_.mask.shape()[d] * options_.mask.strides()[d];
      head /= options_.mask.shape()[d];
    }
    return offset;
  }

  void drop(int64_t head, int64_t query, T* row, int64_t seen) const {
    if (options_.dropout == 0) return;
    const auto keep = static_cast<T>(options_.dropout < 1 ? 1 / (1 - options_.dropout) : 0);
    const auto threshold = static_cast<float>(options_.dropout);
    std::vector<float> draws(static_cast<size_t>(seen));
    fill_uniform(key_, static_cast<uint64_t>((head * queries_ + query) * keys_), draws.data(),
                 seen);
    for (int64_t j = 0; j < seen; ++j)
      row[j] *= draws[static_cast<size_t>(j)] >= threshold ? keep : T(0);
  }

  Heads<T> q_, k_, v_;
  AttentionOptions options_;
  RandomKey key_;
  int64_t queries_, keys_, depth_, width_, heads_;
  int64_t block_;  // queries at a time: with causality no product goes past the last key they see
  T scale_;
};

template <class T>
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
              const Shape& batch) {
  const auto prepared = [batch](const Tensor& x) {
    return expand(to(x.detach(), dtype_of<T>), with_matrix(batch, x.size(-2), x.size(-1)));
  };
  const Tensor& mask = options.mask;
  AttentionOptions expanded = options;
  if (mask.defined()) {
    const Tensor typed = mask.dtype() == boolean ? mask.detach() : to(mask.detach(), dtype_of<T>);
    expanded.mask = expand(typed, with_matrix(batch, q.size(-2), k.size(-2)));
  }
  const RandomKey key = options.dropout > 0 ? random_state().take() : RandomKey{};
  const Attention<T> attention(prepared(q), prepared(k), prepared(v), expanded, key);
  const Tensor wide = empty_heads(with_matrix(batch, q.size(-2), v.size(-1)), dtype_of<T>);
  const Tensor lse = empty({batch.numel() * q.size(-2)}, {.dtype = dtype_of<T>});
  attention.forward(wide, lse);
  Tensor out = to(wide, q.dtype());
  if (recording(q, k, v, mask)) {
    record("scaled_dot_product_attention", out, inputs(q, k, v, mask),
           [q = Saved(q), k = Saved(k), v = Saved(v), mask = Saved(mask), expanded, key, lse, batch,
            prepared](const Tensor& g, Gradients& grads) {
             constexpr const char* op = "scaled_dot_product_attention";
             mask.get(op);
             const std::array<Tensor, 3> given = {q.get(op), k.get(op), v.get(op)};
             const Attention<T> again(prepared(given[0]), prepared(given[1]), prepared(given[2]),
                                      expanded, key);
             const std::array<Tensor, 3> room = empty_gradients<T>(given, batch);
             std::array<Tensor, 4> wide_gradients;
             for (size_t i = 0; i < 3; ++i) {
               if (grads.wants(i)) wide_gradients[i] = room[i];
             }
             if (grads.wants(3)) {
               wide_gradients[3] = empty(with_matrix(batch, given[0].size(-2), given[1].size(-2)),
                                         {.dtype = dtype_of<T>});
             }
             again.backward(to(g, dtype_of<T>), lse, wide_gradients[0], wide_gradients[1],
                            wide_gradients[2], wide_gradients[3]);
             for (size_t i = 0; i < 4; ++i) {
               if (!grads.wants(i)) continue;
               const Tensor& of = i < 3 ? given[i] : mask.get(op);
               grads.set(i, detail::to_input(wide_gradients[i], of.shape(), of.dtype()));
             }
           });
  }
  return out;
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
  const ProfileOp profile("scaled_dot_product_attention");
  constexpr const char* op = "scaled_dot_product_attention";
  for (const Tensor* x : {&q, &k, &v}) {
    detail::check_floating(op, *x);
    WEFT_CHECK(x->dims() >= 2, op, "expected tensors [..., length, width], got ", x->shape());
    WEFT_CHECK(x->dtype() == q.dtype(), op, "expected one dtype, got ", q.dtype(), " and ",
               x->dtype());
  }
  WEFT_CHECK(q.size(-1) == k.size(-1) && k.size(-2) == v.size(-2), op,
             "expected q [..., queries, d], k [..., keys, d], v [..., keys, dv], got ", q.shape(),
             ", ", k.shape(), ", ", v.shape());
  WEFT_CHECK(options.dropout >= 0 && options.dropout <= 1, op, "expected a dropout in [0, 1], got ",
             options.dropout);
  Shape batch = broadcast_shapes(broadcast_shapes(leading(q), leading(k), op), leading(v), op);
  if (options.mask.defined()) {
    const Tensor& mask = options.mask;
    WEFT_CHECK(mask.dtype() == boolean || is_floating(mask.dtype()), op,
               "expected a mask of bool or floats, got ", mask.dtype());
    const Shape whole = with_matrix(batch, q.size(-2), k.size(-2));
    WEFT_CHECK(mask.dims() >= 2 && broadcast_shapes(whole, mask.shape(), op) == whole, op,
               "expected a mask that broadcasts to ", whole, ", got ", mask.shape());
  }
  return q.dtype() == f64 ? attend<double>(q, k, v, options, batch)
                          : attend<float>(q, k, v, options, batch);
}

}  // namespace weft
