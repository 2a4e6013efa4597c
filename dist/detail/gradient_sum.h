// The gradients of one flat buffer on their way: they land in a buffer of its layout, are added up
// over this rank's logical shards, over the shard axis (reduce-scatter), and over replicas
// (all-reduce), always in the fixed tree of dist/tree.h.
#pragma once

#include "dist/detail/flat.h"
#include "dist/shards.h"

namespace weft::dist::detail {

class GradientSum {
 public:
  // `rest`: whether a buffer of full length stays between steps. `order`: whether the shard axis
  // communicates once a step, or in every round. `result`: the dtype of the sums in the end; on the
  // way those of 16-bit gradients are in f32.
  GradientSum(const Flat& flat, const Mesh& mesh, Rest rest, ShardOrder order, int64_t leaves,
              DType result);
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  const Flat& flat() const { return flat_; }

  // ---- one logical shard ----
  // Where the gradient of `entry` lands.
  Tensor home(size_t entry);
  // Notes that it has.
  void landed(size_t entry);
  // Takes what has landed (no gradient counts as 0) and starts whatever communication is due: with
  // the step's last shard, or in every round. Waits for what this flat started before. `round`
  // counts this rank's shards in the step.
  void complete(const Shard& shard, int64_t round, bool last);
  // Waits for what complete() has started and gives back its landing buffer. After the step's last
  // shard the sums are ended: result_…() is this rank's shard of them (all of them where there is
  // one shard).
  void wait();
  bool completed() const { return completed_; }
  bool whole() const { return landed_count_ == landed_.size(); }
  bool has_landed(size_t entry) const { return landed_[entry]; }

  // ---- one step ----
  void begin_shard();
  void begin_step();
  // The sums of this rank's shard in the dtype that is stepped: widened, where they are of fewer
  // bits than masters, until drop_result().
  Tensor result();
  void drop_result() { widened_ = {}; }
  // Which entries had a gradient in any of this rank's shards.
  const std::vector<bool>& used() const { return used_; }
  // Forgets a step that did not end.
  void abandon();

 private:
  // A node's sum, in memory.
  struct Held {
    Node node;
    Ref<Storage> storage;
    int64_t byte = 0;
    DType dtype = f32;
  };

  // Whether the sums in the end have memory of their own between steps.
  bool keeps_result() const { return rest_ == Rest::sharded || result_dtype_ != flat_.dtype(); }
  bool is_landing(const Held& held) const;
  void let_go();
  Ref<Storage> allocate(int64_t elements, DType dtype) const;
  Elements elements(const Held& held, int64_t count) const;
  std::vector<Part> parts_of(const std::vector<Held>& held, int64_t count) const;
  void clear_what_did_not_land();
  void add_up(Held fresh);
  void start_shard_axis(std::vector<Held> parts, std::vector<Held> pending, bool last,
                        std::span<const Node> sums);
  void start_replicate_axis();

  const Flat& flat_;
  const Mesh& mesh_;
  Rest rest_;
  ShardOrder order_;
  int64_t leaves_;
  DType sum_dtype_;     // of sums that are not final
  DType result_dtype_;  // of those that are

  Ref<Storage> landing_;
  std::vector<bool> landed_;
  size_t landed_count_ = 0;
  std::vector<bool> used_;
  bool completed_ = false;

  std::vector<Held> held_;  // sums so far: of full length before the shard axis, else of a shard
  std::vector<Held> in_flight_;  // what a started call reads besides
  Ref<Storage> resident_;        // memory kept from step to step
  Ref<Storage> widened_;
  Handle handle_;
  bool replicate_due_ = false;
};

}  // namespace weft::dist::detail
