#include "apps/common/step_clock.h"

#include <chrono>

namespace weft::app {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace weft::app
