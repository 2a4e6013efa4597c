#include "dist/detail/fold_plan.h"

#include "dist/detail/combine.h"
#include "dist/tree.h"

#include <algorithm>
#include <cstring>

namespace weft::dist::detail {
namespace {

constexpr size_t kBytes = static_cast<size_t>(kBlock) * 8;  // of an accumulator, widest type

std::string text_of(Node node) {
  return concat({"(", node.level, ", ", node.index, ")"});
}

std::string text_of(std::span<const Node> nodes) {
  std::string text;
  for (const Node node : nodes)
    text += (text.empty() ? "" : " ") + text_of(node);
  return text.empty() ? "none" : text;
}

// Floating dtypes mix: they compute in f64 if one of them is that, else in f32.
DType compute_of(std::span<const Part> inputs, std::span<const Target> targets, const char* op) {
  std::vector<DType> dtypes;
  for (const Part& part : inputs)
    dtypes.push_back(part.values.dtype);
  for (const Target& target : targets)
    dtypes.push_back(target.dtype);
  if (dtypes.empty()) return f32;
  if (!is_floating(dtypes[0])) {
    for (const DType dtype : dtypes)
      WEFT_CHECK(dtype == dtypes[0], op, "expected one dtype or floating ones, got ", dtypes[0],
                 " and ", dtype);
    WEFT_CHECK(dtypes[0] != boolean, op, "expected f32, f64, bf16, f16, i64, i32 or u8, got bool");
    return dtypes[0];
  }
  DType compute = f32;
  for (const DType dtype : dtypes) {
    WEFT_CHECK(is_floating(dtype), op, "expected one dtype or floating ones, got ", dtypes[0],
               " and ", dtype);
    if (dtype == f64) compute = f64;
  }
  return compute;
}

}  // namespace

FoldPlan::FoldPlan(std::span<const Part> inputs, std::span<const Target> targets, int64_t leaves,
                   ReduceOp reduce, int64_t mean_of, const char* op)
    : compute_(compute_of(inputs, targets, op)), reduce_(reduce), mean_of_(mean_of) {
  WEFT_CHECK(mean_of <= 0 || is_floating(compute_), op,
             "expected a floating dtype for a mean, got ", compute_);
  std::vector<size_t> order(inputs.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return first_leaf(inputs[a].node) < first_leaf(inputs[b].node);
  });

  // Siblings meet on top of a stack and are added; accumulators are taken from the free ones. An
  // accumulator that the second block of operands needs is never one that a target still holds.
  struct Value {
    Node node;
    Operand at;
  };
  std::vector<Value> stack;
  std::vector<size_t> free;
  int64_t covered = 0;
  for (const size_t i : order) {
    const Node given = inputs[i].node;
    WEFT_CHECK(given.level >= 0 && given.index >= 0 && given.level <= root_of(leaves).level &&
                   first_leaf(given) >= covered && first_leaf(given) < leaves,
               op, "expected disjoint nodes of a tree over ", leaves, " leaves, got node ",
               text_of(given), " behind leaf ", covered);
    covered = std::min(leaves, first_leaf(given) + (int64_t{1} << given.level));
    inputs_.push_back({inputs[i].values.data, inputs[i].values.dtype});
    stack.push_back({raised(given, leaves), {true, inputs_.size() - 1}});
    while (stack.size() >= 2) {
      const Value b = stack.back();
      const Value a = stack[stack.size() - 2];
      if (a.node.level != b.node.level || (a.node.index ^ 1) != b.node.index) break;
      stack.resize(stack.size() - 2);
      for (const Value& value : {a, b}) {
        if (!value.at.input) free.push_back(value.at.index);
      }
      if (free.empty()) free.push_back(accumulators_++);
      const size_t to = free.back();
      free.pop_back();
      steps_.push_back({to, a.at, b.at});
      stack.push_back({raised({a.node.level + 1, a.node.index / 2}, leaves), {false, to}});
    }
  }

  std::vector<Node> sums;
  for (const Value& value : stack)
    sums.push_back(value.node);
  std::vector<Node> wanted;
  for (const Target& target : targets)
    wanted.push_back(raised(target.node, leaves));
  std::vector<size_t> place(targets.size());
  bool same = sums.size() == wanted.size();
  for (size_t t = 0; same && t < wanted.size(); ++t) {
    place[t] = static_cast<size_t>(std::find(sums.begin(), sums.end(), wanted[t]) - sums.begin());
    same = place[t] < sums.size();
  }
  WEFT_CHECK(same, op, "expected results for nodes ", text_of(sums), ", got ", text_of(wanted));
  for (size_t t = 0; t < targets.size(); ++t) {
    targets_.push_back(targets[t]);
    values_.push_back(stack[place[t]].at);
  }
}

const std::byte* FoldPlan::operand(const Operand& at, int64_t begin, int64_t count,
                                   std::byte* scratch, std::byte* widened) const {
  if (!at.input) return scratch + at.index * kBytes;
  const Source& source = inputs_[at.index];
  const std::byte* data = source.data + begin * size_of(source.dtype);
  if (source.dtype == compute_) return data;
  convert(widened, compute_, data, source.dtype, count);
  return widened;
}

void FoldPlan::run_block(int64_t begin, int64_t count, std::byte* scratch) const {
  std::byte* wide_a = scratch + accumulators_ * kBytes;
  std::byte* wide_b = wide_a + kBytes;
  // The last addition of a lone target may go straight to its first place: all inputs have been
  // read by then. With several targets a place can lie on an input that is still to be read.
  const bool direct = targets_.size() == 1 && !steps_.empty() && targets_[0].dtype == compute_ &&
                      !targets_[0].places.empty();
  for (const Step& step : steps_) {
    std::byte* to = scratch + step.to * kBytes;
    if (direct && &step == &steps_.back()) to = targets_[0].places[0] + begin * size_of(compute_);
    combine(to, operand(step.a, begin, count, scratch, wide_a),
            operand(step.b, begin, count, scratch, wide_b), count, compute_, reduce_);
  }
  if (direct) {
    const size_t bytes = static_cast<size_t>(count * size_of(compute_));
    const auto& places = targets_[0].places;
    std::byte* first = places[0] + begin * size_of(compute_);
    if (mean_of_ > 0) divide(first, count, compute_, mean_of_);
    for (size_t p = 1; p < places.size(); ++p)
      std::memcpy(places[p] + begin * size_of(compute_), first, bytes);
    return;
  }
  // A target that is a bare input moves to a scratch block of its own first, for the same reason.
  std::byte* spare = wide_b + kBytes;
  for (size_t t = 0; t < targets_.size(); ++t) {
    std::byte* value = scratch + values_[t].index * kBytes;
    if (values_[t].input) {
      value = spare + t * kBytes;
      const Source& source = inputs_[values_[t].index];
      convert(value, compute_, source.data + begin * size_of(source.dtype), source.dtype, count);
    }
    if (mean_of_ > 0) divide(value, count, compute_, mean_of_);
  }
  for (size_t t = 0; t < targets_.size(); ++t) {
    const std::byte* value =
        values_[t].input ? spare + t * kBytes : scratch + values_[t].index * kBytes;
    for (std::byte* place : targets_[t].places)
      convert(place + begin * size_of(targets_[t].dtype), targets_[t].dtype, value, compute_,
              count);
  }
}

void FoldPlan::run(int64_t begin, int64_t end) const {
  const size_t blocks = accumulators_ + 2 + targets_.size();
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> scratch(blocks * kBytes / sizeof(Line));
  for (int64_t at = begin; at < end; at += kBlock)
    run_block(at, std::min(kBlock, end - at), scratch[0].bytes);
}

}  // namespace weft::dist::detail
