#include "ops/detail/copies.h"

namespace weft::detail {

CopyCounts& copy_counts() {
  thread_local CopyCounts counts;
  return counts;
}

}  // namespace weft::detail
