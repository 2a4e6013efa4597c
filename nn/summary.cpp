// Module::summary: a table of layers. Module::multiply_adds: what they compute.
#include "autograd/grad_mode.h"
#include "nn/conv.h"
#include "nn/linear.h"
#include "nn/module.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <unordered_map>
#include <unordered_set>

namespace weft::nn {
namespace {

using Row = std::array<std::string, 5>;

// 1234567 → "1,234,567"
std::string grouped(int64_t value) {
  std::string text = std::to_string(value);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

// Columns as wide as their widest cell, numbers to the right; lines between head, body and total.
std::string table(const std::vector<Row>& rows) {
  std::array<size_t, 5> widths{};
  for (const Row& row : rows) {
    for (size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], row[c].size());
  }
  size_t width = 2 * (widths.size() - 1);
  for (const size_t w : widths)
    width += w;
  const std::string line = std::string(width, '-') + "\n";
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (r == 1 || r + 1 == rows.size()) text += line;
    std::string cells;
    for (size_t c = 0; c < widths.size(); ++c) {
      const std::string padding(widths[c] - rows[r][c].size(), ' ');
      cells += (c > 0 ? "  " : "") + (c >= 3 ? padding + rows[r][c] : rows[r][c] + padding);
    }
    cells.erase(cells.find_last_not_of(' ') + 1);
    text += cells + "\n";
  }
  return text;
}

// For the time of one run: evaluation mode, and a hook on every module. Everything is as before
// afterwards, also when the run throws.
class Watch {
 public:
  using Seen = std::function<void(Module& module, const Tensor& input, const Tensor& output)>;
  Watch(Module& root, const Seen& seen) {
    for (const auto& [name, module] : root.named_modules()) {
      if (!known_.insert(module).second) continue;
      const HookId hook =
          module->add_forward_hook([seen](Module& m, const Tensor& in, const Tensor& output) {
            seen(m, in, output);
            return Tensor();
          });
      watched_.push_back({module, module->training(), hook});
    }
    root.eval();
  }
  ~Watch() {
    // train() reaches into parts, so parts, which come later, are set after the modules that hold
    // them.
    for (const Watched& watched : watched_) {
      watched.module->train(watched.training);
      watched.module->remove_hook(watched.hook);
    }
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  struct Watched {
    Module* module;
    bool training;
    HookId hook;
  };
  std::vector<Watched> watched_;
  std::unordered_set<Module*> known_;
};

// Once, on zeros, without recording.
void run_watched(Module& model, const Shape& input, DType dtype, const Watch::Seen& seen) {
  const NoGrad no_grad;
  const Watch watch(model, seen);
  const Tensor x = empty(input, {.dtype = dtype});
  std::memset(x.raw(), 0, static_cast<size_t>(x.bytes()));
  model(x);
}

int64_t multiply_adds_of(Module& module, const Tensor& input, const Tensor& output) {
  if (const auto* convolution = dynamic_cast<Conv2d*>(&module))
    return output.numel() * (convolution->weight.numel() / convolution->weight.size(0));
  if (const auto* transposed = dynamic_cast<ConvTranspose2d*>(&module))
    return input.numel() * (transposed->weight.numel() / transposed->weight.size(0));
  if (const auto* linear = dynamic_cast<Linear*>(&module))
    return output.numel() * linear->weight.size(1);
  return 0;
}

}  // namespace

int64_t Module::multiply_adds(const Shape& input, DType dtype) {
  int64_t total = 0;
  run_watched(*this, input, dtype, [&](Module& module, const Tensor& in, const Tensor& output) {
    total += multiply_adds_of(module, in, output);
  });
  return total;
}

std::string Module::summary(const Shape& input, DType dtype) {
  std::unordered_map<const Module*, Shape> outputs;
  run_watched(*this, input, dtype, [&](Module& module, const Tensor&, const Tensor& output) {
    outputs.emplace(&module, output.shape());  // of its first use
  });

  std::vector<Row> rows = {{"layer", "type", "output", "parameters", "bytes"}};
  std::unordered_set<const TensorBody*> counted;
  std::unordered_set<const Module*> listed;
  int64_t total = 0;
  int64_t total_bytes = 0;
  for (const auto& [name, module] : named_modules()) {
    int64_t count = 0;
    int64_t bytes = 0;
    for (const Slot& slot : module->tensors_) {
      if (!slot.is_parameter || !slot.tensor->defined() ||
          !counted.insert(slot.tensor->body()).second)
        continue;
      count += slot.tensor->numel();
      bytes += slot.tensor->bytes();
    }
    total += count;
    total_bytes += bytes;
    const bool is_layer = module->parts_.empty() || !module->tensors_.empty();
    if (!is_layer || !listed.insert(module).second) continue;
    const auto output = outputs.find(module);
    rows.push_back({name.empty() ? "(model)" : name, module->type(),
                    output == outputs.end() ? "not called" : to_string(output->second),
                    grouped(count), format_bytes(bytes)});
  }
  rows.push_back({"total", type(), outputs.count(this) ? to_string(outputs.at(this)) : "",
                  grouped(total), format_bytes(total_bytes)});
  return table(rows);
}

}  // namespace weft::nn
