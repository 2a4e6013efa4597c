#include "autograd/node.h"

#include "core/profiler.h"

#include <utility>

namespace weft {
namespace {
thread_local uint64_t t_sequence = 0;
}

Edge edge_to(const Tensor& tensor) {
  Edge edge;
  if (!tensor.defined() || !tensor.requires_grad()) return edge;
  if (const auto& producer = tensor.body()->producer) {
    edge.node = Ref<Node>(static_cast<Node*>(producer.get()));
    edge.output = tensor.body()->output;
  } else {
    edge.leaf = tensor.ref();
  }
  return edge;
}

Node::Node(const char* name, uint32_t outputs)
    : name_(name), outputs_(outputs), sequence_(t_sequence++) {
  if (const Profiler* profiler = current_profiler()) [[unlikely]]
    layer_ = profiler->layer();
}

uint64_t next_sequence() {
  return t_sequence;
}

void Node::destroy() {
  // A list through the nodes themselves: it needs no memory, and works while a thread or the
  // process ends.
  static thread_local Node* doomed = nullptr;
  static thread_local bool draining = false;
  next_doomed_ = doomed;
  doomed = this;
  if (draining) return;
  draining = true;
  while (doomed) {
    Node* node = std::exchange(doomed, doomed->next_doomed_);
    delete node;  // what it alone held alive arrives in `doomed`
  }
  draining = false;
}

}  // namespace weft
