// Module: a piece of a model. It owns its parameters, buffers and parts as ordinary members and
// registers each by name, so that they can be listed, saved and converted:
//
//   struct Net : nn::Module {
//     nn::Linear fc1{784, 128}, fc2{128, 10};
//     Net() { add("fc1", fc1); add("fc2", fc2); }
//     Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
//   };
//
// The registry points at the members, which is why modules neither copy nor move. Full names join
// parts with dots: "fc1.weight". Assigning one parameter's tensor to another ties them: both
// members are then one tensor, which is listed, counted and saved once, under its first name. A
// module that is nobody's member is made by make_ref<Net>() and lives as long as some Ref holds it.
// A module belongs to one thread at a time.
#pragma once

#include "autograd/leaf.h"
#include "core/function.h"
#include "core/ref.h"
#include "core/safetensors.h"
#include "core/tensor.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::nn {

class Module;

// Called before forward; a defined result takes the input's place.
using ForwardPreHook = Function<Tensor(Module& module, const Tensor& input)>;
// Called after forward; a defined result takes the output's place.
using ForwardHook = Function<Tensor(Module& module, const Tensor& input, const Tensor& output)>;

class Module : public RefCounted {
 public:
  Module() = default;
  ~Module() override;

  virtual Tensor forward(const Tensor& x) = 0;
  // Pre-hooks, forward, hooks: how modules are called.
  Tensor operator()(const Tensor& x);

  // ---- registry: names are not empty, hold no dot and are unique within the module ----

  // A part, which must live as long as this module.
  void add(std::string name, Module& part);
  // A trained tensor: made to require a gradient if it is floating, its memory charged to
  // `parameters`. One that is undefined when it is listed is left out: a layer without bias.
  void add_parameter(std::string name, Tensor& parameter);
  // A tensor that is saved but not trained, such as a running mean.
  void add_buffer(std::string name, Tensor& buffer);

  // Depth first, own before parts' and in the order they were added. A tensor with several names
  // comes once.
  std::vector<Tensor> parameters() const;
  std::vector<NamedTensor> named_parameters() const;
  std::vector<NamedTensor> named_buffers() const;
  // This module (as "") and all parts.
  std::vector<std::pair<std::string, Module*>> named_modules();
  // Direct parts.
  const std::vector<std::pair<std::string, Module*>>& parts() const { return parts_; }
  // The further names of tied tensors: (name, first name).
  std::vector<std::pair<std::string, std::string>> aliases() const;
  // Elements of all parameters.
  int64_t parameter_count() const;

  // "Linear": the class without namespace. Errors and summaries use it.
  virtual std::string type() const;

  // ---- modes ----

  // Sets the mode of this module and all parts: whether dropout drops and statistics are updated.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  // Drops all gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);
  // Converts floating parameters and their gradients, and floating buffers only if asked to.
  // Tensors stay the tensors they were: handles, ties and optimizers remain valid. Not for use
  // between forward and backward.
  void to(DType dtype, bool buffers = false);

  // ---- state: parameters and buffers by name ----

  // Shares memory with the module.
  std::vector<NamedTensor> state_dict() const;
  // Copies values in. Names, shapes and dtypes are all checked first: one error lists what is
  // missing, unexpected or different, and then nothing has changed. A tied tensor may come under
  // any of its names, and under several if the values agree. A deferred parameter (nn/deferred.h)
  // takes its values when they are made. With `strict` false, missing and
  // unexpected names are let pass.
  void load_state_dict(std::span<const NamedTensor> state, bool strict = true);
  // A safetensors file; its metadata name aliases, as "alias.NAME": "FIRST NAME", and what is
  // given.
  void save(const std::string& path,
            std::span<const std::pair<std::string, std::string>> metadata = {}) const;
  // Reads a tensor at a time; for deferred parameters not before their values are made.
  void load(const std::string& path, bool strict = true);

  // A table of the layers: name, type, shape of the output, parameters, bytes; and the total. Runs
  // the model once on zeros of `input` in evaluation mode, without recording.
  std::string summary(const Shape& input, DType dtype = f32);
  // Multiplications, each with its addition, of the convolutions and linear layers for such an
  // input: what papers count as a model's operations. Runs the model in the same way.
  int64_t multiply_adds(const Shape& input, DType dtype = f32);

  // ---- hooks, in the order they were added; removing one that is gone does nothing ----

  HookId add_forward_pre_hook(ForwardPreHook hook);
  HookId add_forward_hook(ForwardHook hook);
  void remove_hook(HookId hook);

 protected:
  // What operator() does, with `forward` in the place of this module's: for modules that have
  // further ways to be called.
  Tensor with_hooks(const Tensor& x, const Function<Tensor(const Tensor& input)>& forward);

 private:
  struct Slot {
    std::string name;
    Tensor* tensor;
    bool is_parameter;
  };
  // What the walk over all tensors meets: `first` is empty, or the name that the same tensor had
  // before.
  struct Visit {
    std::string name;
    Tensor tensor;
    bool is_parameter;
    std::string first;
  };

  // Values that load_state_dict() may take.
  struct Given {
    std::string name;
    DType dtype;
    Shape shape;
    Function<Tensor()> values;
  };
  void take_state(const std::vector<Given>& state, bool strict);
  void check_name(const std::string& name) const;
  std::vector<Visit> walk() const;
  void collect(const std::string& prefix, std::vector<Visit>& visits) const;
  void collect_modules(const std::string& prefix,
                       std::vector<std::pair<std::string, Module*>>& modules);

  std::vector<Slot> tensors_;
  std::vector<std::pair<std::string, Module*>> parts_;
  std::vector<std::pair<uint64_t, ForwardPreHook>> pre_hooks_;
  std::vector<std::pair<uint64_t, ForwardHook>> hooks_;
  uint64_t next_hook_ = 1;
  bool training_ = true;
};

}  // namespace weft::nn
