// Pooling against its definition in double, at ties, NaN and edges, and in its gradients.
#include "ops/pool.h"

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "core/parallel.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft {
namespace {

using test::expect_near;
using test::kInf;
using test::kNan;
using test::normal;
using Inputs = std::vector<Tensor>;
using Doubles = std::vector<double>;

// One axis by its definition: the positions that window `i` sees, and how many count in a mean.
struct Axis {
  int64_t size = 0, outputs = 0, kernel = 1, stride = 1, padding = 0, dilation = 1;
  bool adaptive = false, count_padding = false;

  std::vector<int64_t> positions(int64_t i) const {
    std::vector<int64_t> list;
    if (adaptive) {
      const auto share = static_cast<double>(size) / static_cast<double>(outputs);
      const auto end = static_cast<int64_t>(std::ceil(static_cast<double>(i + 1) * share - 1e-9));
      for (auto p = static_cast<int64_t>(static_cast<double>(i) * share + 1e-9); p < end; ++p)
        list.push_back(p);
      return list;
    }
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t p = i * stride - padding + k * dilation;
      if (p >= 0 && p < size) list.push_back(p);
    }
    return list;
  }
  int64_t places(int64_t i) const {
    if (!count_padding) return static_cast<int64_t>(positions(i).size());
    int64_t count = 0;  // of the window inside the padded image
    for (int64_t p = i * stride - padding; p < i * stride - padding + kernel; ++p)
      count += p < size + padding;
    return count;
  }
};

struct Pooled {
  Tensor y, dx;
};

// The definition, at the gradient g of y.
template <bool maximum>
Pooled naive(const Tensor& x, const Axis& rows, const Axis& columns, const Tensor& g) {
  const Doubles xs = x.to_vector<double>();
  const Doubles gs = g.to_vector<double>();
  Doubles y;
  Doubles dx(xs.size());
  for (int64_t plane = 0; plane < x.size(0) * x.size(1); ++plane) {
    for (int64_t i = 0; i < rows.outputs; ++i) {
      for (int64_t j = 0; j < columns.outputs; ++j) {
        const double gradient = gs[y.size()];
        double sum = 0;
        size_t best = 0;
        bool found = false;
        const auto places = static_cast<double>(rows.places(i) * columns.places(j));
        for (const int64_t h : rows.positions(i)) {
          for (const int64_t w : columns.positions(j)) {
            const auto at = static_cast<size_t>((plane * rows.size + h) * columns.size + w);
            sum += xs[at];
            if (!found || xs[at] > xs[best] || (std::isnan(xs[at]) && !std::isnan(xs[best]))) {
              best = std::isnan(found ? xs[best] : 0) ? best : at;
            }
            found = true;
            if (!maximum) dx[at] += gradient / places;
          }
        }
        if (maximum && found) dx[best] += gradient;
        y.push_back(!maximum ? sum / places : found ? xs[best] : -kInf);
      }
    }
  }
  return {from_values(y, g.shape()), from_values(dx, x.shape())};
}

struct PoolCase {
  const char* name;
  Shape x, kernel;
  MaxPool2dOptions options;
};

const std::vector<PoolCase>& pool_cases() {
  static const std::vector<PoolCase> list{
      {"two by two", {2, 8, 6, 8}, {2, 2}, {}},
      {"two by two, odd sizes", {2, 9, 7, 5}, {2, 2}, {}},
      {"three by three, stride 2, padding 1", {2, 19, 9, 8}, {3, 3}, {{2, 2}, {1, 1}, {1, 1}}},
      {"overlapping", {1, 3, 6, 7}, {3, 2}, {{1, 1}, {1, 0}, {1, 1}}},
      {"gaps between windows", {2, 4, 10, 11}, {2, 2}, {{3, 4}, {0, 0}, {1, 1}}},
      {"dilation", {1, 5, 9, 9}, {2, 3}, {{1, 2}, {1, 1}, {3, 2}}},
      {"ceil", {2, 3, 7, 8}, {3, 3}, {{2, 2}, {0, 1}, {1, 1}, true}},
      {"ceil that drops a window", {1, 2, 4, 4}, {2, 2}, {{3, 3}, {1, 1}, {1, 1}, true}},
      {"the whole image", {3, 17, 5, 4}, {5, 4}, {}},
      {"more than 255 places", {1, 9, 40, 20}, {20, 16}, {{20, 4}, {0, 0}, {1, 1}}},
      {"one pixel", {1, 1, 1, 1}, {1, 1}, {}},
  };
  return list;
}

// The two axes of a case; sizes of the result by the formula of the header.
std::array<Axis, 2> axes_of(const PoolCase& c, bool count_padding) {
  const Shape& stride = c.options.stride.empty() ? c.kernel : c.options.stride;
  std::array<Axis, 2> axes;
  for (int i = 0; i < 2; ++i) {
    Axis& axis = axes[static_cast<size_t>(i)];
    axis = {.size = c.x[2 + i],
            .kernel = c.kernel[i],
            .stride = stride[i],
            .padding = c.options.padding[i],
            .dilation = c.options.dilation[i],
            .count_padding = count_padding};
    const auto room =
        static_cast<double>(axis.size + 2 * axis.padding - axis.dilation * (axis.kernel - 1) - 1);
    const double steps = room / static_cast<double>(axis.stride);
    axis.outputs = static_cast<int64_t>(c.options.ceil_mode ? std::ceil(steps) : steps) + 1;
    if ((axis.outputs - 1) * axis.stride >= axis.size + axis.padding) --axis.outputs;
  }
  return axes;
}

// y and dx of `pool` agree with the definition, in every dtype and layout.
template <bool maximum, class F>
void expect_agrees(const char* name, const Shape& shape, const std::array<Axis, 2>& axes, F pool) {
  const Shape out{shape[0], shape[1], axes[0].outputs, axes[1].outputs};
  for (const DType dtype : {f32, f64, bf16, f16}) {
    const DType wide = dtype == f64 ? f64 : f32;
    const Tensor x = to(normal(shape, 1, wide), dtype);
    const Tensor g = to(normal(out, 2, wide), dtype);
    const Pooled expected = naive<maximum>(x, axes[0], axes[1], g);
    for (const int layout : {0, 1, 2}) {
      if (layout == 2 && dtype != wide) continue;
      const Tensor in = (layout == 0   ? clone(x)
                         : layout == 1 ? clone(channels_last(x))
                                       : test::strided(x))
                            .set_requires_grad();
      const Tensor y = pool(in);
      EXPECT_TRUE(y.is_channels_last()) << name;
      EXPECT_EQ(y.dtype(), dtype) << name;
      expect_near(y, expected.y, maximum ? 0 : 4 * test::tolerance_of(dtype), name);
      backward(y, g);
      expect_near(in.grad(), expected.dx, 8 * test::tolerance_of(dtype), name);
    }
  }
}

TEST(Pool, MaxAgreesWithTheDefinition) {
  for (const PoolCase& c : pool_cases()) {
    expect_agrees<true>(c.name, c.x, axes_of(c, false),
                        [&](const Tensor& x) { return max_pool2d(x, c.kernel, c.options); });
  }
}

TEST(Pool, MeanAgreesWithTheDefinition) {
  for (const PoolCase& c : pool_cases()) {
    if (c.options.dilation != Shape{1, 1}) continue;
    for (const bool count : {false, true}) {
      const AvgPool2dOptions options{c.options.stride, c.options.padding, c.options.ceil_mode,
                                     count};
      expect_agrees<false>(c.name, c.x, axes_of(c, count),
                           [&](const Tensor& x) { return avg_pool2d(x, c.kernel, options); });
    }
  }
}

TEST(Pool, AdaptiveAgreesWithTheDefinition) {
  const Shape shape{2, 11, 7, 10};
  for (const Shape& size : {Shape{1, 1}, Shape{3, 4}, Shape{7, 10}, Shape{5, 13}}) {
    const std::array<Axis, 2> axes{Axis{.size = 7, .outputs = size[0], .adaptive = true},
                                   Axis{.size = 10, .outputs = size[1], .adaptive = true}};
    expect_agrees<true>("max", shape, axes,
                        [&](const Tensor& x) { return adaptive_max_pool2d(x, size); });
    expect_agrees<false>("mean", shape, axes,
                         [&](const Tensor& x) { return adaptive_avg_pool2d(x, size); });
  }
}

TEST(Pool, Gradcheck) {
  for (const Shape& shape : {Shape{2, 3, 5, 6}, Shape{1, 9, 4, 4}, Shape{0, 2, 4, 4}}) {
    const Tensor x = test::leaf(shape);
    for (const Tensor& in : {x, test::strided(x)}) {
      const auto check = [&](auto pool) {
        EXPECT_EQ(gradcheck([&](const Inputs& i) { return pool(i[0]); }, {in}), "")
            << to_string(shape);
      };
      check([](const Tensor& t) { return max_pool2d(t, {3, 2}, {{2, 1}, {1, 1}, {1, 2}}); });
      check([](const Tensor& t) { return avg_pool2d(t, {2, 3}, {{1, 2}, {1, 1}, true}); });
      check([](const Tensor& t) { return adaptive_avg_pool2d(t, {3, 2}); });
      check([](const Tensor& t) { return adaptive_max_pool2d(t, {3, 2}); });
    }
  }
  const Tensor one = test::repeated({2, 3, 4, 4});
  EXPECT_EQ(gradcheck([](const Inputs& i) { return avg_pool2d(i[0], {2, 2}); }, {one}), "");
}

// A packet of eight channels and a rest of one, with the special value in every place of the
// window.
TEST(Pool, NanAndInfinityInEveryPlace) {
  for (size_t place = 0; place < 4; ++place) {
    for (const double special : {kNan, kInf, -kInf}) {
      Doubles pixels{1, 2, 3, -4};
      pixels[place] = special;
      Doubles values;
      for (int channel = 0; channel < 9; ++channel)
        values.insert(values.end(), pixels.begin(), pixels.end());
      const Tensor x = from_values(values, {1, 9, 2, 2}).set_requires_grad();
      const Tensor g = from_values(Doubles(9, 1.0), {1, 9, 1, 1});
      const Axis axis{.size = 2, .outputs = 1, .kernel = 2, .stride = 2};
      const Pooled expected = naive<true>(x, axis, axis, g);
      const Tensor y = max_pool2d(x, {2, 2});
      expect_near(y, expected.y, 0);
      backward(y, g);
      expect_near(x.grad(), expected.dx, 0);
    }
  }
}

TEST(Pool, TheFirstOfEqualValuesTakesTheGradient) {
  const Tensor x = from_values(Doubles(16, 5.0), {1, 1, 4, 4}).set_requires_grad();
  const Tensor y = max_pool2d(x, {2, 2});
  backward(y, from_values(Doubles{1, 2, 3, 4}, {1, 1, 2, 2}));
  EXPECT_EQ(x.grad().to_vector<double>(),
            (Doubles{1, 0, 2, 0, 0, 0, 0, 0, 3, 0, 4, 0, 0, 0, 0, 0}));
}

TEST(Pool, PaddingNeverWins) {
  const Tensor x = from_values(Doubles(9, -7.0), {1, 1, 3, 3});
  const Doubles expected(4, -7.0);
  EXPECT_EQ(max_pool2d(x, {2, 2}, {{2, 2}, {1, 1}, {1, 1}}).to_vector<double>(), expected);
  // All taps of this window fall into the padding.
  const Tensor pixel = from_values(Doubles{3}, {1, 1, 1, 1}).set_requires_grad();
  const Tensor y = max_pool2d(pixel, {2, 2}, {{1, 1}, {2, 2}, {3, 3}});
  EXPECT_EQ(y.size(2), 2);
  EXPECT_EQ(y.to_vector<double>()[0], -kInf);
  backward(y, from_values(Doubles{1, 1, 1, 1}, y.shape()));
  EXPECT_EQ(pixel.grad().to_vector<double>(), Doubles{0});
}

TEST(Pool, BitsDependOnNeitherThreadsNorBatch) {
  const int threads = num_threads();
  const Tensor x = normal({6, 19, 33, 31}, 1, f32).set_requires_grad();
  const auto pools = {+[](const Tensor& t) {
                        return max_pool2d(t, {3, 3}, {{2, 2}, {1, 1}});
                      },
                      +[](const Tensor& t) {
                        return avg_pool2d(t, {3, 3}, {{1, 1}, {1, 1}});
                      },
                      +[](const Tensor& t) {
                        return adaptive_avg_pool2d(t, {4, 5});
                      }};
  for (const auto pool : pools) {
    std::vector<std::vector<float>> values;
    std::vector<std::vector<float>> gradients;
    for (const int count : {1, 3}) {
      set_num_threads(count);
      x.set_grad({});
      const Tensor y = pool(x);
      backward(y, normal(y.shape(), 2, f32));
      values.push_back(y.to_vector<float>());
      gradients.push_back(x.grad().to_vector<float>());
    }
    EXPECT_EQ(values[0], values[1]);
    EXPECT_EQ(gradients[0], gradients[1]);
    const Tensor last = alias(x, {1, 19, 33, 31}, x.strides(), 5 * x.stride(0));
    const auto alone = pool(last).to_vector<float>();
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), values[0].end() - std::ssize(alone)));
  }
  set_num_threads(threads);
}

TEST(Pool, NoImages) {
  const Tensor x = empty({0, 3, 8, 8}).set_requires_grad();
  const Tensor y = max_pool2d(x, {2, 2});
  EXPECT_EQ(y.shape(), (Shape{0, 3, 4, 4}));
  backward(y, empty(y.shape()));
  EXPECT_EQ(x.grad().shape(), x.shape());
  EXPECT_EQ(adaptive_avg_pool2d(x, {1, 1}).shape(), (Shape{0, 3, 1, 1}));
  // Sizes that nothing could be made for do no harm where there is no image.
  EXPECT_EQ(avg_pool2d(empty({0, 1, int64_t{1} << 40, 1}), {1, 1}).numel(), 0);
}

TEST(Pool, RefusesWhatDoesNotFit) {
  const Tensor x = normal({2, 3, 5, 5}, 1, f32);
  const auto refused = [&](const Shape& kernel, const MaxPool2dOptions& options = {}) {
    return test::error_of([&] { max_pool2d(x, kernel, options); });
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refused({6, 1}), "got images [2, 3, 5, 5], kernel [6, 1]");
  has(refused({2, 2}, {{2, 2}, {2, 0}}), "at most half");
  has(refused({2, 2}, {{0, 1}}), "a stride");
  has(refused({2}), "a kernel of two numbers");
  has(refused({0, 2}), "a kernel");
  has(refused({2, 2}, {{1, 1}, {0, 0}, {0, 1}}), "a dilation");
  has(refused({2147483647, 2147483647}), "a kernel that fits");
  has(test::error_of([&] { max_pool2d(normal({3, 5, 5}), {2, 2}); }), "[3, 5, 5]");
  has(test::error_of([&] { max_pool2d(empty({1, 1, 4, 4}, {.dtype = i64}), {2, 2}); }), "floating");
  has(test::error_of([&] { max_pool2d({}, {2, 2}); }), "undefined");
  has(test::error_of([&] { avg_pool2d(empty({1, 0, 4, 4}), {2, 2}); }), "[1, 0, 4, 4]");
  has(test::error_of([&] { adaptive_avg_pool2d(x, {0, 1}); }), "a size");
  has(test::error_of([&] { adaptive_avg_pool2d(x, {2147483647, 2147483647}); }), "[");
}

}  // namespace
}  // namespace weft
