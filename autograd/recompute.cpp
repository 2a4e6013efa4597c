#include "autograd/recompute.h"

#include "autograd/engine.h"
#include "autograd/record.h"
#include "core/profiler.h"
#include "core/random.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

namespace weft {
namespace {

using RecomputedFunction = Function<Tensor(std::span<const Tensor>)>;

thread_local bool t_recomputing = false;

// The thread as it was when f first ran; puts it back at the end.
class Rerun {
 public:
  explicit Rerun(const RandomState& then) : now_(random_state()), outer_(t_recomputing) {
    random_state() = then;
    t_recomputing = true;
  }
  ~Rerun() {
    random_state() = now_;
    t_recomputing = outer_;
  }
  Rerun(const Rerun&) = delete;
  Rerun& operator=(const Rerun&) = delete;

 private:
  RandomState now_;
  bool outer_;
};

// Leaves of their own that stand for the inputs, so that f's graph ends at them.
std::vector<Tensor> stand_ins(std::span<const Tensor> inputs,
                              const std::vector<bool>& differentiable) {
  std::vector<Tensor> result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    result.push_back(inputs[i].defined() ? inputs[i].detach() : Tensor());
    if (differentiable[i]) result.back().set_requires_grad();
  }
  return result;
}

// The leaves that the graph of `out` ends at, other than `known`; all nodes must be numbered from
// `first` on.
std::vector<Tensor> captured_leaves(const Tensor& out, std::span<const Tensor> known,
                                    uint64_t first) {
  std::unordered_set<const void*> seen;
  for (const Tensor& tensor : known)
    seen.insert(tensor.body());
  std::vector<Tensor> leaves;
  std::vector<Node*> fresh;
  const auto meet = [&](const Edge& edge) {
    if (edge.leaf) {
      if (seen.insert(edge.leaf.get()).second) leaves.emplace_back(edge.leaf);
    } else if (edge.node && seen.insert(edge.node.get()).second) {
      WEFT_CHECK(
          edge.node->sequence() >= first, "recompute",
          "expected a function that captures leaves only, got one that captures a result of ",
          edge.node->name(), " which needs a gradient; pass it as an input");
      fresh.push_back(edge.node.get());
    }
  };
  meet(edge_to(out));
  while (!fresh.empty()) {
    Node* node = fresh.back();
    fresh.pop_back();
    for (const Edge& edge : node->edges())
      meet(edge);
  }
  return leaves;
}

}  // namespace

bool recomputing() {
  return t_recomputing;
}

Tensor recompute(const RecomputedFunction& f, std::span<const Tensor> inputs) {
  if (!grad_enabled()) return f(inputs);

  std::vector<bool> differentiable;
  for (const Tensor& input : inputs)
    differentiable.push_back(input.defined() && input.requires_grad());
  const RandomState then = random_state();
  const uint64_t first = next_sequence();
  Tensor result;
  std::vector<Tensor> captured;
  {
    const std::vector<Tensor> stand_in = stand_ins(inputs, differentiable);
    const Tensor out = f(stand_in);
    WEFT_CHECK(out.defined(), "recompute",
               "expected a function with a result, got an undefined tensor");
    if (!out.requires_grad()) return out;
    captured = captured_leaves(out, stand_in, first);
    result = out.detach();
  }  // here the activations go

  std::vector<Edge> edges = weft::inputs(inputs);
  std::vector<Saved> saved;
  for (const Tensor& input : inputs)
    saved.push_back(input.defined() ? Saved::output(input) : Saved(input));
  for (const Tensor& leaf : captured) {
    edges.push_back(edge_to(leaf));
    saved.emplace_back(leaf);
  }
  record("recompute", result, std::move(edges),
         [f, saved = std::move(saved), differentiable = std::move(differentiable), then](
             const Tensor& gradient, Gradients& to) {
           std::vector<Tensor> kept;
           for (const Saved& tensor : saved)
             kept.push_back(tensor.get("recompute"));
           const size_t count = differentiable.size();
           const std::vector<Tensor> stand_in =
               stand_ins(std::span(kept).first(count), differentiable);

           const ProfileInside inside;
           const Rerun rerun(then);
           const EnableGrad recording;
           const Tensor out = f(stand_in);
           WEFT_CHECK(
               out.defined() && out.shape() == gradient.shape() && out.dtype() == gradient.dtype(),
               "recompute", "expected a function that gives the same shape and dtype again, ",
               gradient.shape(), " and ", gradient.dtype(), ", got another");

           std::vector<Tensor> leaves;
           std::vector<size_t> slots;
           for (size_t i = 0; i < kept.size(); ++i) {
             if (!to.wants(i)) continue;
             leaves.push_back(i < count ? stand_in[i] : kept[i]);
             slots.push_back(i);
           }
           const std::vector<Tensor> found = gradients(out, leaves, gradient);
           for (size_t i = 0; i < slots.size(); ++i)
             to.set(slots[i], found[i]);
         });
  return result;
}

}  // namespace weft
