// Matrix products: C[m, n] = Σ_k A[m, k] B[k, n], with any strides, so that a transposed operand
// costs nothing.
//
// The bits of an element of C depend on its row of A, its column of B and k alone: not on m, n, the
// strides, the threads or where in memory anything lies. Each sum runs over blocks of 256 products,
// in order, by fused multiply-adds from zero; the blocks' sums are added in order, the bias last.
// So the output for a sample is the same in any batch. (Where the processor has native 16-bit
// products, bf16 and f16 go to oneDNN instead, which promises this only for equal shapes and thread
// counts.)
//
// The kernel is the usual tile in registers (Goto, van de Geijn, "Anatomy of high-performance
// matrix multiplication", ACM TOMS 34(3), 2008): packets along one side, broadcasts along the
// other.
#pragma once

#include "core/tensor.h"

#include <cstdint>

namespace weft::detail {

// One product. Strides are in elements, of rows and columns; 0 repeats.
template <class T>
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  const T* a = nullptr;
  int64_t a_row = 0, a_col = 0;
  const T* b = nullptr;
  int64_t b_row = 0, b_col = 0;
  T* c = nullptr;
  int64_t c_row = 0, c_col = 0;
  const T* bias =
      nullptr;  // added to row i, column j: bias[i * bias_row + j * bias_col]; null for none
  int64_t bias_row = 0, bias_col = 1;
  bool accumulate = false;  // add to C instead of overwriting it
};

// Threads split large products; inside a parallel_for it runs in place. k = 0 gives zeros (plus
// bias). T is float or double. C must not overlap A or B.
template <class T>
void gemm(const Gemm<T>& product);
extern template void gemm<float>(const Gemm<float>&);
extern template void gemm<double>(const Gemm<double>&);

// out[…, m, n] = a[…, m, k] · b[…, k, n] (+ bias[n]), all of one dtype (bias too), with a's and b's
// leading dims already expanded to out's. Any numeric dtype; the integers wrap around. 16-bit
// floats multiply natively where the processor can (detail/onednn.h), else they are widened and the
// f32 result narrowed.
void multiply(const char* op, const Tensor& out, const Tensor& a, const Tensor& b,
              const Tensor& bias = {});

// The same by oneDNN's matmul, for the dtypes that onednn::supports. False if oneDNN has but its
// reference implementation for it; then out is as it was.
bool multiply_by_onednn(const char* op, const Tensor& out, const Tensor& a, const Tensor& b,
                        const Tensor& bias);

}  // namespace weft::detail
