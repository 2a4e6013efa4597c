#include "dist/checkpoint_directory.h"

#include "dist/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>

namespace weft::dist {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kDamaged = ".damaged";
constexpr const char* kPinned = "pinned";

// The step a directory is named by; nothing if it is not a checkpoint's name.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || at != end || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

// Does `job` for each, also behind one that fails; then throws the first error.
template <class List, class F>
void for_all(const List& list, const F& job) {
  std::exception_ptr first;
  for (const auto& item : list) {
    try {
      job(item);
    } catch (const StorageError&) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  WEFT_CHECK(step >= 0, "checkpoint", "expected a step of 0 or more, got ", step);
  char name[40];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

CheckpointDirectory::CheckpointDirectory(std::string path, Ref<CheckpointStorage> storage)
    : path_(std::move(path)), storage_(std::move(storage)) {
  while (path_.size() > 1 && path_.back() == '/')
    path_.pop_back();
  WEFT_CHECK(!path_.empty(), "checkpoint", "expected a directory for checkpoints, got none");
}

std::vector<StoredCheckpoint> CheckpointDirectory::list() const {
  std::vector<StoredCheckpoint> found;
  for (const std::string& name : storage_->list(path_)) {
    if (const auto step = step_of(name)) found.push_back({name, path_ + "/" + name, *step});
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

std::optional<StoredCheckpoint> CheckpointDirectory::latest() const {
  const auto all = list();
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::vector<StoredCheckpoint> CheckpointDirectory::by_metric(bool higher_is_better) const {
  std::vector<std::pair<double, StoredCheckpoint>> rated;
  for (const StoredCheckpoint& stored : list()) {
    try {
      const double metric = read_manifest(*storage_, stored.path).progress.metric;
      if (!std::isnan(metric)) rated.emplace_back(higher_is_better ? -metric : metric, stored);
    } catch (const DamagedCheckpoint&) {
    }
  }
  std::reverse(rated.begin(), rated.end());  // of equals the newer first
  std::stable_sort(rated.begin(), rated.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<StoredCheckpoint> result;
  for (auto& [metric, stored] : rated)
    result.push_back(std::move(stored));
  return result;
}

std::optional<StoredCheckpoint> CheckpointDirectory::best(bool higher_is_better) const {
  const auto rated = by_metric(higher_is_better);
  return rated.empty() ? std::nullopt : std::optional(rated.front());
}

std::vector<std::string> CheckpointDirectory::pinned() const {
  const auto names = storage_->list(path_);
  if (!std::binary_search(names.begin(), names.end(), kPinned)) return {};
  const Ref<ReadFile> file = storage_->open(path_ + "/" + kPinned);
  std::string text(static_cast<size_t>(file->bytes()), '\0');
  file->read(text.data(), 0, file->bytes());
  std::vector<std::string> pinned;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) pinned.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return pinned;
}

void CheckpointDirectory::write_pinned(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += name + "\n";
  const std::string temporary = path_ + "/." + kPinned + std::string(kPartial);
  const auto entries = storage_->list(path_);
  if (std::binary_search(entries.begin(), entries.end(), "." + (kPinned + std::string(kPartial))))
    storage_->remove_file(temporary);
  const Ref<WriteFile> file = storage_->create(temporary);
  file->write(text.data(), static_cast<int64_t>(text.size()));
  file->sync();
  file->close();
  storage_->rename(temporary, path_ + "/" + kPinned);
  storage_->sync_directory(path_);
}

void CheckpointDirectory::pin(const std::string& name) {
  const auto all = list();
  WEFT_CHECK(std::any_of(all.begin(), all.end(), [&](const auto& c) { return c.name == name; }),
             "checkpoint", path_, ": expected a checkpoint to pin, got '", name,
             "', which is not there");
  auto names = pinned();
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  names.push_back(name);
  write_pinned(names);
}

void CheckpointDirectory::unpin(const std::string& name) {
  auto names = pinned();
  if (std::erase(names, name) > 0) write_pinned(names);
}

std::vector<std::string> CheckpointDirectory::thin(const CheckpointKeep& keep) {
  WEFT_CHECK(keep.last >= 0 && keep.best >= 0, "checkpoint",
             "expected numbers of checkpoints to keep of 0 or more, got ", keep.last, " and ",
             keep.best);
  const auto all = list();
  if (keep.last == 0 || static_cast<int64_t>(all.size()) <= keep.last) return {};
  std::vector<std::string> kept = pinned();
  for (size_t i = all.size() - static_cast<size_t>(keep.last); i < all.size(); ++i)
    kept.push_back(all[i].name);
  if (keep.best > 0) {
    const auto rated = by_metric(keep.higher_is_better);
    for (size_t i = 0; i < std::min(rated.size(), static_cast<size_t>(keep.best)); ++i)
      kept.push_back(rated[i].name);
  }
  std::vector<std::string> removed;
  for_all(all, [&](const StoredCheckpoint& stored) {
    if (std::find(kept.begin(), kept.end(), stored.name) != kept.end()) return;
    remove_tree(*storage_, retire(stored));
    removed.push_back(stored.name);
  });
  return removed;
}

std::string CheckpointDirectory::retire(const StoredCheckpoint& stored) {
  const std::string to = concat({path_, "/.", stored.name, ".removed", kPartial});
  remove_tree(*storage_, to);
  storage_->rename(stored.path, to);
  return to;
}

std::string CheckpointDirectory::set_aside(const StoredCheckpoint& stored) {
  const auto entries = storage_->list(path_);
  const std::string first = stored.name + std::string(kDamaged);
  std::string name = first;
  for (int64_t number = 2; std::binary_search(entries.begin(), entries.end(), name); ++number)
    name = concat({first, ".", number});
  storage_->rename(stored.path, path_ + "/" + name);
  return path_ + "/" + name;
}

void CheckpointDirectory::clean() {
  const auto names = storage_->list(path_);
  for_all(names, [&](const std::string& name) {
    const std::string path = path_ + "/" + name;
    if (name.starts_with('.') && name.ends_with(kPartial)) {
      if (name == "." + (kPinned + std::string(kPartial))) return storage_->remove_file(path);
      remove_tree(*storage_, path);
    } else if (name.ends_with(kExchanged)) {
      const std::string replaced = name.substr(0, name.size() - std::strlen(kExchanged));
      if (!step_of(replaced)) return;
      if (std::binary_search(names.begin(), names.end(), replaced)) {
        remove_tree(*storage_, path);
      } else {
        storage_->rename(path, path_ + "/" + replaced);
      }
    }
  });
}

}  // namespace weft::dist
