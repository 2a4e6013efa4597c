// The door to oneDNN: cached primitives, reordered arguments, error texts.
#include "ops/detail/onednn.h"

#include "core/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace weft::detail {
namespace {

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 1.0f);
  return from_values(values, shape);
}

onednn::Key key_of(const Tensor& a, const Tensor& b, const Tensor& out) {
  onednn::Key key("onednn_test");
  key.add(a).add(b).add(out);
  return key;
}

onednn::Primitive& product(const Tensor& a, const Tensor& b, const Tensor& out) {
  return onednn::cached(key_of(a, b, out), [&] {
    return onednn::Primitive(
        dnnl::matmul::primitive_desc(onednn::engine(), onednn::describe(a), onednn::describe_any(b),
                                     onednn::describe(out), onednn::attributes()));
  });
}

TEST(Onednn, CachedPrimitiveComputesAndIsReused) {
  const Tensor a = counting({2, 3});
  const Tensor b = counting({3, 2});
  const Tensor out = empty({2, 2});
  onednn::Primitive& first = product(a, b, out);
  const Tensor arranged = first.arranged(DNNL_ARG_WEIGHTS, b);
  first.run(
      {{DNNL_ARG_SRC, a.raw()}, {DNNL_ARG_WEIGHTS, arranged.raw()}, {DNNL_ARG_DST, out.raw()}});
  EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{22, 28, 49, 64}));
  EXPECT_EQ(&product(a, b, out), &first);
  EXPECT_NE(&product(counting({4, 3}), b, empty({4, 2})), &first);
}

TEST(Onednn, ReordersThereAndBack) {
  // A layout a user cannot write with strides alone: blocks of 16 by 16, padded from 5 rows.
  const Tensor x = counting({5, 16});
  const auto blocked = dnnl::memory::desc(onednn::dims(x.shape()), onednn::data_type(f32),
                                          dnnl::memory::format_tag::BA16a16b);
  onednn::Key key("onednn_test reorder");
  onednn::Primitive& copy = onednn::cached(key.add(x), [&] {
    return onednn::Primitive(dnnl::reorder::primitive_desc(
        onednn::engine(), blocked, onednn::engine(), blocked, onednn::attributes()));
  });
  EXPECT_FALSE(copy.has_layout_of(DNNL_ARG_FROM, x));
  const Tensor there = copy.arranged(DNNL_ARG_FROM, x);
  EXPECT_EQ(there.bytes(), 16 * 16 * 4);
  const Tensor moved = copy.buffer(DNNL_ARG_TO);
  copy.run({{DNNL_ARG_FROM, there.raw()}, {DNNL_ARG_TO, moved.raw()}});
  const Tensor back = empty(x.shape());
  copy.restore(DNNL_ARG_TO, moved, back);
  EXPECT_EQ(back.to_vector<float>(), x.to_vector<float>());
}

TEST(Onednn, RefusalNamesOperatorAndShapes) {
  const Tensor a = counting({2, 3});
  const Tensor b = counting({4, 2});
  const Tensor out = empty({2, 2});
  try {
    product(a, b, out);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("[onednn_test] expected operands that oneDNN accepts"));
    EXPECT_THAT(error.what(),
                testing::HasSubstr("f32[2, 3] (strides [3, 1]), f32[4, 2] (strides [2, 1])"));
  }
}

TEST(Onednn, KeysTellOrderAndKindApart) {
  const auto key = [] { return onednn::Key("onednn_test"); };
  EXPECT_TRUE(key().add(1).add(2) == key().add(1).add(2));
  EXPECT_FALSE(key().add(1).add(2) == key().add(2).add(1));
  EXPECT_FALSE(key().add(Shape{1, 2}) == key().add(1).add(2));
  EXPECT_FALSE(key().add(1) == onednn::Key("onednn_test other").add(1));
  EXPECT_EQ(key().add(Shape{1, 2}).add(3).to_text(), "[1, 2], 3");
}

TEST(Onednn, SupportsFloatsOnly) {
  EXPECT_TRUE(onednn::supports(f32));
  EXPECT_FALSE(onednn::supports(f64));
  EXPECT_FALSE(onednn::supports(i64));
  EXPECT_THROW(onednn::data_type(f64), Error);
}

}  // namespace
}  // namespace weft::detail
