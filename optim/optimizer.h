// What all optimizers share: groups of parameters, the pass over them, and their state.
//
//   optim::Sgd optimizer(model, {.lr = 0.1, .momentum = 0.9});
//   optimizer.zero_grad();  loss.backward();  optimizer.step();
//
// Parameters are floating leaves without gaps in memory. f32 and f64 ones are stepped in their own
// precision; bf16 and f16 ones keep an f32 master copy here, which takes the step and is rounded
// into them. An optimizer belongs to one thread; a step uses that thread's num_threads().
#pragma once

#include "core/function.h"
#include "core/safetensors.h"
#include "optim/blocks.h"
#include "optim/parameters.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::optim {

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Steps every parameter that has a gradient, in one pass over memory. Others are left alone,
  // their state too. When it throws, no parameter has changed.
  void step();
  // Drops the gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);
  // Calls of step() so far.
  int64_t steps() const { return steps_; }

  virtual int64_t groups() const = 0;
  double lr(int64_t group = 0) const { return const_cast<Optimizer*>(this)->lr_of(group); }
  // Of every group, or of one. Schedules do this (optim/schedule.h).
  void set_lr(double lr);
  void set_lr(int64_t group, double lr);

  // "step", and for each parameter "step.NAME", each of the optimizer's tensors as "momentum.NAME",
  // and "master.NAME" for 16-bit ones. Options are not state. The tensors share memory with the
  // optimizer.
  std::vector<NamedTensor> state_dict() const;
  // Copies in what state_dict gave, possibly by way of a file. Names, shapes and dtypes are checked
  // first: one error names all that is missing, unexpected or wrong, and then nothing has changed.
  void load_state_dict(std::span<const NamedTensor> state) { prepare_state(state, false)(); }
  // The same by halves, for ranks that load together and must all be able to before any does: what
  // comes back does the rest, once, cannot fail, and must be called before anything else is done to
  // the optimizer. Tensors that are laid out as their parameters are kept themselves, which needs
  // no memory for a second copy: nobody else may use them from then on.
  [[nodiscard]] Function<void()> adopt_state_dict(std::span<const NamedTensor> state) {
    return prepare_state(state, true);
  }

  // Bytes of state, masters included.
  int64_t state_bytes() const;

 protected:
  Optimizer();

  // What is kept for one parameter.
  struct Entry {
    std::string name;
    Tensor parameter;
    int64_t group = 0;
    int dims = 0;                 // of the whole parameter, of which this may be a flat part
    int64_t steps = 0;            // how many it has taken
    std::vector<Tensor> state;    // state_names() of the group, once it has taken one; f64 or f32
    Tensor master;                // of a 16-bit parameter
    int64_t master_version = -1;  // the parameter's version that `master` stands for
  };
  // A run of elements of one entry. Pointers are to float or double.
  struct Run {
    void* parameter;
    const void* gradient;
    void* const* state;
    int64_t count;
    bool is_double;
  };

  virtual const char* name() const = 0;
  virtual double& lr_of(int64_t group) = 0;
  virtual std::span<const std::string_view> state_names(int64_t group) const = 0;
  // Throws unless every group's options make sense.
  virtual void check_options() const = 0;
  // Settles the constants of this step for one entry, which has taken entry.steps before.
  virtual void begin(size_t index, const Entry& entry) = 0;
  virtual void update(size_t index, const Run& run) const = 0;

  // ---- rules that scale each parameter's step by norms (LARS, LAMB) ----
  virtual bool adaptive() const { return false; }
  // Whether this one's step is scaled; the same on all ranks.
  virtual bool adapts(const Entry& entry) const;
  // Writes, for a run, what the second norm is of. Changes nothing else.
  virtual void direction(size_t index, const Run& run, void* to) const;
  // Takes both norms, which are those of the whole parameter wherever its parts are.
  virtual void adapt(size_t index, double parameter_norm, double direction_norm);

  void add_entries(const Parameters& parameters, int64_t group);

 private:
  struct Active {
    size_t index;
    Tensor gradient;  // in the parameter's layout
  };

  void check_group(int64_t group) const;
  Function<void()> prepare_state(std::span<const NamedTensor> state, bool adopt);
  void prepare(Entry& entry);
  void adapt_all();
  template <class F>
  void each_run(const Active& active, int64_t begin, int64_t end, const F& f) const;
  void update_run(const Active& active, int64_t begin, int64_t end) const;

  // Parameters whose norms are found together: those of one Sharding, or those without.
  struct Norms {
    Ref<Sharding> sharding;
    std::vector<ShardedParameter> all;  // each twice: for its own norm and that of its direction
  };
  struct Place {
    size_t norms;
    size_t parameter;  // of the first of the two
    int64_t begin;
  };
  Place place_of(const NamedTensor& named, const Ref<Sharding>& sharding);

  std::vector<Entry> entries_;
  std::vector<Place> places_;  // of entries_
  std::vector<Norms> norms_;
  std::vector<Ref<Sharding>> shardings_;
  int64_t steps_ = 0;
  std::vector<Active> active_;  // of the step that runs; kept for its memory
  Blocks blocks_;
};

// Parameters with options of their own.
template <class Options>
struct ParameterGroup {
  Parameters parameters;
  Options options;
};

// The optimizer of a Rule, which has
//   Options (with lr), Step, kName, check(options), state_names(options),
//   Step begin(options, steps taken), update<T>(step, parameter, gradient, states, count),
// and, if its steps are scaled by norms of whole parameters, which are found between the two,
//   adapts(options, dims of the parameter),
//   direction<T>(step, parameter, gradient, states, count, to), which writes nothing but `to`,
//   adapt(step, norm of the parameter, norm of the direction), which notes the scale in the step.
// Its functions are in optim/optimizer_of.h, for the one source that instantiates the rule.
template <class Rule>
class OptimizerOf final : public Optimizer {
 public:
  using Options = typename Rule::Options;

  explicit OptimizerOf(const Parameters& parameters, const Options& options = {});
  explicit OptimizerOf(const std::vector<ParameterGroup<Options>>& groups);
  ~OptimizerOf() override;

  void add_group(const Parameters& parameters, const Options& options);

  // May be changed between steps.
  Options& options(int64_t group = 0);
  int64_t groups() const override;

 protected:
  const char* name() const override;
  double& lr_of(int64_t group) override;
  std::span<const std::string_view> state_names(int64_t group) const override;
  void check_options() const override;
  void begin(size_t index, const Entry& entry) override;
  void update(size_t index, const Run& run) const override;
  bool adaptive() const override;
  bool adapts(const Entry& entry) const override;
  void direction(size_t index, const Run& run, void* to) const override;
  void adapt(size_t index, double parameter_norm, double direction_norm) override;

 private:
  std::vector<Options> options_;
  std::vector<typename Rule::Step> step_of_;
};

}  // namespace weft::optim
