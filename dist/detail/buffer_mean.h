// Buffers that training changes, such as the running statistics of BatchNorm. Every logical shard
// starts from the step's first values; the step ends with the mean of what the shards made of them,
// added in the fixed tree, those of 16 bits in f32. Integer buffers end as any one shard leaves
// them.
#pragma once

#include "dist/communicator.h"
#include "dist/shards.h"
#include "nn/module.h"

#include <optional>

namespace weft::dist::detail {

class BufferMean {
 public:
  // Takes the model's buffers into flat memory. A collective: ranks start from the values of rank
  // 0. Floating ones become of `floating_dtype`.
  BufferMean(nn::Module& model, Communicator& comm, int64_t leaves,
             std::optional<DType> floating_dtype = {});

  // After a step that came to nothing, starts from what was before it.
  void begin_step(bool last_came_to_nothing);
  void begin_shard();
  // `counts`: whether the shard held any sample. With `own_only`, for ranks that are alone.
  void end_shard(const Shard& shard, bool counts);
  // Every rank, once a step.
  void finish();
  // After that: what was before the step.
  void restore();

 private:
  struct Group {  // buffers of one dtype
    DType dtype;
    Ref<Storage> values;
    Ref<Storage> first;  // at the step's beginning
    int64_t count = 0;
    std::vector<Part> sums = {};
    std::vector<Ref<Storage>> memory = {};
  };
  void add_up(Group& group, const Shard& shard, bool counts);

  Communicator& comm_;
  int64_t leaves_;
  std::vector<Group> groups_;
  double counted_ = 0;
};

}  // namespace weft::dist::detail
