#include "apps/weft/checkpoint.h"

#include "core/ledger.h"
#include "dist/checkpoint_directory.h"
#include "dist/checkpoint_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace weft::app {
namespace {

// `path` itself, or its folder checkpoints/ if it is a run directory.
dist::CheckpointDirectory directory_at(const std::string& path) {
  const auto entries = dist::local_storage()->list(path);
  const bool is_run = std::binary_search(entries.begin(), entries.end(), "checkpoints");
  return dist::CheckpointDirectory(is_run ? path + "/checkpoints" : path);
}

bool is_checkpoint(const std::string& path) {
  const auto entries = dist::local_storage()->list(path);
  return std::binary_search(entries.begin(), entries.end(), "manifest.json");
}

std::string number(double value) {
  if (std::isnan(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string value_text(const std::variant<int64_t, double, std::string>& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&value)) return number(*real);
  return std::get<std::string>(value);
}

}  // namespace

CheckpointCommand::CheckpointCommand(CommandLine& weft)
    : line_(weft.command("checkpoint", "Look at checkpoints, check and convert them.")),
      list_(&line_.command("list", "The checkpoints of a run, oldest first.")),
      show_(&line_.command("show", "What a checkpoint holds: progress, files, tensors.")),
      verify_(&line_.command("verify",
                             "Read every byte; name file and tensor of any damage (exit code 1).")),
      export_(&line_.command("export", "Write the model as one safetensors file.")),
      import_(&line_.command("import", "Make a checkpoint of a safetensors file.")),
      diff_(&line_.command("diff",
                           "Which tensors differ, and by how much (exit code 1 if any does).")) {
  list_->add_argument("DIR", path_, "run directory, or its folder of checkpoints");
  show_->add_argument("CHECKPOINT", path_, "a step-N directory");
  verify_->add_argument("PATH", path_, "a checkpoint, or a directory of them");
  export_->add_argument("CHECKPOINT", path_, "a step-N directory");
  export_->add_argument("FILE", second_, "safetensors file to write");
  export_->add_switch("--all", everything_,
                      "the optimizer's state and added tensors, too, under their full names");
  import_->add_argument("FILE", path_, "safetensors file to read");
  import_->add_argument("DIR", second_, "folder of checkpoints to put it in");
  import_->add("--map", map_,
               "file with lines 'THEIRS OURS': tensors to rename; a name that ends with * stands "
               "for all that begin so, OURS - leaves a tensor out");
  import_->add("--step", step_, "step that the checkpoint is named by", 0);
  diff_->add_argument("A", path_, "a checkpoint or a safetensors file");
  diff_->add_argument("B", second_, "another");
}

int CheckpointCommand::run() {
  if (list_->chosen()) return list_checkpoints(path_);
  if (show_->chosen()) return show_checkpoint(path_);
  if (verify_->chosen()) return verify_checkpoints(path_);
  if (export_->chosen()) return export_checkpoint(path_, second_, everything_);
  if (import_->chosen()) return import_checkpoint(path_, second_, map_, step_);
  return diff_checkpoints(path_, second_);
}

int list_checkpoints(const std::string& path) {
  const dist::CheckpointDirectory directory = directory_at(path);
  const auto all = directory.list();
  WEFT_CHECK(!all.empty(), "checkpoint", "expected a directory with checkpoints, got ", path,
             ", which has none");
  const auto pinned = directory.pinned();
  const auto storage = dist::local_storage();
  std::printf("%-16s %10s %12s %6s %-8s %12s %-16s\n", "checkpoint", "step", "size", "ranks",
              "strategy", "metric", "digest");
  for (const dist::StoredCheckpoint& stored : all) {
    const bool is_pinned = std::find(pinned.begin(), pinned.end(), stored.name) != pinned.end();
    try {
      const dist::Manifest manifest = dist::read_manifest(*storage, stored.path);
      std::printf("%-16s %10lld %12s %6d %-8s %12s %-16s%s\n", stored.name.c_str(),
                  static_cast<long long>(manifest.progress.step),
                  format_bytes(manifest.bytes()).c_str(), manifest.ranks, manifest.strategy.c_str(),
                  number(manifest.progress.metric).c_str(), manifest.digest().c_str(),
                  is_pinned ? " pinned" : "");
    } catch (const dist::DamagedCheckpoint& error) {
      std::printf("%-16s damaged: %s\n", stored.name.c_str(), error.what());
    }
  }
  return 0;
}

int show_checkpoint(const std::string& path) {
  const dist::Manifest manifest = dist::read_manifest(*dist::local_storage(), path);
  const dist::TrainingProgress& progress = manifest.progress;
  std::printf("%s\n  digest %s, saved by %d ranks of %s, %s\n", path.c_str(),
              manifest.digest().c_str(), manifest.ranks, manifest.strategy.c_str(),
              format_bytes(manifest.bytes()).c_str());
  std::printf("  step %lld, epoch %lld, %lld samples of it, seed %llu\n",
              static_cast<long long>(progress.step), static_cast<long long>(progress.epoch),
              static_cast<long long>(progress.consumed),
              static_cast<unsigned long long>(manifest.seed));
  std::printf("  metric %s, best %s\n", number(progress.metric).c_str(),
              number(progress.best_metric).c_str());
  for (const auto& [name, value] : progress.values)
    std::printf("  %s = %s\n", name.c_str(), value_text(value).c_str());
  for (const auto& [name, note] : progress.notes)
    std::printf("  %s: %s\n", name.c_str(), note.c_str());
  for (const dist::StoredFile& file : manifest.files)
    std::printf("%12s  %s\n", format_bytes(file.bytes).c_str(), file.name.c_str());
  for (const dist::StoredTensor& tensor : manifest.tensors)
    std::printf("%12s  %s %s%s\n", format_bytes(tensor.numel() * size_of(tensor.dtype)).c_str(),
                tensor.name.c_str(), to_string(tensor.dtype).c_str(),
                to_string(tensor.shape).c_str());
  for (const auto& [alias, first] : manifest.aliases)
    std::printf("%12s  %s\n", ("= " + first).c_str(), alias.c_str());
  return 0;
}

int verify_checkpoints(const std::string& path) {
  std::vector<std::string> paths;
  if (is_checkpoint(path)) {
    paths.push_back(path);
  } else {
    for (const auto& stored : directory_at(path).list())
      paths.push_back(stored.path);
  }
  WEFT_CHECK(!paths.empty(), "checkpoint", "expected a checkpoint or a directory of them, got ",
             path);
  int code = 0;
  for (const std::string& checkpoint : paths) {
    std::vector<std::string> damage;
    std::string facts;
    try {
      dist::CheckpointReader reader(checkpoint);
      damage = reader.verify();
      facts = concat({reader.manifest().tensors.size(), " tensors, ",
                      format_bytes(reader.manifest().bytes()), ", digest ",
                      reader.manifest().digest()});
    } catch (const dist::DamagedCheckpoint& error) {
      damage.emplace_back(error.what());
    }
    if (damage.empty()) {
      std::printf("%s: whole (%s)\n", checkpoint.c_str(), facts.c_str());
      continue;
    }
    code = 1;
    std::printf("%s: damaged\n", checkpoint.c_str());
    for (const std::string& line : damage)
      std::printf("  %s\n", line.c_str());
  }
  return code;
}

}  // namespace weft::app
