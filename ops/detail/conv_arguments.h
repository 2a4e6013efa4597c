// Checks that conv2d and conv_transpose2d share, and the dtype they compute in.
#pragma once

#include "core/tensor.h"

namespace weft::detail {

// Options are called "stride" and so on in errors; values may be from `least` to 2^31 - 1.
void check_conv_pair(const char* op, const char* name, const Shape& value, int64_t least);

// Defined, floating, of one dtype and device; x and weight of 4 dims without empty ones (x may hold
// no images).
void check_conv_operands(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);

// bias is undefined or [outputs].
void check_conv_bias(const char* op, const Tensor& bias, int64_t outputs, const Tensor& weight);

// f32 and f64 as they are; 16-bit floats where the processor has them, else f32.
DType conv_compute_dtype(DType dtype);

// An operand as the kernels take it: of that dtype, without history. `parameter` keeps its strides.
Tensor conv_parameter(const Tensor& parameter, DType dtype);
// A bias without gaps; undefined stays so.
Tensor conv_bias(const Tensor& bias, DType dtype);

// All zero, in x's layout.
Tensor conv_zeros(const Tensor& like);

}  // namespace weft::detail
