// Where the windows of a pooling lie along one axis: the same description serves strided, dilated,
// padded and adaptive pooling, forward (which inputs an output sees) and backward (which outputs
// saw an input).
#pragma once

#include <cstdint>
#include <vector>

namespace weft::detail {

struct PoolWindow {
  int64_t start = 0;  // position of tap 0; negative inside the padding
  int64_t first = 0;  // taps [first, end) lie inside the input
  int64_t end = 0;
  int64_t places = 0;  // taps that count in a mean
};

struct PoolUse {
  int64_t window = 0;
  int64_t tap = 0;
};

struct PoolAxis {
  int64_t size = 0;  // of the input
  int64_t taps = 0;  // of the largest window
  int64_t dilation = 1;
  std::vector<PoolWindow> windows = {};  // one an output
  std::vector<int64_t> first_use = {};   // of input i: uses[first_use[i]] .. uses[first_use[i + 1]]
  std::vector<PoolUse> uses = {};        // in ascending order of window
  bool tiles = false;                    // every input is seen exactly once
};

// One axis of a pooling as its caller describes it.
struct PoolSpan {
  int64_t size = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  bool ceil_mode = false;
  bool count_padding = false;  // padding counts in a mean
};

// Number of windows; 0 or less if none fits.
int64_t pool_outputs(const PoolSpan& span);
PoolAxis pool_axis(const PoolSpan& span);
// `outputs` windows that cover [floor(i * size / outputs), ceil((i + 1) * size / outputs)).
PoolAxis adaptive_axis(int64_t size, int64_t outputs);

}  // namespace weft::detail
