// The graph that operators record: a Node for each differentiable operator, an Edge for each of its
// inputs.
//
// Nodes are numbered in the order they are made, so descending numbers are a topological order. A
// graph belongs to the thread that records it.
#pragma once

#include "core/tensor.h"

#include <array>
#include <optional>
#include <span>
#include <vector>

namespace weft {

class Node;

// Where the gradient of one input goes: to an output of the node that made it, to a leaf, or
// nowhere.
struct Edge {
  Ref<Node> node;
  Ref<TensorBody> leaf;
  uint32_t output = 0;

  bool active() const { return node || leaf; }
};

// The edge that leads to `tensor` (inactive if it is undefined or needs no gradient).
Edge edge_to(const Tensor& tensor);

// Who knows of memory that a gradient is going to end up in.
class Rooms {
 public:
  virtual Tensor room(const Edge& edge) = 0;

 protected:
  ~Rooms() = default;
};

// What a backward function fills: one gradient for each input that wants one.
class Gradients {
 public:
  explicit Gradients(std::span<Edge> edges, Rooms* rooms = nullptr) : edges_(edges), rooms_(rooms) {
    if (edges.size() > inline_.size()) overflow_.resize(edges.size());
  }
  bool wants(size_t input) const { return edges_[input].active(); }
  // Where the gradient of an input would be copied to once it is set: the home of a leaf that this
  // is the only use of (autograd/leaf.h). A function that can write its gradient there, and then
  // sets this tensor, saves the copy. Undefined where there is no such place.
  Tensor room(size_t input) const { return rooms_ ? rooms_->room(edges_[input]) : Tensor(); }
  void set(size_t input, Tensor gradient) { slots()[input] = std::move(gradient); }
  Tensor take(size_t input) { return std::move(slots()[input]); }

 private:
  Tensor* slots() { return overflow_.empty() ? inline_.data() : overflow_.data(); }

  std::span<Edge> edges_;
  Rooms* rooms_;
  std::array<Tensor, 4> inline_;
  std::vector<Tensor> overflow_;
};

class Node : public RefCounted {
 public:
  Node(const char* name, uint32_t outputs);

  const char* name() const { return name_; }
  uint64_t sequence() const { return sequence_; }
  uint32_t outputs() const { return outputs_; }
  // The layer it was made in, while the thread had a profiler (core/profiler.h); else null.
  const void* layer() const { return layer_; }
  std::span<Edge> edges() { return edges_; }

  // Given the gradient of each output (undefined where nothing flowed back), sets those of the
  // inputs.
  virtual void backward(std::span<const Tensor> gradients, Gradients& inputs) = 0;
  // Drops what was saved and the edges; a later backward through this node is an error.
  virtual void free() = 0;
  virtual bool freed() const = 0;
  // Whether rebuild() can make the output again, bit for bit, from what is kept for backward anyway
  // (record_rebuilding in autograd/record.h). Not once it is freed.
  virtual bool rebuilds() const { return false; }
  virtual Tensor rebuild() { return {}; }

  // The engine's notes while it runs.
  struct Run {
    uint64_t id = 0;      // the run that last saw this node
    int32_t pending = 0;  // gradients still to come
    Tensor first;         // sum of what came for output 0
    std::vector<Tensor> others;
  } run;

 protected:
  // Chains of any length are taken down in a loop: recursion would overflow the stack.
  void destroy() final;

  std::span<Edge> edges_;

 private:
  const char* name_;
  uint32_t outputs_;
  uint64_t sequence_;
  const void* layer_ = nullptr;
  Node* next_doomed_ = nullptr;
};

// Sequence number that the next node of this thread will get.
uint64_t next_sequence();

// A node whose backward is the closure F: void(const Tensor& gradient, Gradients&), or with a span
// of gradients for several outputs. N edges are held inline; N = 0 means a list.
template <class F, size_t N>
class NodeOf final : public Node {
 public:
  NodeOf(const char* name, uint32_t outputs,
         std::conditional_t<N == 0, std::vector<Edge>, std::array<Edge, N>> edges, F backward)
      : Node(name, outputs), held_(std::move(edges)), backward_(std::move(backward)) {
    edges_ = held_;
  }
  void backward(std::span<const Tensor> gradients, Gradients& inputs) override {
    if constexpr (std::is_invocable_v<F&, const Tensor&, Gradients&>) {
      (*backward_)(gradients[0], inputs);
    } else {
      (*backward_)(gradients, inputs);
    }
  }
  void free() override {
    backward_.reset();
    for (Edge& edge : held_)
      edge = Edge{};
  }
  bool freed() const override { return !backward_.has_value(); }

 private:
  std::conditional_t<N == 0, std::vector<Edge>, std::array<Edge, N>> held_;
  std::optional<F> backward_;
};

// The same for a node of one output that the closure R, Tensor(), makes again.
template <class F, class R, size_t N>
class RebuildingNodeOf final : public Node {
 public:
  RebuildingNodeOf(const char* name, std::array<Edge, N> edges, F backward, R rebuild)
      : Node(name, 1),
        held_(std::move(edges)),
        closures_(Closures{std::move(backward), std::move(rebuild)}) {
    edges_ = held_;
  }
  void backward(std::span<const Tensor> gradients, Gradients& inputs) override {
    closures_->backward(gradients[0], inputs);
  }
  void free() override {
    closures_.reset();
    for (Edge& edge : held_)
      edge = Edge{};
  }
  bool freed() const override { return !closures_.has_value(); }
  bool rebuilds() const override { return !freed(); }
  Tensor rebuild() override { return closures_->rebuild(); }

 private:
  struct Closures {
    F backward;
    R rebuild;
  };
  std::array<Edge, N> held_;
  std::optional<Closures> closures_;
};

}  // namespace weft
