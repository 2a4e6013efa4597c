#include "apps/weft/bench.h"

#include "core/error.h"
#include "core/json.h"
#include "dist/recorder.h"

#include <algorithm>
#include <cstdio>

namespace weft::app {

double median_seconds(int repeats, int warmup, const std::function<void()>& body) {
  for (int i = 0; i < warmup; ++i)
    body();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const double start = dist::clock_seconds();
    body();
    times.push_back(dist::clock_seconds() - start);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void Bench::print(const std::vector<BenchRow>& rows) const {
  std::printf("%-8s %-20s %7s %7s %-6s %14s %14s %s\n", "bench", "case", "threads", "workers",
              "dtype", "median us", "rate", "unit");
  for (const BenchRow& row : rows) {
    std::printf("%-8s %-20s %7lld %7lld %-6s %14.3f %14.2f %s\n", row.bench.c_str(),
                row.name.c_str(), static_cast<long long>(row.threads),
                static_cast<long long>(row.workers), row.dtype.c_str(), row.median_seconds * 1e6,
                row.rate, row.unit.c_str());
  }
}

void append_json(const std::vector<BenchRow>& rows, const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "ae");
  WEFT_CHECK(file, "bench", "expected to write ", path);
  bool written = true;
  for (const BenchRow& row : rows) {
    const Json line = Json::object({{"bench", row.bench},
                                    {"case", row.name},
                                    {"threads", row.threads},
                                    {"workers", row.workers},
                                    {"dtype", row.dtype},
                                    {"median_seconds", row.median_seconds},
                                    {"rate", row.rate},
                                    {"unit", row.unit}});
    written = std::fprintf(file, "%s\n", line.dump().c_str()) > 0 && written;
  }
  written = std::fclose(file) == 0 && written;
  WEFT_CHECK(written, "bench", "expected to write ", path);
}

Bench::Bench(CommandLine& bench, const std::string& name, const std::string& description)
    : line(&bench.command(name, description)) {
  line->add("--threads", threads, "threads to compute with", 1, 4096);
  line->add("--json", json, "file to append a JSON line a row to");
}

}  // namespace weft::app
