// Makes a tensor, behind all of its handles, a view of other memory, possibly of another dtype.
#pragma once

#include "core/tensor.h"

namespace weft::dist::detail {

inline void point_tensor(const Tensor& tensor, const Tensor& view) {
  TensorBody& body = *tensor.body();
  body.storage = view.storage();
  body.data = view.raw();
  body.shape = view.shape();
  body.strides = view.strides();
  body.numel = view.numel();
  body.dtype = view.dtype();
  body.contiguous = view.is_contiguous();
}

}  // namespace weft::dist::detail
