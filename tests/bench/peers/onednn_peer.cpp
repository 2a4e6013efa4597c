// What matrix products are held against: oneDNN's own matmul, in the layouts it likes best, without
// anything of Weft around it.
//   onednn_peer op --case matmul_1024_f32|matmul_1024_bf16 --threads N --json FILE
// Exits with 3 where the processor, for oneDNN, has no such product.

#include <dnnl.hpp>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int64_t kSize = 1024;
constexpr int kWarmup = 3;
constexpr int kRepeats = 15;

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

struct Arguments {
  std::string name;
  const char* path = nullptr;
  int threads = 1;
};

double median_seconds(Type type) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const dnnl::memory::dims sizes{kSize, kSize};
  // A and C row-major, as the caller has them; B may be laid out once, before the clock runs.
  const dnnl::memory::desc rows(sizes, type, Tag::ab);
  const dnnl::memory::desc any(sizes, type, Tag::any);
  const dnnl::matmul::primitive_desc description(engine, rows, any, rows);
  const dnnl::matmul product(description);

  std::vector<float> values(kSize * kSize);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 251) / 251 - 0.5f;
  dnnl::memory given({sizes, Type::f32, Tag::ab}, engine, values.data());
  dnnl::memory a(description.src_desc(), engine);
  dnnl::memory b(description.weights_desc(), engine);
  dnnl::memory c(description.dst_desc(), engine);
  dnnl::reorder(given, a).execute(stream, given, a);
  dnnl::reorder(given, b).execute(stream, given, b);
  stream.wait();

  std::vector<double> seconds;
  for (int i = 0; i < kWarmup + kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    product.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    stream.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i >= kWarmup) seconds.push_back(took.count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--case") arguments.name = argv[i + 1];
    if (flag == "--threads") arguments.threads = std::atoi(argv[i + 1]);
    if (flag == "--json") arguments.path = argv[i + 1];
  }
  const bool is_f32 = arguments.name == "matmul_1024_f32";
  if (!is_f32 && arguments.name != "matmul_1024_bf16") return 3;
  omp_set_num_threads(arguments.threads);
  try {
    const double seconds = median_seconds(is_f32 ? Type::f32 : Type::bf16);
    const char* dtype = is_f32 ? "f32" : "bf16";
    const double rate = 2e-9 * kSize * kSize * kSize / seconds;
    std::printf("oneDNN %s, %d threads: %.0f us, %.1f GFLOP/s\n", arguments.name.c_str(),
                arguments.threads, seconds * 1e6, rate);
    if (!arguments.path) return 0;
    std::FILE* file = std::fopen(arguments.path, "a");
    if (!file) return 1;
    std::fprintf(
        file,
        "{\"bench\": \"op\", \"case\": \"%s\", \"threads\": %d, \"workers\": 1, \"dtype\": "
        "\"%s\", \"median_seconds\": %.9g, \"rate\": %.6g, \"unit\": \"GFLOP/s\"}\n",
        arguments.name.c_str(), arguments.threads, dtype, seconds, rate);
    return std::fclose(file) == 0 ? 0 : 1;
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return 3;
    std::fprintf(stderr, "onednn_peer: %s\n", error.what());
    return 1;
  }
}
