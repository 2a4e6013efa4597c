// Slabs: a few rows of windows, from one image or several, copied with their padding so that the
// kernels meet no edges. Where no window leaves the image, the image itself serves.
#pragma once

#include "ops/detail/conv_shape.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace weft::detail {

// `count` of the `channels` of dense NHWC images, from channel `first`.
template <class T>
struct ConvImages {
  T* data = nullptr;
  int64_t images = 0;
  std::array<int64_t, 2> size{};
  int64_t channels = 0;
  int64_t first = 0;
  int64_t count = 0;
};

template <class T>
struct Slab {
  const T* data = nullptr;
  int64_t pitch = 0;             // between source rows
  int64_t pixel = 0;             // between neighbouring source pixels
  const int64_t* row = nullptr;  // offset of the first window of each window row
};

// Rows of windows are counted over all images: row r is window row r % outputs of image r /
// outputs.
template <class T>
class SlabReader {
 public:
  // `most` rows of windows at a time.
  SlabReader(const ConvImages<const T>& source, const ConvAxis& rows, const ConvAxis& columns,
             int64_t most)
      : source_(source), rows_(rows), columns_(columns), row_(static_cast<size_t>(most)) {
    in_place_ = rows.stays_inside(source.size[0]) && columns.stays_inside(source.size[1]) &&
                source.count == source.channels;
    pixel_ = source.count;
    pitch_ = (in_place_ ? source.size[1] : columns.extent()) * pixel_;
    if (in_place_) return;
    const int64_t images =
        std::min(source.images, (most - 1) / rows.outputs + 2);  // that a slab can touch
    const int64_t lines =
        std::min(most * rows.in_step + images * (rows.span() + 1), images * rows.extent());
    copy_ = empty({lines * pitch_}, {.dtype = dtype_of<T>});
  }

  Slab<T> read(int64_t first, int64_t count) {
    if (in_place_) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t line = rows_.in_start + (first + i) % rows_.outputs * rows_.in_step;
        const int64_t image = (first + i) / rows_.outputs;
        row_[static_cast<size_t>(i)] =
            ((image * source_.size[0] + line) * source_.size[1] + columns_.in_start) * pixel_;
      }
      return {source_.data, pitch_, pixel_, row_.data()};
    }
    int64_t lines = 0;
    for (int64_t i = 0; i < count;) {  // the run of rows that lies in one image
      const int64_t t = (first + i) % rows_.outputs;
      const int64_t run = std::min(count - i, rows_.outputs - t);
      for (int64_t k = 0; k < run; ++k) {
        row_[static_cast<size_t>(i + k)] = (lines + k * rows_.in_step) * pitch_;
      }
      lines += copy((first + i) / rows_.outputs, rows_.in_start + t * rows_.in_step,
                    (run - 1) * rows_.in_step + rows_.span() + 1, lines);
      i += run;
    }
    return {copy_.template data<T>(), pitch_, pixel_, row_.data()};
  }

 private:
  // Lines [from, from + count) of an image, zero where there are none, to line `to` of the copy.
  int64_t copy(int64_t image, int64_t from, int64_t count, int64_t to) {
    const int64_t begin = std::max<int64_t>(0, columns_.in_start);
    const int64_t end =
        std::max(begin, std::min(source_.size[1], columns_.in_start + columns_.extent()));
    T* line = copy_.template data<T>() + to * pitch_;
    for (int64_t y = from; y < from + count; ++y, line += pitch_) {
      if (y < 0 || y >= source_.size[0] || begin == end) {
        std::fill_n(line, pitch_, T(0));
        continue;
      }
      const T* in = source_.data +
                    ((image * source_.size[0] + y) * source_.size[1] + begin) * source_.channels +
                    source_.first;
      T* out = line + (begin - columns_.in_start) * pixel_;
      std::fill(line, out, T(0));
      if (source_.count == source_.channels) {
        std::memcpy(out, in, static_cast<size_t>((end - begin) * pixel_) * sizeof(T));
        out += (end - begin) * pixel_;
      } else {
        for (int64_t x = begin; x < end; ++x, in += source_.channels, out += pixel_)
          std::copy_n(in, pixel_, out);
      }
      std::fill(out, line + pitch_, T(0));
    }
    return count;
  }

  const ConvImages<const T>& source_;
  const ConvAxis& rows_;
  const ConvAxis& columns_;
  std::vector<int64_t> row_;
  Tensor copy_;
  bool in_place_ = false;
  int64_t pixel_ = 0;
  int64_t pitch_ = 0;
};

// Rows of windows for a slab: about `windows` windows, in at most 128 KiB where that holds more
// than a row.
inline int64_t slab_rows(const ConvAxis& rows, const ConvAxis& columns, int64_t channels,
                         int64_t element_size, int64_t windows) {
  const int64_t wanted = (windows + columns.outputs - 1) / columns.outputs;
  const int64_t lines =
      (int64_t{128} << 10) / std::max<int64_t>(1, columns.extent() * channels * element_size);
  return std::clamp<int64_t>((lines - rows.span()) / rows.in_step, 1, wanted);
}

}  // namespace weft::detail
