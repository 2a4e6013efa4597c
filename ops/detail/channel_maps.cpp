#include "ops/detail/channel_maps.h"

#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/detail/lane_bits.h"
#include "ops/detail/wide_lanes.h"

namespace weft::detail {
namespace {

// Results of more bytes are not found in cache by whoever reads them next: they go past it, which
// saves reading the lines they overwrite.
constexpr int64_t kStreamBytes = int64_t{16} << 20;
constexpr int64_t kThreadElements = 16384;

// The address of elements, or null for an undefined tensor.
template <class T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? reinterpret_cast<T*>(tensor.raw()) : nullptr;
}

int64_t bytes_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.bytes() : 0;
}

// f.operator()<true or false>().
template <class F>
void dispatch_bool(bool value, const F& f) {
  return value ? f.template operator()<true>() : f.template operator()<false>();
}

// Whether a result of S may be streamed: packets then begin at multiples of their size.
template <class S>
bool streams(const Tensor& out, const ChannelRows& shape) {
  constexpr auto packet = static_cast<uintptr_t>(kLanes<Compute<S>>) * sizeof(S);
  return out.bytes() >= kStreamBytes && shape.channels % kLanes<Compute<S>> == 0 &&
         reinterpret_cast<uintptr_t>(out.raw()) % packet == 0;
}

// Calls visit(row, offset of its segment's parameters) for all rows, from the last block to the
// first.
template <class F>
void each_row(const ChannelRows& shape, bool streaming, const F& visit) {
  const int64_t block = channel_block_rows(shape);
  const int64_t per_segment = (shape.rows + block - 1) / block;
  const int64_t grain = std::max<int64_t>(1, kThreadElements / (block * shape.channels));
  parallel_for(0, shape.segments * per_segment, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = end - 1; b >= begin; --b) {
      const int64_t segment = b / per_segment;
      const int64_t first = b % per_segment * block;
      const int64_t last = std::min(shape.rows, first + block);
      for (int64_t row = first; row < last; ++row)
        visit(segment * shape.rows + row, segment * shape.channels);
    }
    if (streaming) stream_fence();
  });
}

template <class S, bool Stream, bool Add, bool Relu>
void affine_rows(const Tensor& out, const Tensor& dead, const Tensor& x, const Affine& affine,
                 const ChannelRows& shape) {
  using T = Compute<S>;
  const int64_t channels = shape.channels;
  const int64_t pitch = bit_pitch<T>(channels);
  const S* from = x.data<S>();
  const S* add = data_or_null<const S>(affine.residual);
  S* to = out.data<S>();
  auto* bits = data_or_null<uint8_t>(dead);
  const T* mean = affine.mean.data<T>();
  const T* scale = affine.scale.data<T>();
  const T* shift = affine.shift.data<T>();
  each_row(shape, Stream, [=](int64_t row, int64_t at) {
    const int64_t first = row * channels;
    uint8_t* row_bits = bits ? bits + row * pitch : nullptr;
    for_lanes<T>(channels, [&]<class V>(int64_t c) {
      V y = fma(load_wide<V>(from + first + c) - load<V>(mean + at + c), load<V>(scale + at + c),
                load<V>(shift + at + c));
      if constexpr (Add) y += load_wide<V>(add + first + c);
      if constexpr (Relu) {
        const auto cut = y <= V{};  // false for NaN, which stays
        if (row_bits) store_bits<V>(row_bits, c, cut);
        y = functors::where(cut, V{}, y);
      }
      store_wide<Stream>(to + first + c, y);
    });
  });
}

// g where it got through ReLU, else 0.
template <class V, bool Gated, class S>
inline V gated(const S* g, const uint8_t* row_bits, int64_t c) {
  const V value = load_wide<V>(g + c);
  if constexpr (!Gated) {
    return value;
  } else {
    return functors::where(load_bits<V>(row_bits, c), V{}, value);
  }
}

// The same stored as it is: 16-bit numbers need not be widened for that.
template <bool Stream, class V, bool Gated, class S>
inline void copy_gated(S* to, const S* g, const uint8_t* row_bits, int64_t c) {
  if constexpr (Gated && sizeof(S) == 2 && !std::is_arithmetic_v<V>) {
    store_halves<Stream>(to + c, clear_halves(row_bits, c, load<HalfLanes>(g + c)));
  } else {
    store_wide<Stream>(to + c, gated<V, Gated>(g, row_bits, c));
  }
}

template <class S, bool Stream, bool Gated, bool Residual>
void blend_rows(const Tensor& out, const Tensor& dresidual, const Tensor& g, const Tensor& dead,
                const Tensor& x, const Blend& blend, const ChannelRows& shape) {
  using T = Compute<S>;
  const int64_t channels = shape.channels;
  const int64_t pitch = Gated ? bit_pitch<T>(channels) : 0;
  const S* gradient = g.data<S>();
  const S* in = x.data<S>();
  S* to = out.data<S>();
  S* to_residual = data_or_null<S>(dresidual);
  const auto* bits = data_or_null<const uint8_t>(dead);
  const T* mean = blend.mean.data<T>();
  const T* scale = blend.scale.data<T>();
  const T* slope = blend.slope.data<T>();
  const T* shift = blend.shift.data<T>();
  each_row(shape, Stream, [=](int64_t row, int64_t at) {
    const int64_t first = row * channels;
    // Row by row, since the stores of two streams at once would break up each other's lines.
    if constexpr (Residual) {
      for_lanes<T>(channels, [&]<class V>(int64_t c) {
        copy_gated<Stream, V, Gated>(to_residual + first, gradient + first, bits + row * pitch, c);
      });
    }
    for_lanes<T>(channels, [&]<class V>(int64_t c) {
      const V h = gated<V, Gated>(gradient + first, bits + row * pitch, c);
      const V rest = fma(load_wide<V>(in + first + c) - load<V>(mean + at + c),
                         load<V>(slope + at + c), load<V>(shift + at + c));
      store_wide<Stream>(to + first + c, fma(h, load<V>(scale + at + c), rest));
    });
  });
}

template <class S, bool Stream, bool Gated, bool Scaled>
void gate_rows(const Tensor& out, const Tensor& g, const Tensor& dead, const Tensor& scale,
               const ChannelRows& shape) {
  using T = Compute<S>;
  const int64_t channels = shape.channels;
  const int64_t pitch = Gated ? bit_pitch<T>(channels) : 0;
  const S* gradient = g.data<S>();
  S* to = out.data<S>();
  const auto* bits = data_or_null<const uint8_t>(dead);
  const T* factor = data_or_null<const T>(scale);
  each_row(shape, Stream, [=](int64_t row, int64_t at) {
    const int64_t first = row * channels;
    for_lanes<T>(channels, [&]<class V>(int64_t c) {
      V h = gated<V, Gated>(gradient + first, bits + row * pitch, c);
      if constexpr (Scaled) h *= load<V>(factor + at + c);
      store_wide<Stream>(to + first + c, h);
    });
  });
}

}  // namespace

Tensor channel_bits(DType dtype, const ChannelRows& shape) {
  const int64_t pitch =
      dtype == f64 ? bit_pitch<double>(shape.channels) : bit_pitch<float>(shape.channels);
  return empty({shape.segments * shape.rows, pitch}, {.dtype = u8});
}

void channel_affine(const Tensor& out, const Tensor& dead, const Tensor& x, const Affine& affine,
                    const ChannelRows& shape) {
  profile_work(3 * x.numel(), (affine.residual.defined() ? 3 : 2) * x.bytes() + bytes_of(dead));
  dispatch_elements(x.dtype(), [&]<class S>() {
    dispatch_bool(streams<S>(out, shape), [&]<bool Stream>() {
      dispatch_bool(affine.residual.defined(), [&]<bool Add>() {
        dispatch_bool(affine.relu, [&]<bool Relu>() {
          affine_rows<S, Stream, Add, Relu>(out, dead, x, affine, shape);
        });
      });
    });
  });
}

void channel_blend(const Tensor& out, const Tensor& dresidual, const Tensor& g, const Tensor& dead,
                   const Tensor& x, const Blend& blend, const ChannelRows& shape) {
  profile_work(5 * x.numel(), (dresidual.defined() ? 4 : 3) * x.bytes() + bytes_of(dead));
  dispatch_elements(x.dtype(), [&]<class S>() {
    dispatch_bool(streams<S>(out, shape), [&]<bool Stream>() {
      dispatch_bool(dead.defined(), [&]<bool Gated>() {
        dispatch_bool(dresidual.defined(), [&]<bool Residual>() {
          blend_rows<S, Stream, Gated, Residual>(out, dresidual, g, dead, x, blend, shape);
        });
      });
    });
  });
}

void channel_gate(const Tensor& out, const Tensor& g, const Tensor& dead, const Tensor& scale,
                  const ChannelRows& shape) {
  profile_work(g.numel(), 2 * g.bytes() + bytes_of(dead));
  dispatch_elements(g.dtype(), [&]<class S>() {
    dispatch_bool(streams<S>(out, shape), [&]<bool Stream>() {
      dispatch_bool(dead.defined(), [&]<bool Gated>() {
        dispatch_bool(scale.defined(), [&]<bool Scaled>() {
          gate_rows<S, Stream, Gated, Scaled>(out, g, dead, scale, shape);
        });
      });
    });
  });
}

}  // namespace weft::detail
