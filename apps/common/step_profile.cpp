#include "apps/common/step_profile.h"

#include "dist/recorder.h"

namespace weft::app {

void StepProfile::step(const std::function<void()>& body) {
  if (!warm_) {
    warm_ = true;
    return body();
  }
  const ProfilerScope scope(profiler_);
  const double start = dist::clock_seconds();
  body();
  run_.seconds += dist::clock_seconds() - start;
  ++run_.steps;
}

std::string StepProfile::table(nn::Module& model) const {
  return nn::profile_table(profiler_, model, run_);
}

}  // namespace weft::app
