// The engine behind dist::Parallel: units, sums of gradients, gathers, and the course of a step.
#pragma once

#include "dist/detail/buffer_mean.h"
#include "dist/detail/gatherer.h"
#include "dist/detail/gradient_sum.h"
#include "dist/parallel.h"

#include <optional>

namespace weft::dist {

class Parallel::Engine final : public optim::Sharding {
 public:
  Engine(nn::Module& model, Communicator& comm, ParallelOptions options);
  ~Engine() override;

  // The tensors to step, with this as their Sharding.
  std::vector<NamedTensor> listed() const;

  void begin_step(uint64_t step);
  void begin_shard(const Shard& shard, bool has_samples);
  void backward(const Tensor& loss, double scale);
  double loss();
  void skip_step();
  void with_full_parameters(const Function<void()>& f, bool keep);
  StateBytes state_bytes() const;
  std::vector<Held> held() const;
  void held_changed();
  const Mesh& mesh() const { return mesh_; }

  // optim::Sharding
  void optimizer_made() override { has_optimizer_ = true; }
  void before_step() override;
  void after_step() override;
  void parameters_changed() override;
  void finish_gradients() override;
  const std::vector<optim::ShardedParameter>& all() const override { return all_; }
  Place place(const Tensor& part) const override;
  void sum(std::span<double> values) override;
  void max(std::span<double> values) override;

  const Plan plan;
  const ParallelOptions options;
  Communicator& comm;
  const int64_t leaves;
  std::vector<Shard> shards;

 private:
  // Where a step is. A backward without begin_step begins one, with this rank's only shard.
  enum class Phase : uint8_t { idle, between_shards, in_shard, finished };

  // A tensor that this rank's optimizer steps: elements [begin, begin + count) of a parameter.
  struct Listed {
    size_t sum;        // which of sums_
    size_t entry;      // which parameter of its flat buffer
    size_t parameter;  // which of all_
    int64_t begin;
    Tensor tensor;
  };

  void check_options() const;
  void check_dtypes() const;
  void check_model(const nn::Module& model) const;
  void make_units(nn::Module& model);
  void list_parameters(const nn::Module& model);
  void list_parameter(size_t sum, size_t entry);
  void watch_gradients();

  void begin_implicit_step();
  void open_shard(bool has_samples);
  void gradient_landed(size_t sum, size_t entry);
  // Completes sums in their order: those that are whole, or all of them.
  void advance(bool all);
  detail::GradientSum& in_order(size_t at) { return *sums_[order_[at]]; }
  void end_shard();
  // Losses, and which parameters had a gradient, from every rank to every rank; and the order of
  // sums from rank 0.
  void share_facts();
  void follow_order();
  void hand_out_gradients();
  void drop_gradients();
  void spread_parameters();
  bool used_anywhere(const Listed& listed) const {
    return facts_[static_cast<size_t>(leaves) + listed.parameter] != 0;
  }

  Mesh mesh_;
  std::vector<std::unique_ptr<detail::Unit>> units_;
  std::vector<std::unique_ptr<detail::GradientSum>> sums_;
  // In which sums are completed, the same on all ranks: at first that of a backward through modules
  // as the model lists them, then that in which those of rank 0 became whole in the last step.
  std::vector<size_t> order_;
  std::vector<size_t> ready_;  // those that are whole in this shard, in the order they became so
  std::optional<detail::BufferMean> buffers_;
  std::optional<detail::Gatherer> gatherer_;  // where parameters rest sharded

  // Which of sums_ a parameter belongs to, and which parameter of its flat buffer it is.
  struct InSum {
    size_t sum;
    size_t entry;
  };
  std::vector<optim::ShardedParameter> all_;
  std::vector<InSum> places_;  // of each of all_
  std::vector<Listed> listed_;
  std::vector<std::pair<Tensor, HookId>> hooks_;

  Phase phase_ = Phase::idle;
  bool named_ = false;  // begin_step() began it, so that every shard ends by backward()
  uint64_t step_ = 0;
  size_t round_ = 0;     // shards that have ended
  size_t advanced_ = 0;  // sums that are complete in this shard
  bool has_samples_ = true;
  std::vector<double> facts_;  // losses of all shards, uses of all parameters, places in order_
  int64_t steps_finished_ = 0;
  bool has_optimizer_ = false;
};

}  // namespace weft::dist
