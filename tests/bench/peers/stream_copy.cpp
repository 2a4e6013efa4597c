// The memory speed that optimizers are held against: STREAM's copy of 256 MiB, read and written
// bytes counted.
//   stream_copy stream --threads N --json FILE

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  int threads = 1;
  const char* path = nullptr;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string_view(argv[i]) == "--threads") threads = std::atoi(argv[i + 1]);
    if (std::string_view(argv[i]) == "--json") path = argv[i + 1];
  }
  omp_set_num_threads(threads);
  constexpr std::ptrdiff_t elements = std::ptrdiff_t{1} << 26;
  const std::unique_ptr<float[]> from(new float[elements]);
  const std::unique_ptr<float[]> to(new float[elements]);
  // Touched first by the threads that will use them.
#pragma omp parallel for schedule(static)
  for (std::ptrdiff_t i = 0; i < elements; ++i) {
    from[i] = static_cast<float>(i);
    to[i] = 0;
  }

  std::vector<double> seconds;
  for (int round = 0; round < 9; ++round) {
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel
    {
      const std::ptrdiff_t share = elements / omp_get_num_threads();
      const std::ptrdiff_t first = share * omp_get_thread_num();
      const bool last = omp_get_thread_num() + 1 == omp_get_num_threads();
      const std::ptrdiff_t count = last ? elements - first : share;
      std::memcpy(to.get() + first, from.get() + first,
                  static_cast<std::size_t>(count) * sizeof(float));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (round >= 2) seconds.push_back(took.count());
  }
  if (to[elements - 1] != from[elements - 1]) return 1;
  std::nth_element(seconds.begin(), seconds.begin() + 3, seconds.end());
  const double median = seconds[3];
  std::FILE* file = path != nullptr ? std::fopen(path, "w") : stdout;
  if (file == nullptr) return 1;
  std::fprintf(file,
               "{\"bench\":\"stream\",\"case\":\"copy\",\"threads\":%d,\"workers\":1,"
               "\"dtype\":\"f32\",\"median_seconds\":%.9g,\"rate\":%.6g,\"unit\":\"GB/s\"}\n",
               threads, median, 2.0 * elements * sizeof(float) / median / 1e9);
  return 0;
}
