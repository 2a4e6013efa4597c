#include "ops/creation.h"

#include "autograd/record.h"
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/detail/convert.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/overwrite.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weft {
namespace {

constexpr int64_t kGrain = 64 * 1024;

// `count` copies of the first `width` bytes at `pattern`.
void fill_bytes(std::byte* to, const std::byte* pattern, int64_t width, int64_t count) {
  bool uniform = true;
  for (int64_t i = 1; i < width; ++i)
    uniform = uniform && pattern[i] == pattern[0];
  parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    std::byte* at = to + begin * width;
    if (uniform) {
      std::memset(at, std::to_integer<int>(pattern[0]), static_cast<size_t>((end - begin) * width));
      return;
    }
    // Doubling: what is written serves as the source of the rest, up to a piece that stays in the
    // cache.
    const int64_t bytes = (end - begin) * width;
    int64_t done = width;
    std::memcpy(at, pattern, static_cast<size_t>(width));
    while (done < bytes) {
      const int64_t piece = std::min({done, bytes - done, int64_t{16} * 1024});
      std::memcpy(at + done, at, static_cast<size_t>(piece));
      done += piece;
    }
  });
}

struct Same {
  template <class V>
  V operator()(V x) const {
    return x;
  }
};

void write_constant(const Tensor& target, Scalar value) {
  const Tensor operand = detail::scalar_operand(value, target.dtype());
  if (!target.is_dense() || target.numel() == 0) {
    return detail::apply<Same, detail::Domain::any>(target, target.dtype(), {}, operand);
  }
  alignas(8) std::byte pattern[8];
  const Tensor one = to(operand, target.dtype());
  std::memcpy(pattern, one.raw(), static_cast<size_t>(size_of(target.dtype())));
  fill_bytes(target.raw(), pattern, size_of(target.dtype()), target.numel());
}

int64_t count_of_range(double begin, double end, double step) {
  WEFT_CHECK(step != 0 && std::isfinite(begin) && std::isfinite(end) && std::isfinite(step),
             "arange", "expected finite numbers and a step other than 0, got ", begin, ", ", end,
             ", ", step);
  const double count = std::ceil((end - begin) / step);
  WEFT_CHECK(count < 0x1p53, "arange", "expected a range that fits in memory, got ", count,
             " elements");
  return std::max<int64_t>(static_cast<int64_t>(count), 0);
}

bool all_integers(Scalar a, Scalar b, Scalar c) {
  return !a.is_floating() && !b.is_floating() && !c.is_floating();
}

}  // namespace

Tensor full(const Shape& shape, Scalar value, Options options) {
  const Tensor out = empty(shape, options);
  write_constant(out, value);
  return out;
}
Tensor zeros(const Shape& shape, Options options) {
  return full(shape, 0, options);
}
Tensor ones(const Shape& shape, Options options) {
  return full(shape, 1, options);
}

Tensor full_like(const Tensor& like, Scalar value) {
  detail::check_defined("full_like", like);
  const Tensor out = empty_like(like);
  write_constant(out, value);
  return out;
}
Tensor zeros_like(const Tensor& like) {
  return full_like(like, 0);
}
Tensor ones_like(const Tensor& like) {
  return full_like(like, 1);
}

Tensor arange(Scalar begin, Scalar end, Scalar step, Options options) {
  if (all_integers(begin, end, step)) {
    const int64_t first = begin.to_int();
    const int64_t by = step.to_int();
    WEFT_CHECK(by != 0, "arange", "expected a step other than 0, got 0");
    const bool up = by > 0;
    const auto low = static_cast<uint64_t>(up ? first : end.to_int());
    const auto high = static_cast<uint64_t>(up ? end.to_int() : first);
    const bool any = up ? first < end.to_int() : end.to_int() < first;
    const uint64_t stride =
        up ? static_cast<uint64_t>(by) : uint64_t{0} - static_cast<uint64_t>(by);
    const uint64_t count = any ? (high - low - 1) / stride + 1 : 0;
    WEFT_CHECK(count < uint64_t{1} << 53, "arange",
               "expected a range that fits in memory, got one from ", first, " to ", end.to_int());
    return detail::generate<int64_t>({static_cast<int64_t>(count)}, options,
                                     [&](int64_t i) { return first + i * by; });
  }
  const double first = begin.to_double();
  const double by = step.to_double();
  return detail::generate<double>({count_of_range(first, end.to_double(), by)}, options,
                                  [&](int64_t i) { return first + static_cast<double>(i) * by; });
}
Tensor arange(Scalar begin, Scalar end, Scalar step) {
  return arange(begin, end, step, {.dtype = all_integers(begin, end, step) ? i64 : f32});
}
Tensor arange(Scalar end) {
  return arange(0, end, 1);
}

Tensor linspace(double begin, double end, int64_t count, Options options) {
  WEFT_CHECK(count >= 0 && is_floating(options.dtype), "linspace",
             "expected a count of 0 or more and a floating dtype, got ", count, " and ",
             options.dtype);
  const double step = count > 1 ? (end - begin) / static_cast<double>(count - 1) : 0;
  return detail::generate<double>({count}, options, [&](int64_t i) {
    return i < (count + 1) / 2 ? begin + step * static_cast<double>(i)
                               : end - step * static_cast<double>(count - 1 - i);
  });
}

Tensor eye(int64_t rows, int64_t columns, Options options) {
  const Tensor out = zeros({rows, columns == -1 ? rows : columns}, options);
  const int64_t ones = std::min(out.shape()[0], out.shape()[1]);
  if (ones > 0) write_constant(alias(out, {ones}, {out.shape()[1] + 1}), 1);
  return out;
}

Tensor fill_(const Tensor& target, Scalar value) {
  const detail::Overwrite overwrite("fill_", target);
  write_constant(target, value);
  return overwrite.done();
}
Tensor zero_(const Tensor& target) {
  const detail::Overwrite overwrite("zero_", target);
  write_constant(target, 0);
  return overwrite.done();
}

}  // namespace weft
