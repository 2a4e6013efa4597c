#include "nn/profile.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <unordered_map>

namespace weft::nn {
namespace {

// What one line sums up.
struct Sum {
  std::string name;
  std::string type;
  int64_t calls = 0;
  double seconds = 0;
  double forward = 0;
  double backward = 0;
  double flops = 0;
  double bytes = 0;
  double bound = 0;  // seconds

  void add(const ProfileEntry& entry, const MachineSpeed& speed) {
    calls += entry.calls;
    seconds += entry.seconds;
    (entry.backward ? backward : forward) += entry.seconds;
    const auto entry_flops = static_cast<double>(entry.flops);
    const auto entry_bytes = static_cast<double>(entry.bytes);
    flops += entry_flops;
    bytes += entry_bytes;
    bound += std::max(entry_flops / speed.flops, entry_bytes / speed.bytes);
  }
};

[[gnu::format(printf, 2, 3)]] void print(std::string& text, const char* format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
}

// The last columns of a line, the same in both tables.
void print_rates(std::string& text, const Sum& sum, const ProfileRun& run) {
  const double steps = static_cast<double>(run.steps);
  const double seconds = std::max(sum.seconds, 1e-9);
  print(text, " %9.3f %6.1f%% %9.1f %8.1f %8.0f%%\n", 1e3 * sum.seconds / steps,
        100 * sum.seconds / run.seconds, 1e-9 * sum.flops / seconds, 1e-9 * sum.bytes / seconds,
        100 * sum.bound / seconds);
}

void print_operators(std::string& text, const Profiler& profiler, const ProfileRun& run) {
  std::vector<Sum> sums;
  for (const ProfileEntry& entry : profiler.entries()) {
    const std::string name = std::string(entry.op) + (entry.backward ? " backward" : "");
    auto at = std::find_if(sums.begin(), sums.end(), [&](const Sum& s) { return s.name == name; });
    if (at == sums.end()) at = sums.insert(at, {.name = name, .type = {}});
    at->add(entry, run.speed);
  }
  std::stable_sort(sums.begin(), sums.end(),
                   [](const Sum& a, const Sum& b) { return a.seconds > b.seconds; });
  print(text, "%-36s %8s %9s %7s %9s %8s %9s\n", "operator", "calls", "ms", "step", "GFLOP/s",
        "GB/s", "of bound");
  Sum all{.name = "all operators", .type = {}};
  for (const Sum& sum : sums) {
    print(text, "%-36s %8.1f", sum.name.c_str(),
          static_cast<double>(sum.calls) / static_cast<double>(run.steps));
    print_rates(text, sum, run);
    all.calls += sum.calls;
    all.seconds += sum.seconds;
    all.flops += sum.flops;
    all.bytes += sum.bytes;
    all.bound += sum.bound;
  }
  if (all.seconds > 0) {
    print(text, "%-36s %8.1f", all.name.c_str(),
          static_cast<double>(all.calls) / static_cast<double>(run.steps));
    print_rates(text, all, run);
  }
  const double rest = run.seconds - all.seconds;
  print(text, "%-36s %8s %9.3f %6.1f%%\n", "outside operators", "",
        1e3 * rest / static_cast<double>(run.steps), 100 * rest / run.seconds);
}

void print_layers(std::string& text, const Profiler& profiler, Module& model,
                  const ProfileRun& run) {
  std::vector<Sum> sums;
  std::unordered_map<const void*, size_t> place;
  for (const auto& [name, module] : model.named_modules()) {
    place.emplace(module, sums.size());
    sums.push_back({.name = name.empty() ? "(model)" : name, .type = module->type()});
  }
  const size_t outside = sums.size();
  sums.push_back({.name = "(outside)", .type = {}});
  for (const ProfileEntry& entry : profiler.entries()) {
    const auto at = place.find(entry.layer);
    sums[at == place.end() ? outside : at->second].add(entry, run.speed);
  }
  const double steps = static_cast<double>(run.steps);
  print(text, "%-28s %-16s %9s %9s %9s %7s %9s %8s %9s\n", "layer", "type", "forward", "backward",
        "ms", "step", "GFLOP/s", "GB/s", "of bound");
  for (const Sum& sum : sums) {
    if (sum.calls == 0) continue;
    print(text, "%-28s %-16s %9.3f %9.3f", sum.name.c_str(), sum.type.c_str(),
          1e3 * sum.forward / steps, 1e3 * sum.backward / steps);
    print_rates(text, sum, run);
  }
}

}  // namespace

std::string profile_table(const Profiler& profiler, Module& model, const ProfileRun& run) {
  WEFT_CHECK(run.steps > 0 && run.seconds > 0 && run.speed.flops > 0 && run.speed.bytes > 0,
             "profile_table", "expected steps, seconds and speeds above 0, got ", run.steps,
             " and ", run.seconds);
  std::string text;
  print(text, "%ld steps of %.3f ms; at best %.1f GFLOP/s and %.1f GB/s\n\n",
        static_cast<long>(run.steps), 1e3 * run.seconds / static_cast<double>(run.steps),
        1e-9 * run.speed.flops, 1e-9 * run.speed.bytes);
  print_operators(text, profiler, run);
  text += "\n";
  print_layers(text, profiler, model, run);
  return text;
}

}  // namespace weft::nn
