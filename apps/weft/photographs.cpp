#include "apps/weft/photographs.h"

#include "core/random.h"
#include "data/image_file.h"
#include "ops/view.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

namespace weft::app {
namespace {

namespace fs = std::filesystem;

constexpr int kImages = 32;  // of each size
constexpr size_t kBytes = 60'000;

// Noise that is smooth over `cell` pixels, added with a weight: bilinear between random values.
void add_noise(std::vector<float>& values, int64_t width, int64_t height, int64_t cell,
               float weight, uint64_t seed) {
  const int64_t across = width / cell + 2;
  std::vector<float> grid(static_cast<size_t>(across * (height / cell + 2)));
  fill_normal({.seed = seed, .step = static_cast<uint64_t>(cell)}, 0, grid.data(),
              static_cast<int64_t>(grid.size()));
  for (int64_t y = 0; y < height; ++y) {
    const float v = static_cast<float>(y % cell) / static_cast<float>(cell);
    for (int64_t x = 0; x < width; ++x) {
      const float u = static_cast<float>(x % cell) / static_cast<float>(cell);
      const float* at = &grid[static_cast<size_t>(y / cell * across + x / cell)];
      const float upper = at[0] * (1 - u) + at[1] * u;
      const float lower = at[across] * (1 - u) + at[across + 1] * u;
      values[static_cast<size_t>(y * width + x)] += weight * (upper * (1 - v) + lower * v);
    }
  }
}

// Detail at every size falls off towards the fine, as in pictures of the world; colours have less
// of it than brightness.
Tensor photograph(int64_t width, int64_t height, uint64_t seed) {
  const auto count = static_cast<size_t>(width * height);
  std::vector<float> planes[3];
  for (uint64_t plane = 0; plane < 3; ++plane) {
    planes[plane].resize(count);
    for (int64_t cell = plane == 0 ? 2 : 8; cell <= 128; cell *= 2) {
      const float weight = (plane == 0 ? 2.0f : 1.2f) * std::sqrt(static_cast<float>(cell));
      add_noise(planes[plane], width, height, cell, weight, 3 * seed + plane);
    }
  }
  const Tensor pixels = empty({height, width, 3}, {.dtype = u8});
  auto* to = pixels.data<uint8_t>();
  const auto byte = [](float value) {
    return static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f));
  };
  for (size_t i = 0; i < count; ++i) {
    const float light = 120 + planes[0][i];
    to[3 * i] = byte(light + planes[1][i]);
    to[3 * i + 1] = byte(light - 0.4f * planes[1][i] - 0.3f * planes[2][i]);
    to[3 * i + 2] = byte(light + planes[2][i]);
  }
  return permute(pixels, {2, 0, 1});
}

// Of the highest quality that has no more bytes.
std::vector<std::byte> encoded(const Tensor& image) {
  int low = 1;
  int high = 100;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (data::encode_jpeg(image, middle).size() > kBytes) {
      high = middle - 1;
    } else {
      low = middle;
    }
  }
  return data::encode_jpeg(image, low);
}

void write_photographs(const std::string& folder, int64_t width, int64_t height) {
  const std::string place = concat({folder, "/", width, "x", height});
  fs::create_directories(place);
  for (int i = 0; i < kImages; ++i) {
    const auto bytes = encoded(photograph(width, height, static_cast<uint64_t>(width + i)));
    const std::string path = concat({place, "/", i, ".jpg"});
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    WEFT_CHECK(file.flush(), "bench", "expected to write ", path);
  }
}

}  // namespace

Photographs::Photographs(const std::string& folder) : folder_(folder), temporary_(folder.empty()) {
  if (temporary_) {
    folder_ = (fs::temp_directory_path() / "weft-bench-XXXXXX").string();
    WEFT_CHECK(mkdtemp(folder_.data()), "bench", "expected to make a temporary folder");
  } else if (fs::exists(folder_)) {
    return;
  }
  // Whole or not at all: an interrupted run is not to leave a part that the next one takes for all.
  const std::string part = folder_ + ".part";
  write_photographs(part, 500, 375);
  write_photographs(part, 640, 480);
  fs::remove(folder_);
  fs::rename(part, folder_);
}

Photographs::~Photographs() {
  std::error_code ignored;
  if (temporary_) fs::remove_all(folder_, ignored);
}

}  // namespace weft::app
