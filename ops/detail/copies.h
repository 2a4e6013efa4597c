// What operators do to their operands before they can compute, counted for the calling thread: a
// test reads it to show that a training step copies no image.
#pragma once

#include <cstdint>

namespace weft::detail {

struct CopyCounts {
  int64_t images = 0;   // images, or gradients of their size, brought into another layout or dtype
  int64_t weights = 0;  // weights of convolutions arranged for a kernel, or brought back from it
  int64_t primitives = 0;  // primitives of oneDNN made
  int64_t references = 0;  // runs of oneDNN's reference implementations
};

CopyCounts& copy_counts();

}  // namespace weft::detail
