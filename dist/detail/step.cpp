// The course of a step.
#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "core/random.h"
#include "dist/detail/engine.h"
#include "dist/redistribute.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "optim/clip.h"

#include <algorithm>

namespace weft::dist {
namespace {

// Full-length gradient buffers that a strategy with sharded gradients has at a time: one that
// backward fills and one that is being reduced.
constexpr size_t kLandingBuffers = 2;

}  // namespace

void Parallel::Engine::begin_step(uint64_t step) {
  // An optimizer over the model's own tensors would find no gradients, and train nothing.
  WEFT_CHECK(has_optimizer_ || steps_finished_ < 2, "parallel",
             "expected an optimizer over parallel.parameters(), got two steps without one");
  const bool came_to_nothing = named_ && phase_ != Phase::idle;
  drop_gradients();
  for (const auto& sum : sums_)
    sum->begin_step();
  buffers_->begin_step(came_to_nothing);
  std::fill(facts_.begin(), facts_.end(), 0.0);
  step_ = step;
  round_ = 0;
  named_ = true;
  phase_ = Phase::between_shards;
}

void Parallel::Engine::begin_shard(const Shard& shard, bool has_samples) {
  WEFT_CHECK(phase_ == Phase::between_shards, "parallel",
             "expected begin_step(), or the backward() of the last shard, before begin_shard()");
  WEFT_CHECK(round_ < shards.size() && shard.index == shards[round_].index &&
                 shard.ghost == shards[round_].ghost,
             "parallel", "expected the shards of shards() in their order, got shard ", shard.index,
             " as number ", round_);
  begin_random_step(step_, static_cast<uint32_t>(shard.index));
  if (gatherer_) gatherer_->end_shard();
  buffers_->begin_shard();
  open_shard(has_samples);
}

void Parallel::Engine::begin_implicit_step() {
  WEFT_CHECK(shards.size() == 1, "parallel",
             "expected begin_step() and begin_shard(), since a "
             "rank runs ",
             shards.size(), " shards a step, got a backward without");
  const uint64_t step = step_ + 1;
  phase_ = Phase::idle;  // this step's forward has been: its buffers are to stay
  begin_step(step);
  named_ = false;
  open_shard(true);
}

void Parallel::Engine::open_shard(bool has_samples) {
  for (const auto& sum : sums_)
    sum->begin_shard();
  ready_.clear();
  has_samples_ = has_samples;
  advanced_ = 0;
  phase_ = Phase::in_shard;
}

void Parallel::Engine::backward(const Tensor& loss, double scale) {
  WEFT_CHECK(phase_ == Phase::in_shard, "parallel", "expected begin_shard() before backward()");
  weft::backward(loss, scale == 1 ? Tensor() : full(loss.shape(), scale, loss.options()));
  const Shard& shard = shards[round_];
  if (!shard.ghost) facts_[static_cast<size_t>(shard.index)] = loss.item();
  end_shard();
}

void Parallel::Engine::gradient_landed(size_t sum, size_t entry) {
  detail::GradientSum& at = *sums_[sum];
  WEFT_CHECK(phase_ == Phase::in_shard && !at.completed() && !at.has_landed(entry), "parallel",
             "expected one backward for each logical shard and optimizer step, got a second "
             "gradient of ",
             at.flat().entries()[entry].name);
  at.landed(entry);
  if (!at.whole()) return;
  ready_.push_back(sum);
  advance(false);
}

void Parallel::Engine::advance(bool all) {
  const Shard& shard = shards[round_];
  const bool last = round_ + 1 == shards.size();
  for (; advanced_ < sums_.size() && (all || in_order(advanced_).whole()); ++advanced_) {
    detail::GradientSum& sum = in_order(advanced_);
    sum.complete(shard, static_cast<int64_t>(round_), last);
    for (const auto& entry : sum.flat().entries())
      entry.parameter.set_grad({});
    if (plan.gradients == Rest::sharded && advanced_ + 1 >= kLandingBuffers)
      in_order(advanced_ + 1 - kLandingBuffers).wait();
  }
}

void Parallel::Engine::end_shard() {
  advance(true);
  if (gatherer_) gatherer_->end_shard();
  buffers_->end_shard(shards[round_], has_samples_);
  ++round_;
  phase_ = Phase::between_shards;
}

void Parallel::Engine::finish_gradients() {
  if (phase_ == Phase::idle || phase_ == Phase::finished) return;
  if (phase_ == Phase::in_shard) {
    WEFT_CHECK(!named_, "parallel", "expected a whole backward() of shard ", shards[round_].index,
               " before the step ends, got none, or one that ended with an error");
    end_shard();
  }
  WEFT_CHECK(round_ == shards.size(), "parallel", "expected all ", shards.size(),
             " shards of this rank before the step ends, got ", round_);
  for (const auto& sum : sums_)
    sum->wait();
  buffers_->finish();
  share_facts();
  follow_order();
  hand_out_gradients();
  ++steps_finished_;
  phase_ = Phase::finished;
}

void Parallel::Engine::share_facts() {
  for (size_t i = 0; i < all_.size(); ++i) {
    if (sums_[places_[i].sum]->used()[places_[i].entry])
      facts_[static_cast<size_t>(leaves) + i] = 1;
  }
  if (comm.rank() == 0) {
    std::vector<size_t> observed = ready_;
    for (const size_t sum : order_) {
      if (!sums_[sum]->whole()) observed.push_back(sum);  // last, as they were
    }
    for (size_t at = 0; at < observed.size(); ++at)
      facts_[static_cast<size_t>(leaves) + all_.size() + observed[at]] = static_cast<double>(at);
  }
  // Each loss comes from one rank: adding zeros to it changes nothing.
  comm.all_reduce({facts_.data(), static_cast<int64_t>(facts_.size()), f64}, ReduceOp::sum,
                  {"losses"});
}

void Parallel::Engine::follow_order() {
  for (size_t sum = 0; sum < sums_.size(); ++sum) {
    const double at = facts_[static_cast<size_t>(leaves) + all_.size() + sum];
    order_[static_cast<size_t>(at)] = sum;
  }
}

void Parallel::Engine::hand_out_gradients() {
  const NoGrad no_grad;
  std::vector<Tensor> results;
  for (const auto& sum : sums_) {
    results.push_back(sum->result());
    if (options.mean_over_shards && leaves > 1)
      mul_(results.back(), 1.0 / static_cast<double>(leaves));
  }
  for (const Listed& listed : listed_) {
    if (!used_anywhere(listed)) continue;
    const detail::Flat& flat = sums_[listed.sum]->flat();
    const int64_t from = flat.entries()[listed.entry].offset + listed.begin - flat.shard_begin();
    listed.tensor.set_grad(
        alias(results[listed.sum], listed.tensor.shape(), listed.tensor.strides(), from));
  }
}

void Parallel::Engine::drop_gradients() {
  for (const Listed& listed : listed_)
    listed.tensor.set_grad({});
  for (const auto& sum : sums_) {
    for (const auto& entry : sum->flat().entries())
      entry.parameter.set_grad({});
    sum->drop_result();
  }
}

double Parallel::Engine::loss() {
  finish_gradients();
  const double sum = optim::tree_sum(facts_.data(), leaves);
  return options.mean_over_shards ? sum / static_cast<double>(leaves) : sum;
}

void Parallel::Engine::before_step() {
  finish_gradients();
}

// The step has used the gradients up.
void Parallel::Engine::after_step() {
  drop_gradients();
  phase_ = Phase::idle;
  spread_parameters();
}

void Parallel::Engine::skip_step() {
  finish_gradients();
  WEFT_CHECK(phase_ == Phase::finished, "parallel", "expected a step to skip, got none");
  drop_gradients();
  if (named_) buffers_->restore();
  phase_ = Phase::idle;
}

void Parallel::Engine::parameters_changed() {
  WEFT_CHECK(phase_ == Phase::idle || phase_ == Phase::finished, "parallel",
             "expected parameters to be written between steps, got it within one");
  spread_parameters();
}

// The model computes with what the optimizer has written: masters are rounded, and where optimizer
// state is sharded and parameters are not, every rank gets what the others have.
void Parallel::Engine::spread_parameters() {
  const bool gathers = plan.parameters == Rest::replicated && mesh_.shards() > 1;
  std::vector<Handle> handles;
  for (const auto& sum : sums_) {
    const detail::Flat& flat = sum->flat();
    flat.round_masters();
    if (!gathers) continue;
    handles.push_back(mesh_.gather().start(gather_move(flat.shard(), flat.whole(), flat.tag())));
  }
  for (size_t i = 0; i < handles.size(); ++i) {
    handles[i].wait();
    sums_[i]->flat().shard_storage()->bump_version();
  }
}

}  // namespace weft::dist
