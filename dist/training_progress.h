// Where training stands, beside its tensors: the small part of a checkpoint.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft::dist {

// A small value of the app's own.
struct NamedValue {
  std::string name;
  std::variant<int64_t, double, std::string> value;
  bool operator==(const NamedValue&) const = default;
};

// The same on all ranks.
struct TrainingProgress {
  int64_t step = 0;      // optimizer steps done, which names the checkpoint
  int64_t epoch = 0;     // position in the data: data::LoaderState
  int64_t consumed = 0;  // samples of this epoch
  // NaN: none.
  double metric = std::numeric_limits<double>::quiet_NaN();       // what keep.best goes by
  double best_metric = std::numeric_limits<double>::quiet_NaN();  // of the run so far
  // Names must differ. Part of the digest.
  std::vector<NamedValue> values = {};
  // For readers of the manifest. Not part of the digest: times, host names.
  std::vector<std::pair<std::string, std::string>> notes = {};
};

}  // namespace weft::dist
