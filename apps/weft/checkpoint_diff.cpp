// `weft checkpoint diff`: which tensors differ, and by how much.
#include "apps/weft/checkpoint.h"
#include "core/safetensors.h"
#include "dist/checkpoint_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>

namespace weft::app {
namespace {

// Tensors by name, of a checkpoint or of a safetensors file; the names in a file are a model's.
class Source {
 public:
  explicit Source(const std::string& path) {
    if (path.ends_with(".safetensors")) {
      for (NamedTensor& named : load_safetensors(path))
        tensors_.emplace("model." + named.name, std::move(named.tensor));
      return;
    }
    reader_ = std::make_unique<dist::CheckpointReader>(path);
    for (const dist::StoredTensor& stored : reader_->manifest().tensors)
      tensors_.emplace(stored.name, Tensor());
  }

  bool is_checkpoint() const { return reader_ != nullptr; }
  const dist::Manifest& manifest() const { return reader_->manifest(); }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  Tensor read(const std::string& name) {
    const Tensor& own = tensors_.at(name);
    return own.defined() ? own : reader_->read(*reader_->manifest().find(name));
  }
  // Whether two checkpoints' manifests say that a tensor is the same, so that it need not be read.
  static bool same_by_crc(const Source& a, const Source& b, const std::string& name) {
    if (!a.reader_ || !b.reader_) return false;
    const dist::StoredTensor& x = *a.manifest().find(name);
    const dist::StoredTensor& y = *b.manifest().find(name);
    return x.dtype == y.dtype && x.shape == y.shape && x.order == y.order && x.crc == y.crc;
  }

 private:
  std::unique_ptr<dist::CheckpointReader> reader_;
  std::map<std::string, Tensor> tensors_;
};

// Whether two numbers are the same, bit for bit where they are real.
template <class T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T>
std::string difference_as(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector<T>();
  const auto y = b.to_vector<T>();
  int64_t differing = 0;
  double largest = -1;
  size_t at = 0;
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (same(x[i], y[i])) continue;
    ++differing;
    const double gap = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    sum += gap * gap;
    if (gap > largest || (std::isnan(gap) && !std::isnan(largest))) {
      largest = gap;
      at = i;
    }
  }
  if (differing == 0) return "";
  char text[200];
  std::snprintf(text, sizeof text,
                "%lld of %zu elements differ, by up to %.6g (element %zu: %.9g and %.9g), "
                "root mean square %.6g",
                static_cast<long long>(differing), x.size(), largest, at,
                static_cast<double>(x[at]), static_cast<double>(y[at]),
                std::sqrt(sum / static_cast<double>(x.size())));
  return text;
}

// A line about what differs; empty if nothing does.
std::string difference(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape())
    return concat({a.dtype(), a.shape(), " and ", b.dtype(), b.shape()});
  return is_floating(a.dtype()) ? difference_as<double>(a, b) : difference_as<int64_t>(a, b);
}

}  // namespace

int diff_checkpoints(const std::string& first, const std::string& second) {
  Source a(first);
  Source b(second);
  int64_t same = 0;
  int64_t different = 0;
  const auto tell = [&different](const std::string& name, const std::string& text) {
    std::printf("%s: %s\n", name.c_str(), text.c_str());
    ++different;
  };
  // Beside the other's model alone, a checkpoint's optimizer is no difference.
  const bool whole = a.is_checkpoint() && b.is_checkpoint();
  const auto counts = [whole](const std::string& name) {
    return whole || name.starts_with("model.");
  };
  for (const auto& [name, tensor] : a.tensors()) {
    if (!counts(name)) continue;
    if (b.tensors().count(name) == 0) {
      tell(name, "only in " + first);
    } else if (!Source::same_by_crc(a, b, name)) {
      const std::string text = difference(a.read(name), b.read(name));
      text.empty() ? static_cast<void>(++same) : tell(name, text);
    } else {
      ++same;
    }
  }
  for (const auto& [name, tensor] : b.tensors()) {
    if (counts(name) && a.tensors().count(name) == 0) tell(name, "only in " + second);
  }
  if (whole && a.manifest().progress.step != b.manifest().progress.step)
    tell("step", concat({a.manifest().progress.step, " and ", b.manifest().progress.step}));
  if (whole && different == 0 && a.manifest().digest() != b.manifest().digest())
    tell("progress", "the tensors are equal, the digests are not (weft checkpoint show)");
  std::printf("%lld tensors equal, %lld differences\n", static_cast<long long>(same),
              static_cast<long long>(different));
  return different == 0 ? 0 : 1;
}

}  // namespace weft::app
