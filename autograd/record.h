// How an operator records its gradient, beside its forward:
//
//   Tensor mul(const Tensor& a, const Tensor& b) {
//     Tensor out = …;
//     if (recording(a, b)) {
//       record("mul", out, inputs(a, b), [a = Saved(a), b = Saved(b)](const Tensor& gradient,
//       Gradients& to) {
//         if (to.wants(0)) to.set(0, mul(gradient, b.get("mul")));
//         if (to.wants(1)) to.set(1, mul(gradient, a.get("mul")));
//       });
//     }
//     return out;
//   }
//
// Backward closures run without recording. A gradient has the shape and dtype of what it belongs
// to.
#pragma once

#include "autograd/grad_mode.h"
#include "autograd/node.h"

#include <concepts>

namespace weft {

// True when an operator on these tensors must record. Undefined ones are ignored.
template <std::same_as<Tensor>... T>
bool recording(const T&... tensors) {
  return ((tensors.defined() && tensors.requires_grad()) || ...) && grad_enabled();
}
bool recording(std::span<const Tensor> tensors);

// A tensor kept for backward. get() refuses it if it was changed in place since.
class Saved {
 public:
  explicit Saved(const Tensor& tensor)
      : tensor_(tensor), version_(tensor.defined() ? tensor.version() : 0) {}
  // For an operator's own output: held without history, since output and node would else own each
  // other.
  static Saved output(const Tensor& tensor) { return Saved(tensor.detach()); }

  const Tensor& get(const char* op) const {
    if (tensor_.defined() && tensor_.version() != version_) [[unlikely]]
      fail(op);
    return tensor_;
  }

 private:
  [[noreturn]] void fail(const char* op) const;

  Tensor tensor_;
  uint32_t version_;
};

// An input kept for backward, or, where the operator that made it can make it again for little, the
// way to that: the input itself may then go. For operators whose own work is large beside an
// elementwise pass over the input.
class SavedOrRebuilt {
 public:
  explicit SavedOrRebuilt(const Tensor& tensor);
  Tensor get(const char* op) const { return producer_ ? producer_->rebuild() : saved_.get(op); }

 private:
  Ref<Node> producer_;
  Saved saved_;
};

template <std::same_as<Tensor>... T>
std::array<Edge, sizeof...(T)> inputs(const T&... tensors) {
  return {edge_to(tensors)...};
}
std::vector<Edge> inputs(std::span<const Tensor> tensors);

inline void attach(const Tensor& out, const Ref<Node>& node, uint32_t output) {
  TensorBody& body = *out.body();
  body.producer = node;
  body.output = output;
  body.requires_grad = true;
}

// Makes `backward` the history of `out`.
template <size_t N, class F>
void record(const char* name, const Tensor& out, std::array<Edge, N> edges, F backward) {
  attach(out, Ref<Node>(new NodeOf<F, N>(name, 1, std::move(edges), std::move(backward))), 0);
}
template <class F>
void record(const char* name, const Tensor& out, std::vector<Edge> edges, F backward) {
  attach(out, Ref<Node>(new NodeOf<F, 0>(name, 1, std::move(edges), std::move(backward))), 0);
}
// The same where `rebuild`, a Tensor(), makes the output again with the same bits, by a pass or two
// over memory, from what `backward` keeps.
template <size_t N, class F, class R>
void record_rebuilding(const char* name, const Tensor& out, std::array<Edge, N> edges, F backward,
                       R rebuild) {
  attach(out,
         Ref<Node>(new RebuildingNodeOf<F, R, N>(name, std::move(edges), std::move(backward),
                                                 std::move(rebuild))),
         0);
}
// The same for an operator with several outputs; `backward` takes (std::span<const Tensor>,
// Gradients&).
template <class F>
void record(const char* name, std::span<const Tensor> outs, std::vector<Edge> edges, F backward) {
  const Ref<Node> node(new NodeOf<F, 0>(name, static_cast<uint32_t>(outs.size()), std::move(edges),
                                        std::move(backward)));
  for (uint32_t i = 0; i < outs.size(); ++i)
    attach(outs[i], node, i);
}

// Called by an in-place operator before it writes `target`. Refuses expanded views, whose elements
// share memory; and, while recording, leaves that need a gradient, and storage shared with other
// tensors, whose history could not follow the change.
void check_in_place(const char* op, const Tensor& target, bool is_recording);

}  // namespace weft
