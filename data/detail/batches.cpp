#include "data/detail/batches.h"

#include "core/crc32c.h"

#include <array>
#include <cstdio>

namespace weft::data::detail {
namespace {

Batch filled(Tensor inputs, const Shape& sample, int64_t count, int64_t rows) {
  Batch batch{std::move(inputs), empty({rows}, {.dtype = i64}), count};
  const int64_t width = sample.numel();
  std::fill_n(batch.inputs.data<float>() + count * width, (rows - count) * width, 0.0f);
  std::fill_n(batch.targets.data<int64_t>() + count, rows - count, kNoTarget);
  return batch;
}

Shape with_rows(const Shape& sample, int64_t count, int64_t rows) {
  WEFT_CHECK(count <= rows, "gather", "expected at most ", rows, " samples for ", rows,
             " rows, got ", count);
  Shape shape = sample;
  shape.insert(0, rows);
  return shape;
}

}  // namespace

void check_indices(std::span<const int64_t> indices, int64_t size) {
  for (const int64_t index : indices) {
    WEFT_CHECK(index >= 0 && index < size, "gather", "expected samples in [0, ", size, "), got ",
               index);
  }
}

std::string identity_of(const char* of, const void* bytes, size_t count, uint32_t before) {
  std::array<char, 16> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", crc32c(bytes, count, before));
  return concat({of, " ", digits.data()});
}

Batch plain_batch(const Shape& sample, int64_t count, int64_t rows) {
  const CategoryScope category(Category::data);
  return filled(empty(with_rows(sample, count, rows), {.dtype = f32}), sample, count, rows);
}

Batch image_batch(const Shape& sample, int64_t count, int64_t rows) {
  if (sample[0] == 1) return plain_batch(sample, count, rows);  // the same order in memory
  const CategoryScope category(Category::data);
  const Shape shape = with_rows(sample, count, rows);
  return filled(empty_strided(shape, channels_last_strides(shape), {.dtype = f32}), sample, count,
                rows);
}

}  // namespace weft::data::detail
