// A flat buffer: the parameters of one unit that share a dtype and are all trained or all frozen,
// laid end to end. Each parameter becomes a view into it, so that communication needs no packing.
//
// With mixed precision the buffer is of 16 bits, which the model computes with and ranks gather;
// this rank keeps its shard of the f32 values (masters) beside it, which optimizers step, and which
// are rounded into the buffer's shard after the step.
#pragma once

#include "core/reserved.h"
#include "core/safetensors.h"
#include "dist/mesh.h"
#include "dist/plan.h"

#include <optional>
#include <string>
#include <vector>

namespace weft::dist::detail {

// The strides that a parameter's values rest in: its own, row-major ones if it has gaps in memory.
Strides resting_strides(const Tensor& tensor);

class Flat {
 public:
  struct Entry {
    std::string name;
    Tensor parameter;
    Shape shape;
    Strides strides;
    int64_t offset = 0;  // elements from the buffer's start
    int64_t count = 0;
  };

  // Takes the parameters' values over and points them into the buffer. Where P is sharded, keeps
  // this rank's shard only, and the parameters have no values until gathered: so on a mesh of one
  // shard they just rest. `parameters` have one dtype; those with gaps in memory become row-major.
  // `computed`: the 16-bit dtype that they are to have from now on; those of f64 and of no floating
  // dtype keep theirs.
  Flat(std::string unit, const std::vector<NamedTensor>& parameters, const Mesh& mesh,
       Rest parameters_rest, std::optional<DType> computed = {});
  Flat(const Flat&) = delete;
  Flat& operator=(const Flat&) = delete;

  const std::string& unit() const { return unit_; }
  const std::vector<Entry>& entries() const { return entries_; }
  DType dtype() const { return dtype_; }
  bool trained() const { return trained_; }
  // Elements with padding, so that every shard begins on a border of kNormGroup and 64 bytes; and
  // of one shard.
  int64_t length() const { return length_; }
  int64_t shard_length() const { return length_ / shards_; }
  // First element of this rank's shard.
  int64_t shard_begin() const { return shard_index_ * shard_length(); }
  // Elements of parameters, without padding.
  int64_t used_length() const { return used_length_; }
  Tag tag() const { return {unit_, 0, length_}; }

  // All values, where they rest replicated or are gathered; this rank's shard.
  Elements whole() const;
  Elements shard() const;
  // What a view of the shard is made of, and the byte the shard begins at in it.
  const Ref<Storage>& shard_storage() const { return resting_; }
  int64_t shard_byte() const { return sharded_ ? 0 : shard_begin() * size_of(dtype_); }
  // What an optimizer steps of a parameter: this rank's elements of it, or of its masters. On a
  // mesh of one shard they have the parameter's shape, and without masters are the parameter.
  Tensor stepped(const Entry& entry) const;

  // ---- masters ----
  bool has_masters() const { return static_cast<bool>(masters_); }
  DType stepped_dtype() const { return masters_ ? f32 : dtype_; }
  // Rounds them into the shard.
  void round_masters() const;
  // Makes the parameters views of the f32 values of all shards (a collective along the shard axis),
  // and of the 16-bit ones again. In between, whoever has changed them takes his shard over.
  void show_masters(const Mesh& mesh);
  void keep_masters();
  void hide_masters() noexcept;

  // ---- P sharded ----
  bool sharded() const { return sharded_; }
  bool gathered() const { return gathered_ && gathered_->present(); }
  // Memory for all values; point() after the gather makes the parameters views of it.
  void take();
  void point();
  // Back to the shard: parameters keep their shapes, but their memory is gone.
  void drop();
  // Cuts this rank's shard out of the gathered values again, which somebody has changed.
  void keep_shard();

  // Part of parameter `entry` that lies in shard `index`: elements [begin, end) of it.
  struct Interval {
    int64_t begin = 0;
    int64_t end = 0;
  };
  Interval in_shard(const Entry& entry, int64_t index) const;

 private:
  void point_at(const Ref<Storage>& storage, DType dtype);
  void fill(const Ref<Storage>& storage, DType dtype, bool deferred_too);

  std::string unit_;
  std::vector<Entry> entries_;
  DType dtype_ = f32;
  bool trained_ = false;
  bool sharded_ = false;
  int shards_;
  int shard_index_;
  int64_t length_ = 0;
  int64_t used_length_ = 0;
  Ref<Storage> resting_;  // the whole, or the shard
  std::optional<ReservedMemory> gathered_;
  Ref<Storage> masters_;  // of the shard
  Ref<Storage> shown_;    // of all
};

}  // namespace weft::dist::detail
