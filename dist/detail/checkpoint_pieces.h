// What of the training state lies on this rank, as runs of named tensors, and what of it this rank
// saves.
#pragma once

#include "dist/parallel.h"
#include "optim/ema.h"
#include "optim/optimizer.h"

#include <string>
#include <vector>

namespace weft::dist::detail {

// Elements [begin, begin + count) of a tensor, in memory order.
struct Piece {
  std::string name = {};
  DType dtype = f32;
  Shape shape = {};             // of the whole
  std::vector<int> order = {};  // of the whole: see dist/manifest.h
  int64_t begin = 0;
  int64_t count = 0;
  std::byte* data = nullptr;
  Tensor memory = {};  // that `data` points into
  // Which of the ranks that have the same values this is, and how many there are.
  int holder = 0;
  int holders = 1;

  int64_t bytes() const { return count * size_of(dtype); }
  bool is_whole() const { return begin == 0 && count == shape.numel(); }
};

// Dims from the slowest to the fastest; empty if that is row-major.
std::vector<int> order_of(const Shape& shape, const Strides& strides);
Strides strides_of(const Shape& shape, const std::vector<int>& order);

// All of a tensor. Throws where it has gaps in memory.
Piece piece_of(std::string name, const Tensor& tensor, int holder, int holders);

// What the state consists of. Pointers may be null.
struct CheckpointParts {
  nn::Module& model;
  Parallel& parallel;
  optim::Optimizer* optimizer = nullptr;
  const optim::Ema* ema = nullptr;
  std::vector<NamedTensor> tensors = {};
};

// Names: "model.NAME", "tensors.NAME".
std::vector<Piece> model_pieces(const CheckpointParts& parts);

// The averages of parameters, "ema.NAME". None without.
std::vector<Piece> ema_pieces(const CheckpointParts& parts);

// Where the optimizer's state of each parameter belongs: parts of parameters that this rank steps.
struct SteppedPart {
  Tensor part;      // of parameters()
  Piece parameter;  // its place in the whole; named as the parameter
};
std::vector<SteppedPart> stepped_parts(const CheckpointParts& parts);

// "optimizer.step" (steps of the optimizer), "optimizer.step.NAME" of parameters that have taken
// one, "optimizer.STATE.NAME". None without an optimizer.
std::vector<Piece> optimizer_pieces(const CheckpointParts& parts);

// Those and parts of those that this rank saves: what several ranks hold is divided among them by
// bytes, so that every element is saved once. A tensor without elements is saved by its first
// holder.
std::vector<Piece> own_pieces(const std::vector<Piece>& held);

}  // namespace weft::dist::detail
