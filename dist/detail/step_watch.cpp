#include "dist/detail/step_watch.h"

#include "core/error.h"
#include "core/ledger.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace weft::dist::detail {
namespace {

// Seconds a step in the window from `begin` to `end`, by phase.
std::array<double, kPhases> step_seconds(const RankSample& begin, const RankSample& end) {
  const auto steps = static_cast<double>(end.step - begin.step);
  std::array<double, kPhases> result{};
  for (size_t i = 0; i < kPhases; ++i)
    result[i] = (end.seconds[i] - begin.seconds[i]) / steps;
  return result;
}

double total(const std::array<double, kPhases>& seconds) {
  double sum = 0;
  for (const double each : seconds)
    sum += each;
  return sum;
}

// What a rank needs by itself: without waiting for others.
double own(const std::array<double, kPhases>& seconds) {
  return total(seconds) - seconds[static_cast<size_t>(Phase::communication)];
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g ms", seconds * 1e3);
  return text;
}

}  // namespace

StepWatch::StepWatch(int ranks, StepWatchOptions options)
    : options_(options),
      behind_(static_cast<size_t>(ranks)),
      starved_(static_cast<size_t>(ranks)),
      memory_(static_cast<size_t>(ranks)),
      told_bytes_(static_cast<size_t>(ranks), 0) {}

std::vector<std::string> StepWatch::add(std::span<const RankSample> samples) {
  std::vector<std::string> lines;
  // The first steps are not like the others, so the first window begins after one.
  const bool stepping =
      std::all_of(samples.begin(), samples.end(), [](const RankSample& s) { return s.step >= 1; });
  if (!stepping) return lines;
  if (begin_.empty()) {
    begin_.assign(samples.begin(), samples.end());
    return lines;
  }
  for (size_t r = 0; r < samples.size(); ++r) {
    if (samples[r].step - begin_[r].step < options_.window_steps) return lines;
  }
  ++windows_;
  if (samples.size() > 1) look_for_slowest(samples, lines);
  look_for_starvation(samples, lines);
  look_for_growth(samples, lines);
  begin_.assign(samples.begin(), samples.end());
  return lines;
}

// Whether it has just become persistent.
bool StepWatch::lasts(Finding& finding, bool now) const {
  if (!now) {
    finding.windows = std::max(0, std::min(finding.windows, options_.windows) - 1);
    if (finding.windows == 0) finding.told = false;
    return false;
  }
  ++finding.windows;
  return finding.windows >= options_.windows && !std::exchange(finding.told, true);
}

void StepWatch::look_for_slowest(std::span<const RankSample> samples,
                                 std::vector<std::string>& lines) {
  std::vector<std::array<double, kPhases>> seconds;
  for (size_t r = 0; r < samples.size(); ++r)
    seconds.push_back(step_seconds(begin_[r], samples[r]));
  size_t slowest = 0;
  for (size_t r = 1; r < seconds.size(); ++r) {
    if (own(seconds[r]) > own(seconds[slowest])) slowest = r;
  }
  std::vector<double> others;
  for (size_t r = 0; r < seconds.size(); ++r) {
    if (r != slowest) others.push_back(own(seconds[r]));
  }
  const double usual = median(others);
  const double its = own(seconds[slowest]);
  for (size_t r = 0; r < seconds.size(); ++r) {
    const bool now =
        r == slowest && its > usual * (1 + options_.behind) && its - usual > options_.least_seconds;
    if (!lasts(behind_[r], now)) continue;
    // The phase in which it loses most.
    size_t where = 0;
    double most = 0;
    for (size_t i = 0; i < kPhases; ++i) {
      if (static_cast<Phase>(i) == Phase::communication) continue;
      std::vector<double> of_others;
      for (size_t o = 0; o < seconds.size(); ++o) {
        if (o != r) of_others.push_back(seconds[o][i]);
      }
      const double lost = seconds[r][i] - median(of_others);
      if (lost > most) {
        most = lost;
        where = i;
      }
    }
    lines.push_back(
        concat({"rank ", static_cast<int64_t>(r), " is the slowest: ", milliseconds(its),
                " a step by itself, the others ", milliseconds(usual), "; it loses ",
                milliseconds(most), " in ", kPhaseNames[where], " (steps ", begin_[r].step + 1,
                " to ", samples[r].step, ")"}));
  }
}

void StepWatch::look_for_starvation(std::span<const RankSample> samples,
                                    std::vector<std::string>& lines) {
  for (size_t r = 0; r < samples.size(); ++r) {
    const auto seconds = step_seconds(begin_[r], samples[r]);
    const double data = seconds[static_cast<size_t>(Phase::data)];
    const bool now = data > options_.starved * total(seconds) && data > options_.least_seconds;
    if (!lasts(starved_[r], now)) continue;
    lines.push_back(concat({"rank ", static_cast<int64_t>(r), " waits for data: ",
                            milliseconds(data), " of ", milliseconds(total(seconds)), " a step"}));
  }
}

void StepWatch::look_for_growth(std::span<const RankSample> samples,
                                std::vector<std::string>& lines) {
  if (windows_ <= options_.settling_windows) return;
  for (size_t r = 0; r < samples.size(); ++r) {
    if (samples[r].resident <= 0) continue;
    std::vector<Point>& points = memory_[r];
    points.push_back(
        {static_cast<double>(samples[r].step), static_cast<double>(samples[r].resident)});
    const auto wanted = static_cast<size_t>(options_.growth_windows);
    if (points.size() > wanted) points.erase(points.begin());
    if (points.size() < wanted) continue;
    // Least squares; and it rises in most windows, so that one jump does not count.
    double step = 0;
    double bytes = 0;
    int rises = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      step += points[i].step / static_cast<double>(points.size());
      bytes += points[i].bytes / static_cast<double>(points.size());
      if (i > 0 && points[i].bytes > points[i - 1].bytes) ++rises;
    }
    double above = 0;
    double below = 0;
    for (const Point& point : points) {
      above += (point.step - step) * (point.bytes - bytes);
      below += (point.step - step) * (point.step - step);
    }
    const double slope = above / below;
    const double grown = slope * (points.back().step - points.front().step);
    const bool grows = grown > static_cast<double>(options_.growth_bytes) &&
                       grown > options_.growth_share * points.front().bytes &&
                       rises * 4 >= static_cast<int>(points.size() - 1) * 3;
    // Told again when it has doubled.
    if (!grows || points.back().bytes < 2 * told_bytes_[r]) continue;
    told_bytes_[r] = points.back().bytes;
    lines.push_back(concat({"rank ", static_cast<int64_t>(r), " grows by ",
                            format_bytes(static_cast<int64_t>(slope * 100)), " in 100 steps: ",
                            format_bytes(static_cast<int64_t>(points.front().bytes)), " at step ",
                            static_cast<int64_t>(points.front().step), ", ",
                            format_bytes(static_cast<int64_t>(points.back().bytes)), " at step ",
                            static_cast<int64_t>(points.back().step)}));
  }
}

}  // namespace weft::dist::detail
