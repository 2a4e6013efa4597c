#include "dist/detail/engine.h"

#include "autograd/grad_mode.h"
#include "dist/agreement.h"

#include <algorithm>
#include <tuple>

namespace weft::dist {
namespace {

ParallelOptions with_defaults(ParallelOptions options) {
  const WrapPolicy& wrap = options.wrap;
  const bool given =
      !wrap.types.empty() || !wrap.names.empty() || wrap.min_parameters > 0 || wrap.every_module;
  if (options.strategy == "zero3" && !given) options.wrap.every_module = true;
  if (options.strategy == "fsdp" && !given) options.wrap.min_parameters = 100'000;
  return options;
}

ShardOrder order_of(const Plan& plan, const ParallelOptions& options) {
  return plan.gradients == Rest::sharded && options.reduce_every_shard ? ShardOrder::strided
                                                                       : ShardOrder::contiguous;
}

// Along which axis a strategy splits the model: without sharded state there is one shard, and every
// rank is a replica.
int shard_ranks_of(const Plan& plan, const ParallelOptions& options, const Communicator& comm) {
  if (plan.optimizer == Rest::replicated) return 1;
  return options.shard_ranks ? options.shard_ranks : comm.size();
}

}  // namespace

Parallel::Engine::Engine(nn::Module& model, Communicator& communicator, ParallelOptions given)
    : plan(plan_named(given.strategy)),
      options(with_defaults(std::move(given))),
      comm(communicator),
      leaves(options.logical_shards ? options.logical_shards
                                    : communicator.size() * options.accumulate),
      mesh_((check_options(), check_model(model), communicator),
            shard_ranks_of(plan, options, communicator)) {
  // Where forward gathers parameters, ranks go through it together.
  shards = shards_of(comm.rank(), comm.size(), leaves, order_of(plan, options),
                     plan.parameters == Rest::sharded);
  make_units(model);
  buffers_.emplace(model, comm, leaves, options.buffer_dtype);
  list_parameters(model);
  watch_gradients();
  facts_.resize(static_cast<size_t>(leaves) + all_.size() + sums_.size());
  for (size_t sum = 0; sum < sums_.size(); ++sum)
    order_.push_back(sum);
}

Parallel::Engine::~Engine() {
  for (const auto& [parameter, hook] : hooks_) {
    remove_hook(parameter, hook);
    set_grad_home(parameter, {});
  }
}

void Parallel::Engine::check_options() const {
  WEFT_CHECK(plan.name != "single" || comm.size() == 1, "parallel",
             "expected one rank for the strategy single, got ", comm.size());
  WEFT_CHECK(options.accumulate >= 1, "parallel", "expected accumulate of 1 or more, got ",
             options.accumulate);
  WEFT_CHECK(options.logical_shards == 0 || options.accumulate == 1, "parallel",
             "expected logical_shards or accumulate, got ", options.logical_shards, " and ",
             options.accumulate);
  WEFT_CHECK(leaves >= comm.size(), "parallel",
             "expected at least as many logical shards as ranks (", comm.size(), "), got ",
             options.logical_shards);
  WEFT_CHECK(options.max_gathered >= 1, "parallel", "expected max_gathered of 1 or more, got ",
             options.max_gathered);
  WEFT_CHECK(options.shard_ranks == 0 || plan.optimizer == Rest::sharded, "parallel",
             "expected shard_ranks for a strategy that shards, got ", options.shard_ranks, " for ",
             plan.name);
  check_dtypes();
  if (!options.offload) return;
  WEFT_CHECK(plan.parameters == Rest::sharded, "parallel",
             "expected offload for a strategy that shards parameters, got ", plan.name);
  WEFT_CHECK(options.offload->is_cpu(), "parallel", "expected offload to cpu, got ",
             *options.offload);
}

void Parallel::Engine::check_dtypes() const {
  const auto is_16_bit = [](DType dtype) { return dtype == bf16 || dtype == f16; };
  const auto& [parameter, reduce, buffer] =
      std::tie(options.parameter_dtype, options.reduce_dtype, options.buffer_dtype);
  WEFT_CHECK(!parameter || is_16_bit(*parameter), "parallel",
             "expected a parameter_dtype of bf16 or f16, got ", *parameter);
  WEFT_CHECK(!reduce || parameter, "parallel",
             "expected reduce_dtype together with parameter_dtype, got ", *reduce, " alone");
  WEFT_CHECK(!reduce || *reduce == f32 || *reduce == *parameter, "parallel",
             "expected a reduce_dtype of f32 or ", *parameter, ", got ", *reduce);
  WEFT_CHECK(!buffer || is_floating(*buffer), "parallel", "expected a floating buffer_dtype, got ",
             *buffer);
}

// All that decides who sends what when, and what becomes of it. Values travel as they lie in
// memory, so strides belong to it.
void Parallel::Engine::check_model(const nn::Module& model) const {
  std::vector<std::string> lines;
  lines.push_back(concat({"strategy ", plan.name, ", ", leaves, " logical shards"}));
  const auto add = [&](const char* what, const Piece& value) {
    lines.push_back(concat({what, " ", value}));
  };
  add("mean_over_shards", options.mean_over_shards);
  add("reduce_every_shard", options.reduce_every_shard);
  add("bucket_bytes", options.bucket_bytes);
  add("shard_ranks", options.shard_ranks);
  add("prefetch", options.prefetch);
  add("max_gathered", options.max_gathered);
  add("reshard_after_forward", options.reshard_after_forward);
  if (options.parameter_dtype) add("parameter_dtype", *options.parameter_dtype);
  if (options.reduce_dtype) add("reduce_dtype", *options.reduce_dtype);
  if (options.buffer_dtype) add("buffer_dtype", *options.buffer_dtype);
  for (const auto& [name, tensor] : model.named_parameters()) {
    lines.push_back(
        concat({"parameter ", name, " ", tensor.dtype(), tensor.shape(), " strides ",
                detail::resting_strides(tensor), tensor.requires_grad() ? "" : " (frozen)"}));
  }
  for (const auto& [name, tensor] : model.named_buffers()) {
    lines.push_back(concat({"buffer ", name, " ", tensor.dtype(), tensor.shape(), " strides ",
                            detail::resting_strides(tensor)}));
  }
  check_agreement(comm, "parallel", lines);
}

void Parallel::Engine::make_units(nn::Module& model) {
  const bool by_module = plan.parameters == Rest::sharded;
  for (auto& made :
       by_module ? wrap_modules(model, options.wrap) : wrap_buckets(model, options.bucket_bytes)) {
    auto& unit = *units_.emplace_back(std::make_unique<detail::Unit>());
    unit.name = made.name;
    unit.module = made.module;
    // A buffer holds one dtype, and what is trained apart from what is not.
    while (!made.parameters.empty()) {
      const Tensor first = made.parameters.front().tensor;
      const auto same = std::stable_partition(
          made.parameters.begin(), made.parameters.end(), [&](const NamedTensor& named) {
            return named.tensor.dtype() == first.dtype() &&
                   named.tensor.requires_grad() == first.requires_grad();
          });
      const std::vector<NamedTensor> together(made.parameters.begin(), same);
      made.parameters.erase(made.parameters.begin(), same);
      unit.flats.push_back(std::make_unique<detail::Flat>(
          unit.name, together, mesh_, plan.parameters, options.parameter_dtype));
    }
  }
  if (by_module && mesh_.shards() > 1) {
    gatherer_.emplace(mesh_, units_,
                      detail::Gatherer::Options{options.max_gathered, options.prefetch,
                                                options.reshard_after_forward});
  }
  // Backward makes the gradients of the last unit first; buckets are in that order already.
  std::vector<detail::Unit*> order;
  for (const auto& unit : units_)
    order.push_back(unit.get());
  if (by_module) std::reverse(order.begin(), order.end());
  for (const detail::Unit* unit : order) {
    for (const auto& flat : unit->flats) {
      if (!flat->trained()) continue;
      const DType result =
          flat->has_masters() && options.reduce_dtype ? *options.reduce_dtype : flat->dtype();
      sums_.push_back(std::make_unique<detail::GradientSum>(
          *flat, mesh_, plan.gradients, order_of(plan, options), leaves, result));
    }
  }
}

void Parallel::Engine::list_parameters(const nn::Module& model) {
  for (const auto& named : model.named_parameters()) {
    for (size_t sum = 0; sum < sums_.size(); ++sum) {
      const auto& entries = sums_[sum]->flat().entries();
      for (size_t entry = 0; entry < entries.size(); ++entry) {
        if (entries[entry].parameter.is_same(named.tensor)) list_parameter(sum, entry);
      }
    }
  }
}

void Parallel::Engine::list_parameter(size_t sum, size_t entry) {
  const detail::Flat& flat = sums_[sum]->flat();
  const detail::Flat::Entry& whole = flat.entries()[entry];
  optim::ShardedParameter known{whole.name, whole.count, {0}, whole.shape.dims()};
  for (int shard = 0; shard < mesh_.shards(); ++shard) {
    const auto part = flat.in_shard(whole, shard);
    if (part.end > part.begin) known.cuts.push_back(part.end);
  }
  all_.push_back(std::move(known));
  places_.push_back({sum, entry});
  const size_t parameter = all_.size() - 1;
  const auto mine = flat.in_shard(whole, mesh_.shard_index());
  if (mesh_.shards() > 1 && mine.begin == mine.end) return;
  listed_.push_back({sum, entry, parameter, mine.begin, flat.stepped(whole)});
}

std::vector<NamedTensor> Parallel::Engine::listed() const {
  std::vector<NamedTensor> result;
  for (const Listed& listed : listed_)
    result.push_back({all_[listed.parameter].name, listed.tensor});
  return result;
}

void Parallel::Engine::watch_gradients() {
  for (size_t sum = 0; sum < sums_.size(); ++sum) {
    const auto& entries = sums_[sum]->flat().entries();
    for (size_t entry = 0; entry < entries.size(); ++entry) {
      const Tensor& parameter = entries[entry].parameter;
      set_grad_home(parameter, [this, sum, entry] {
        if (phase_ == Phase::idle || phase_ == Phase::finished) begin_implicit_step();
        return sums_[sum]->home(entry);
      });
      hooks_.emplace_back(parameter,
                          add_accumulated_hook(parameter, [this, sum, entry](const Tensor&) {
                            gradient_landed(sum, entry);
                          }));
    }
  }
}

void Parallel::Engine::with_full_parameters(const Function<void()>& f, bool keep) {
  WEFT_CHECK(phase_ != Phase::in_shard, "parallel",
             "expected with_full_parameters() outside of a shard, got it within one");
  const auto each_flat = [this](const auto& visit) {
    for (const auto& unit : units_) {
      for (const auto& flat : unit->flats)
        visit(*flat);
    }
  };
  const auto hide = [&] {
    each_flat([](detail::Flat& flat) { flat.hide_masters(); });
    if (gatherer_) gatherer_->release_all();
  };
  struct AtEnd {
    const decltype(hide)& run;
    ~AtEnd() { run(); }
  } hide_at_end{hide};
  if (gatherer_) gatherer_->hold_all();
  each_flat([this](detail::Flat& flat) { flat.show_masters(mesh_); });
  f();
  if (!keep && mesh_.shards() > 1) return;  // where parameters rest whole, changes stay anyway
  each_flat([](detail::Flat& flat) {
    flat.keep_masters();
    if (flat.sharded() && !flat.has_masters()) flat.keep_shard();
  });
}

Parallel::StateBytes Parallel::Engine::state_bytes() const {
  StateBytes bytes;
  for (const auto& unit : units_) {
    for (const auto& flat : unit->flats) {
      const int64_t width = size_of(flat->dtype());
      const int64_t pieces = mesh_.shards();
      const bool sharded = flat->sharded();
      const int64_t length = sharded ? flat->shard_length() : flat->length();
      bytes.parameters += length * width;
      int64_t padded = (sharded ? 1 : pieces) * width;  // bytes an element that padding has, too
      if (flat->trained()) {
        const bool whole = plan.gradients == Rest::replicated || pieces == 1;
        const bool wide = flat->has_masters() && options.reduce_dtype == f32;
        const int64_t of_sums = wide ? size_of(f32) : whole ? 0 : width;
        bytes.gradients += (whole ? flat->length() * width : 0) + flat->shard_length() * of_sums;
        padded += (whole ? pieces * width : 0) + of_sums;
      }
      if (flat->has_masters()) {
        bytes.masters += flat->shard_length() * size_of(f32);
        padded += size_of(f32);
      }
      bytes.padding += (flat->length() - flat->used_length()) * padded / pieces;
    }
  }
  return bytes;
}

// ---- optim::Sharding ----

optim::Sharding::Place Parallel::Engine::place(const Tensor& part) const {
  const auto at = std::find_if(listed_.begin(), listed_.end(), [&](const Listed& listed) {
    return listed.tensor.body() == part.body();
  });
  WEFT_CHECK(at != listed_.end(), "parallel",
             "expected one of the tensors that parameters() lists, got one of shape ",
             part.shape());
  return {at->parameter, at->begin};
}

void Parallel::Engine::sum(std::span<double> values) {
  if (mesh_.shards() > 1)
    mesh_.shard().all_reduce({values.data(), static_cast<int64_t>(values.size()), f64},
                             ReduceOp::sum, {"norms"});
}

void Parallel::Engine::max(std::span<double> values) {
  if (mesh_.shards() > 1)
    mesh_.shard().all_reduce({values.data(), static_cast<int64_t>(values.size()), f64},
                             ReduceOp::max, {"norms"});
}

// ---- the public face ----

Parallel::Parallel(nn::Module& model, Communicator& comm, ParallelOptions options)
    : engine_(make_ref<Engine>(model, comm, std::move(options))) {}
Parallel::~Parallel() = default;

optim::Parameters Parallel::parameters() const {
  return {engine_->listed(), engine_};
}
const Plan& Parallel::plan() const {
  return engine_->plan;
}
const ParallelOptions& Parallel::options() const {
  return engine_->options;
}
Communicator& Parallel::communicator() const {
  return engine_->comm;
}
int64_t Parallel::leaves() const {
  return engine_->leaves;
}
void Parallel::begin_step(uint64_t step) {
  engine_->begin_step(step);
}
const std::vector<Shard>& Parallel::shards() const {
  return engine_->shards;
}
void Parallel::begin_shard(const Shard& shard, bool has_samples) {
  engine_->begin_shard(shard, has_samples);
}
void Parallel::backward(const Tensor& loss, double scale) {
  engine_->backward(loss, scale);
}
double Parallel::loss() {
  return engine_->loss();
}
void Parallel::finish_gradients() {
  engine_->finish_gradients();
}
void Parallel::skip_step() {
  engine_->skip_step();
}
void Parallel::with_full_parameters(const Function<void()>& f, bool keep) {
  engine_->with_full_parameters(f, keep);
}
Parallel::StateBytes Parallel::state_bytes() const {
  return engine_->state_bytes();
}

}  // namespace weft::dist
