// Tensors as text: a line with dtype and shape, then the numbers, aligned, in nested brackets.
#include "core/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

namespace weft {
namespace {

constexpr int64_t kShownWhole =
    1000;  // tensors with more elements show `kEdge` entries at both ends of a dim
constexpr int64_t kEdge = 3;
constexpr int64_t kLine = 100;

// The entries of a dim that are shown: [0, head) and [tail, size).
struct Shown {
  int64_t head;
  int64_t tail;
};

Shown shown(const Tensor& tensor, int64_t size) {
  if (tensor.numel() <= kShownWhole || size <= 2 * kEdge) return {size, size};
  return {kEdge, size - kEdge};
}

Tensor entry(const Tensor& tensor, int64_t index) {
  Shape shape = tensor.shape();
  Strides strides = tensor.strides();
  shape.erase(0);
  strides.erase(0);
  return alias(tensor, shape, strides, index * tensor.strides()[0]);
}

// One style for all numbers of a tensor, so that they can be compared at a glance.
class Style {
 public:
  // Looks at every element that will be shown.
  explicit Style(const Tensor& whole) : whole_(whole) {
    if (is_floating(whole.dtype())) {
      scan(whole, [this](const Tensor& element) { take(element.item()); });
      if (integers_ && largest_ < 1e7) {
        form_ = Form::whole;
      } else if (largest_ >= 1e5 || smallest_ < 1e-4) {
        form_ = Form::scientific;
      }
    }
    scan(whole, [this](const Tensor& element) { width_ = std::max(width_, text(element).size()); });
  }

  const Tensor& whole() const { return whole_; }
  int64_t width() const { return static_cast<int64_t>(width_); }
  std::string padded(const Tensor& element) const {
    const std::string number = text(element);
    return std::string(width_ - number.size(), ' ') + number;
  }

 private:
  enum class Form { whole, fixed, scientific };

  template <class F>
  void scan(const Tensor& part, const F& visit) {
    if (part.dims() == 0) return visit(part);
    const int64_t size = part.shape()[0];
    const auto [head, tail] = shown(whole_, size);
    for (int64_t i = 0; i < head; ++i)
      scan(entry(part, i), visit);
    for (int64_t i = tail; i < size; ++i)
      scan(entry(part, i), visit);
  }

  void take(double value) {
    if (!std::isfinite(value)) return;
    const double size = std::fabs(value);
    integers_ = integers_ && size == std::floor(size);
    largest_ = std::max(largest_, size);
    if (size > 0) smallest_ = std::min(smallest_, size);
  }

  std::string text(const Tensor& element) const {
    if (whole_.dtype() == boolean) return element.item_int() ? "true" : "false";
    if (!is_floating(whole_.dtype())) return std::to_string(element.item_int());
    const double value = element.item();
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    char buffer[32];
    switch (form_) {
      case Form::whole:
        std::snprintf(buffer, sizeof buffer, "%.0f", value);
        break;
      case Form::fixed:
        std::snprintf(buffer, sizeof buffer, "%.4f", value);
        break;
      case Form::scientific:
        std::snprintf(buffer, sizeof buffer, "%.4e", value);
        break;
    }
    return buffer;
  }

  const Tensor& whole_;
  Form form_ = Form::fixed;
  bool integers_ = true;
  double largest_ = 0;
  double smallest_ = HUGE_VAL;
  size_t width_ = 0;
};

// The innermost dim: as many numbers to a line as fit.
void write_row(std::string& out, const Tensor& row, const Style& style, const std::string& indent) {
  const int64_t size = row.shape()[0];
  const auto [head, tail] = shown(style.whole(), size);
  const int64_t per_line =
      std::max<int64_t>(1, (kLine - static_cast<int64_t>(indent.size())) / (style.width() + 2));
  int64_t written = 0;
  const auto separate = [&] {
    if (written > 0) out += written % per_line == 0 ? ",\n" + indent : ", ";
    ++written;
  };
  for (int64_t i = 0; i < size; i = i + 1 == head ? std::max(tail, i + 1) : i + 1) {
    if (i == tail && tail > head) {
      separate();
      out += "…";
    }
    separate();
    out += style.padded(entry(row, i));
  }
}

void write(std::string& out, const Tensor& part, const Style& style, int depth) {
  const std::string indent(static_cast<size_t>(depth) + 1, ' ');
  out += '[';
  if (part.dims() == 1) {
    write_row(out, part, style, indent);
  } else {
    const int64_t size = part.shape()[0];
    const auto [head, tail] = shown(style.whole(), size);
    const std::string separator =
        "," + std::string(static_cast<size_t>(part.dims()) - 1, '\n') + indent;
    for (int64_t i = 0; i < size; i = i + 1 == head ? std::max(tail, i + 1) : i + 1) {
      if (i > 0) out += separator;
      if (i == tail && tail > head) out += "…" + separator;
      write(out, entry(part, i), style, depth + 1);
    }
  }
  out += ']';
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "tensor undefined";
  std::string out = concat({"tensor ", tensor.dtype(), tensor.shape(), "\n"});
  if (tensor.numel() == 0) return out + "[]";
  const Style style(tensor);
  if (tensor.dims() == 0) return out + style.padded(tensor);
  write(out, tensor, style, 0);
  return out;
}

std::ostream& operator<<(std::ostream& stream, const Tensor& tensor) {
  return stream << to_string(tensor);
}

}  // namespace weft
