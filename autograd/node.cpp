#include "autograd/node.h"

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
    : name_(name), outputs_(outputs), sequence_(t_sequence++) {}

uint64_t next_sequence() {
  return t_sequence;
}

void Node::destroy() {
  static thread_local std::vector<Node*> doomed;
  static thread_local bool draining = false;
  doomed.push_back(this);
  if (draining) return;
  draining = true;
  while (!doomed.empty()) {
    Node* node = doomed.back();
    doomed.pop_back();
    delete node;  // what it alone held alive arrives in `doomed`
  }
  draining = false;
}

}  // namespace weft
