// `weft checkpoint export` and `import`: between checkpoints and single safetensors files.
#include "apps/weft/checkpoint.h"
#include "core/safetensors.h"
#include "dist/checkpoint_reader.h"
#include "dist/checkpoint_writer.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>

namespace weft::app {
namespace {

constexpr std::string_view kModel = "model.";
constexpr std::string_view kAlias = "alias.";

// Without "model.", as the model itself and Python name it.
std::string own_name(const std::string& name) {
  return name.starts_with(kModel) ? name.substr(kModel.size()) : name;
}

// One line of a map.
struct Rule {
  std::string theirs;
  std::string ours;
  bool prefix = false;
  bool used = false;
};

std::vector<Rule> read_map(const std::string& path) {
  std::vector<Rule> rules;
  if (path.empty()) return rules;
  std::ifstream file(path);
  WEFT_CHECK(file.is_open(), "checkpoint", "expected a readable map, got ", path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (const size_t comment = line.find('#'); comment != std::string::npos) line.resize(comment);
    constexpr const char* kSpace = " \t\r";
    const size_t begin = line.find_first_not_of(kSpace);
    if (begin == std::string::npos) continue;
    line = line.substr(begin, line.find_last_not_of(kSpace) + 1 - begin);
    const size_t gap = line.find_first_of(kSpace);
    const size_t second = line.find_first_not_of(kSpace, gap);
    const bool two =
        gap != std::string::npos && line.find_first_of(kSpace, second) == std::string::npos;
    WEFT_CHECK(two, "checkpoint", path, ":", number, ": expected 'THEIRS OURS', got '", line, "'");
    Rule rule{line.substr(0, gap), line.substr(second)};
    if (rule.theirs.ends_with('*')) {
      rule.prefix = true;
      rule.theirs.pop_back();
      WEFT_CHECK(rule.ours == "-" || rule.ours.ends_with('*'), "checkpoint", path, ":", number,
                 ": expected OURS to end with * as THEIRS does, got '", rule.ours, "'");
      if (rule.ours != "-") rule.ours.pop_back();
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

// Our name of their tensor by the first rule that fits; nothing where it is left out.
std::optional<std::string> mapped(std::vector<Rule>& rules, const std::string& theirs) {
  for (Rule& rule : rules) {
    const bool fits = rule.prefix ? theirs.starts_with(rule.theirs) : theirs == rule.theirs;
    if (!fits) continue;
    rule.used = true;
    if (rule.ours == "-") return std::nullopt;
    return rule.prefix ? rule.ours + theirs.substr(rule.theirs.size()) : rule.ours;
  }
  return theirs;
}

}  // namespace

int export_checkpoint(const std::string& path, const std::string& file, bool everything) {
  dist::CheckpointReader reader(path);
  const dist::Manifest& manifest = reader.manifest();
  std::vector<NamedTensor> tensors;
  for (const dist::StoredTensor& stored : manifest.tensors) {
    if (!everything && !stored.name.starts_with(kModel)) continue;
    tensors.push_back({everything ? stored.name : own_name(stored.name), reader.read(stored)});
  }
  std::vector<std::pair<std::string, std::string>> metadata = {
      {"step", std::to_string(manifest.progress.step)}, {"digest", manifest.digest()}};
  for (const auto& [alias, first] : manifest.aliases)
    metadata.emplace_back(std::string(kAlias) + (everything ? alias : own_name(alias)),
                          everything ? first : own_name(first));
  save_safetensors(file, tensors, metadata);
  std::printf("%s: %zu tensors of step %lld\n", file.c_str(), tensors.size(),
              static_cast<long long>(manifest.progress.step));
  return 0;
}

int import_checkpoint(const std::string& file, const std::string& directory, const std::string& map,
                      int64_t step) {
  std::vector<Rule> rules = read_map(map);
  dist::Manifest manifest;
  manifest.progress.step = step;
  manifest.progress.notes = {{"imported from", file}};
  manifest.strategy = "single";
  std::vector<NamedTensor> tensors;
  std::vector<std::string> names;
  for (NamedTensor& named : load_safetensors(file)) {
    const auto ours = mapped(rules, named.name);
    if (!ours) continue;
    names.push_back(*ours);
    tensors.push_back({"model." + *ours, std::move(named.tensor)});
  }
  WEFT_CHECK(!tensors.empty(), "checkpoint", "expected tensors to import, got none from ", file);
  for (const Rule& rule : rules)
    WEFT_CHECK(rule.used, "checkpoint", map, ": expected tensors of ", file, " named '",
               rule.theirs, rule.prefix ? "*" : "", "', got none");
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    throw_error("checkpoint", {"expected different names, got ", *twice, " twice"});
  for (const auto& [key, first] : load_safetensors_metadata(file)) {
    if (!key.starts_with(kAlias)) continue;
    const auto alias = mapped(rules, key.substr(kAlias.size()));
    const auto to = mapped(rules, first);
    if (alias && to) manifest.aliases.emplace_back("model." + *alias, "model." + *to);
  }
  std::sort(manifest.aliases.begin(), manifest.aliases.end());
  manifest.schedule = 0;
  // An optimizer that has not stepped yet has no other state.
  const int64_t steps = 0;
  tensors.push_back({"optimizer.step", from_values(std::span<const int64_t>(&steps, 1), {})});
  const auto storage = dist::local_storage();
  const std::string path =
      dist::write_checkpoint(*storage, directory, std::move(manifest), tensors);
  std::printf("%s: %zu tensors\n", path.c_str(), names.size());
  return 0;
}

}  // namespace weft::app
