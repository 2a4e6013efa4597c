// Bringing a checkpoint's values to where this rank holds them.
#pragma once

#include "core/function.h"
#include "dist/checkpoint_reader.h"
#include "dist/detail/checkpoint_pieces.h"

#include <string>
#include <vector>

namespace weft::dist::detail {

class CheckpointLoad {
 public:
  // Finds what this rank needs. Throws an Error that lists everything in which the checkpoint and
  // the model, optimizer and added tensors differ.
  CheckpointLoad(const CheckpointParts& parts, CheckpointReader& reader);

  // Reads it into memory of its own. Throws DamagedCheckpoint.
  void read();
  // All that may still fail. Throws an Error where the optimizer has other state than this.
  void prepare();
  // Puts everything in its place, once all ranks are ready to. Cannot fail but by communication.
  void apply();

 private:
  // Values for a piece of the model, or for a tensor of the optimizer's state.
  struct Target {
    Piece piece;
    const StoredTensor* stored = nullptr;
    Tensor values;
  };

  void plan_model();
  void plan_ema();
  void plan_optimizer();
  std::string stored_name_of(const std::string& parameter) const;
  Target* add(std::vector<Target>& targets, Piece piece);
  void read_in_other_order(const Target& target);

  const CheckpointParts& parts_;
  CheckpointReader& reader_;
  std::string wrong_;
  std::vector<Target> model_;
  std::vector<Target> optimizer_;
  std::vector<NamedTensor> state_;  // what the optimizer is given
  Function<void()> give_;           // gives it
};

}  // namespace weft::dist::detail
