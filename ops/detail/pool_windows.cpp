#include "ops/detail/pool_windows.h"

#include <algorithm>

namespace weft::detail {
namespace {

// Fills in what follows from the windows: the reverse index.
void add_uses(PoolAxis& axis) {
  axis.first_use.assign(static_cast<size_t>(axis.size) + 1, 0);
  const auto each = [&](auto visit) {
    for (size_t w = 0; w < axis.windows.size(); ++w) {
      const PoolWindow& window = axis.windows[w];
      for (int64_t tap = window.first; tap < window.end; ++tap) {
        visit(static_cast<size_t>(window.start + tap * axis.dilation), static_cast<int64_t>(w),
              tap);
      }
    }
  };
  each([&](size_t at, int64_t, int64_t) { ++axis.first_use[at + 1]; });
  axis.tiles = std::all_of(axis.first_use.begin() + 1, axis.first_use.end(),
                           [](int64_t n) { return n == 1; });
  for (size_t i = 1; i < axis.first_use.size(); ++i)
    axis.first_use[i] += axis.first_use[i - 1];
  axis.uses.resize(static_cast<size_t>(axis.first_use.back()));
  std::vector<int64_t> next(axis.first_use.begin(), axis.first_use.end() - 1);
  each([&](size_t at, int64_t window, int64_t tap) {
    axis.uses[static_cast<size_t>(next[at]++)] = {window, tap};
  });
}

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

int64_t pool_outputs(const PoolSpan& span) {
  const int64_t room = span.size + 2 * span.padding - span.dilation * (span.kernel - 1) - 1;
  if (room < 0) return 0;
  int64_t outputs = (span.ceil_mode ? divide_up(room, span.stride) : room / span.stride) + 1;
  // A window that would start in the padding on the right is dropped, as PyTorch does.
  if (span.ceil_mode && (outputs - 1) * span.stride >= span.size + span.padding) --outputs;
  return outputs;
}

PoolAxis pool_axis(const PoolSpan& span) {
  PoolAxis axis{.size = span.size, .taps = span.kernel, .dilation = span.dilation};
  const int64_t outputs = pool_outputs(span);
  axis.windows.reserve(static_cast<size_t>(outputs));
  for (int64_t i = 0; i < outputs; ++i) {
    PoolWindow window{.start = i * span.stride - span.padding};
    window.first = window.start < 0 ? divide_up(-window.start, span.dilation) : 0;
    window.end =
        std::clamp(divide_up(span.size - window.start, span.dilation), window.first, span.kernel);
    // With ceil_mode the last window may reach past the padding; what lies there never counts.
    const int64_t padded_end = std::min(window.start + span.kernel, span.size + span.padding);
    window.places = span.count_padding ? padded_end - window.start : window.end - window.first;
    axis.windows.push_back(window);
  }
  add_uses(axis);
  return axis;
}

PoolAxis adaptive_axis(int64_t size, int64_t outputs) {
  PoolAxis axis{.size = size};
  axis.windows.reserve(static_cast<size_t>(outputs));
  for (int64_t i = 0; i < outputs; ++i) {
    // floor(i * size / outputs) without a product that could overflow
    const int64_t whole = size / outputs;
    const int64_t rest = size % outputs;
    const int64_t begin = i * whole + i * rest / outputs;
    const int64_t end = (i + 1) * whole + divide_up((i + 1) * rest, outputs);
    axis.windows.push_back({.start = begin, .first = 0, .end = end - begin, .places = end - begin});
    axis.taps = std::max(axis.taps, end - begin);
  }
  add_uses(axis);
  return axis;
}

}  // namespace weft::detail
