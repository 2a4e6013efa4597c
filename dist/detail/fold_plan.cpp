#include "dist/detail/fold_plan.h"

#include "dist/detail/combine.h"
#include "dist/tree.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

namespace weft::dist::detail {
namespace {

constexpr size_t kBytes = static_cast<size_t>(kBlock) * 8;  // of an accumulator, widest type

std::string text_of(Node node) {
  return concat({"(", node.level, ", ", node.index, ")"});
}

// Floating dtypes mix: they compute in f64 if one of them is that, else in f32.
DType compute_of(std::span<const Part> inputs, std::span<const Target> targets, const char* op) {
  if (inputs.empty() && targets.empty()) return f32;
  const DType first = inputs.empty() ? targets[0].dtype : inputs[0].values.dtype;
  WEFT_CHECK(first != boolean, op, "expected f32, f64, bf16, f16, i64, i32 or u8, got bool");
  DType compute = is_floating(first) ? f32 : first;
  const auto take = [&](DType dtype) {
    WEFT_CHECK(is_floating(first) ? is_floating(dtype) : dtype == first, op,
               "expected one dtype or floating ones, got ", first, " and ", dtype);
    if (dtype == f64) compute = f64;
  };
  for (const Part& part : inputs)
    take(part.values.dtype);
  for (const Target& target : targets)
    take(target.dtype);
  return compute;
}

}  // namespace

FoldPlan::FoldPlan(std::span<const Part> inputs, std::span<const Target> targets, int64_t leaves,
                   ReduceOp reduce, int64_t mean_of, const char* op)
    : compute_(compute_of(inputs, targets, op)), reduce_(reduce), mean_of_(mean_of) {
  WEFT_CHECK(mean_of <= 0 || is_floating(compute_), op,
             "expected a floating dtype for a mean, got ", compute_);
  std::vector<Part> sorted(inputs.begin(), inputs.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const Part& a, const Part& b) { return first_leaf(a.node) < first_leaf(b.node); });

  // Siblings meet on top of a stack and are added; accumulators are taken from the free ones. An
  // accumulator that the second block of operands needs is never one that a target still holds.
  struct Value {
    Node node;
    Operand at;
  };
  std::vector<Value> stack;
  std::vector<size_t> free;
  inputs_.reserve(sorted.size());
  stack.reserve(sorted.size());
  int64_t covered = 0;
  for (const Part& part : sorted) {
    const Node given = part.node;
    WEFT_CHECK(given.level >= 0 && given.index >= 0 && given.level <= root_of(leaves).level &&
                   first_leaf(given) >= covered && first_leaf(given) < leaves,
               op, "expected disjoint nodes of a tree over ", leaves, " leaves, got node ",
               text_of(given), " behind leaf ", covered);
    covered = std::min(leaves, first_leaf(given) + (int64_t{1} << given.level));
    inputs_.push_back({part.values.data, part.values.dtype});
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

  bool same = stack.size() == targets.size();
  for (const Target& target : targets) {
    const Node wanted = raised(target.node, leaves);
    const auto sum = std::find_if(stack.begin(), stack.end(),
                                  [&](const Value& value) { return value.node == wanted; });
    same = same && sum != stack.end();
    if (!same) break;
    targets_.push_back(target);
    values_.push_back(sum->at);
  }
  if (same) return;
  std::string sums;
  for (const Value& value : stack)
    sums += (sums.empty() ? "" : " ") + text_of(value.node);
  std::string wanted;
  for (const Target& target : targets)
    wanted += (wanted.empty() ? "" : " ") + text_of(target.node);
  throw_error(op, {"expected results for nodes ", sums.empty() ? "none" : sums, ", got ",
                   wanted.empty() ? "none" : wanted});
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
  const size_t bytes = (accumulators_ + 2 + targets_.size()) * kBytes;
  alignas(64) std::array<std::byte, 12 * kBytes> few;
  std::unique_ptr<std::byte[]> many;
  if (bytes > few.size()) many = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::byte* scratch = many ? many.get() : few.data();
  for (int64_t at = begin; at < end; at += kBlock)
    run_block(at, std::min(kBlock, end - at), scratch);
}

}  // namespace weft::dist::detail
