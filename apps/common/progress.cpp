#include "apps/common/progress.h"

#include "dist/recorder.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace weft::app {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr int kBarWidth = 28;

}  // namespace

Progress::Progress(int64_t epochs, int64_t steps_per_epoch, bool quiet, std::string unit)
    : epochs_(epochs),
      steps_per_epoch_(steps_per_epoch),
      quiet_(quiet),
      unit_(std::move(unit)),
      terminal_(isatty(STDOUT_FILENO) == 1 || std::getenv("WEFT_TERMINAL")) {}

void Progress::step(int64_t epoch, int64_t step, double loss, double rate) {
  if (quiet_ || !terminal_) return;
  const double now = dist::clock_seconds();
  if (now - last_drawn_ < kRedrawSeconds && step < steps_per_epoch_) return;
  last_drawn_ = now;
  std::string bar(static_cast<size_t>(kBarWidth), ' ');
  const auto filled = static_cast<size_t>(kBarWidth * step / steps_per_epoch_);
  bar.replace(0, filled, filled, '#');
  std::printf("\r\033[Kepoch %lld/%lld [%s] %lld/%lld  loss %.4f  %.*f %s",
              static_cast<long long>(epoch + 1), static_cast<long long>(epochs_), bar.c_str(),
              static_cast<long long>(step), static_cast<long long>(steps_per_epoch_), loss,
              rate < 100 ? 1 : 0, rate, unit_.c_str());
  std::fflush(stdout);
  drawn_ = true;
}

void Progress::line(const std::string& text) {
  if (quiet_) return;
  clear();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Progress::clear() {
  if (drawn_) std::printf("\r\033[K");
  drawn_ = false;
}

}  // namespace weft::app
