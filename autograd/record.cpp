#include "autograd/record.h"

#include <algorithm>

namespace weft {

bool recording(std::span<const Tensor> tensors) {
  return grad_enabled() && std::any_of(tensors.begin(), tensors.end(), [](const Tensor& t) {
           return t.defined() && t.requires_grad();
         });
}

std::vector<Edge> inputs(std::span<const Tensor> tensors) {
  std::vector<Edge> edges;
  edges.reserve(tensors.size());
  for (const Tensor& tensor : tensors)
    edges.push_back(edge_to(tensor));
  return edges;
}

void Saved::fail(const char* op) const {
  throw_error(op,
              {"expected a tensor of shape ", tensor_.shape(), " as backward saved it (version ",
               version_, "), got it changed in place (version ", tensor_.version(), ")"});
}

namespace {

// The node that can make `tensor` again as it is: it was not changed in place.
Ref<Node> rebuilder(const Tensor& tensor) {
  if (!tensor.defined() || tensor.version() != 0) return {};
  const Edge edge = edge_to(tensor);
  return edge.node && edge.node->rebuilds() ? edge.node : Ref<Node>();
}

}  // namespace

SavedOrRebuilt::SavedOrRebuilt(const Tensor& tensor)
    : producer_(rebuilder(tensor)), saved_(producer_ ? Tensor() : tensor) {}

void check_in_place(const char* op, const Tensor& target, bool is_recording) {
  for (int d = 0; d < target.dims(); ++d) {
    WEFT_CHECK(target.strides()[d] != 0 || target.shape()[d] <= 1, op,
               "expected a target whose elements lie apart, got shape ", target.shape(),
               " with strides ", target.strides());
  }
  if (!is_recording) return;
  WEFT_CHECK(!(target.requires_grad() && target.is_leaf()), op,
             "expected a tensor that is not a leaf, got a leaf of shape ", target.shape(),
             " that requires a gradient; change it inside a NoGrad");
  WEFT_CHECK(target.storage()->use_count() == 1, op,
             "expected storage of one tensor, got a tensor of shape ", target.shape(),
             " that shares its storage with a view or with a value saved for backward");
}

}  // namespace weft
