#include "autograd/engine.h"

#include "autograd/grad_mode.h"
#include "autograd/leaf.h"
#include "autograd/node.h"
#include "core/profiler.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

namespace weft {
namespace {

thread_local uint64_t t_runs = 0;

// One walk over the graph. First the uses of every node and leaf are counted; then nodes run,
// latest first, each as soon as all gradients it waits for have come.
class Walk final : public Rooms {
 public:
  explicit Walk(BackwardOptions options) : options_(options), id_(++t_runs) {}

  // Leaves whose gradients are returned instead of accumulated; all others are then ignored.
  void capture(std::span<const Tensor> leaves) {
    capturing_ = true;
    for (const Tensor& leaf : leaves)
      leaves_[leaf.body()].wanted = true;
  }

  void add_root(const Tensor& root, Tensor gradient) {
    Edge edge = edge_to(root);
    roots_.emplace_back(edge, std::move(gradient));
    discover(edge);
  }

  void run() {
    for (auto& [edge, gradient] : roots_)
      deliver(edge, std::move(gradient));
    roots_.clear();
    while (!ready_.empty()) {
      const Ref<Node> node = ready_.top();
      ready_.pop();
      step(*node);
    }
  }

  Tensor room(const Edge& edge) override {
    if (!edge.leaf || capturing_) return {};
    const LeafRun& run = leaves_[edge.leaf.get()];
    return run.pending == 1 && !run.sum.defined() ? LeafState::of(*edge.leaf).room() : Tensor();
  }

  Tensor captured(const Tensor& leaf) { return leaves_[leaf.body()].sum; }

 private:
  struct LeafRun {
    int32_t pending = 0;
    bool wanted = false;
    Tensor sum;
  };
  struct Earlier {
    bool operator()(const Ref<Node>& a, const Ref<Node>& b) const {
      return a->sequence() < b->sequence();
    }
  };

  // Counts this use of the edge's target and, the first time it is met, those of everything below
  // it.
  void discover(const Edge& start) {
    std::vector<Node*> fresh;
    const auto meet = [&](const Edge& edge) {
      if (edge.leaf) {
        ++leaves_[edge.leaf.get()].pending;
      } else if (edge.node) {
        Node& node = *edge.node;
        if (node.run.id != id_) {
          WEFT_CHECK(!node.freed(), "backward",
                     "expected a graph that still holds its saved tensors, got one whose ",
                     node.name(), " was freed by an earlier backward; that one needs retain_graph");
          node.run = {};
          node.run.id = id_;
          fresh.push_back(&node);
        }
        ++node.run.pending;
      }
    };
    meet(start);
    while (!fresh.empty()) {
      Node* node = fresh.back();
      fresh.pop_back();
      for (const Edge& edge : node->edges())
        meet(edge);
    }
  }

  // Adds a gradient (possibly undefined: nothing flowed along this edge) to the edge's target.
  void deliver(const Edge& edge, Tensor gradient) {
    if (edge.leaf) {
      LeafRun& run = leaves_[edge.leaf.get()];
      if (gradient.defined() && (!capturing_ || run.wanted)) add(run.sum, std::move(gradient));
      if (--run.pending == 0 && !capturing_ && run.sum.defined()) {
        const Tensor leaf(edge.leaf);
        LeafState::of(*edge.leaf).receive(leaf, std::move(run.sum));
      }
    } else if (edge.node) {
      Node& node = *edge.node;
      if (gradient.defined()) {
        if (edge.output > 0 && node.run.others.empty()) node.run.others.resize(node.outputs() - 1);
        add(edge.output == 0 ? node.run.first : node.run.others[edge.output - 1],
            std::move(gradient));
      }
      if (--node.run.pending == 0) ready_.push(edge.node);
    }
  }

  static void add(Tensor& sum, Tensor gradient) {
    if (!sum.defined()) {
      sum = std::move(gradient);
      return;
    }
    const ProfileOp op("accumulate", true);
    sum = accumulate(std::move(sum), std::move(gradient));
  }

  void step(Node& node) {
    Gradients inputs(node.edges(), this);
    std::vector<Tensor> many;
    Tensor first = std::move(node.run.first);
    std::span<const Tensor> incoming(&first, 1);
    bool any = first.defined();
    if (node.outputs() > 1) {
      many = std::move(node.run.others);
      many.resize(node.outputs() - 1);
      many.insert(many.begin(), std::move(first));
      incoming = many;
      any = std::any_of(many.begin(), many.end(), [](const Tensor& t) { return t.defined(); });
    }
    if (any) {
      const ProfileLayer layer(node.layer());
      const ProfileOp op(node.name(), true);
      node.backward(incoming, inputs);
    }
    // Freed before the walk goes on, so that activations go as soon as they have been used.
    std::array<Edge, 4> few_edges;
    std::vector<Edge> many_edges;
    std::span<Edge> edges = node.edges();
    if (!options_.retain_graph) {
      if (edges.size() <= few_edges.size()) {
        std::move(edges.begin(), edges.end(), few_edges.begin());
        edges = std::span(few_edges).first(edges.size());
      } else {
        many_edges.assign(std::make_move_iterator(edges.begin()),
                          std::make_move_iterator(edges.end()));
        edges = many_edges;
      }
      first = Tensor();
      many.clear();
      node.free();
    }
    for (size_t i = 0; i < edges.size(); ++i) {
      if (edges[i].active()) deliver(edges[i], inputs.take(i));
    }
  }

  BackwardOptions options_;
  uint64_t id_;
  bool capturing_ = false;
  std::vector<std::pair<Edge, Tensor>> roots_;
  std::unordered_map<TensorBody*, LeafRun> leaves_;
  std::priority_queue<Ref<Node>, std::vector<Ref<Node>>, Earlier> ready_;
};

Tensor one(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return from_values(std::vector<double>{1});
    case DType::bf16:
      return from_values(std::vector<BFloat16>{BFloat16(1)});
    case DType::f16:
      return from_values(std::vector<Float16>{Float16(1)});
    default:
      return from_values(std::vector<float>{1});
  }
}

Tensor root_gradient(const Tensor& root, const Tensor& gradient) {
  WEFT_CHECK(
      root.defined() && root.requires_grad(), "backward",
      "expected a result that depends on a tensor requiring a gradient, got one that does not");
  if (gradient.defined()) {
    WEFT_CHECK(gradient.shape() == root.shape() && gradient.dtype() == root.dtype(), "backward",
               "expected a gradient of shape ", root.shape(), " and dtype ", root.dtype(), ", got ",
               gradient.shape(), " and ", gradient.dtype());
    return gradient.detach();
  }
  WEFT_CHECK(root.numel() == 1, "backward",
             "expected a one-element result, or a gradient for it, got shape ", root.shape());
  return alias(one(root.dtype()), root.shape(), contiguous_strides(root.shape()));
}

}  // namespace

void backward(const Tensor& root, const Tensor& gradient, BackwardOptions options) {
  backward(std::span(&root, 1), std::span(&gradient, 1), options);
}

void backward(std::span<const Tensor> roots, std::span<const Tensor> gradients,
              BackwardOptions options) {
  WEFT_CHECK(gradients.empty() || gradients.size() == roots.size(), "backward", "expected ",
             roots.size(), " gradients, one a root, got ", gradients.size());
  const NoGrad no_grad;
  Walk walk(options);
  for (size_t i = 0; i < roots.size(); ++i) {
    walk.add_root(roots[i], root_gradient(roots[i], gradients.empty() ? Tensor() : gradients[i]));
  }
  walk.run();
}

std::vector<Tensor> gradients(const Tensor& root, std::span<const Tensor> leaves,
                              const Tensor& gradient, BackwardOptions options) {
  for (const Tensor& leaf : leaves) {
    WEFT_CHECK(leaf.defined() && leaf.is_leaf() && leaf.requires_grad(), "gradients",
               "expected leaves that require a gradient");
  }
  const NoGrad no_grad;
  Walk walk(options);
  walk.capture(leaves);
  walk.add_root(root, root_gradient(root, gradient));
  walk.run();
  std::vector<Tensor> result;
  for (const Tensor& leaf : leaves)
    result.push_back(walk.captured(leaf));
  return result;
}

}  // namespace weft
