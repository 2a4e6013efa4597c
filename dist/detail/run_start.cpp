#include "dist/detail/run_start.h"

#include "core/error.h"
#include "core/json.h"
#include "dist/detail/step_log.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace weft::dist {

namespace {

const NamedValue& value_of(const TrainConfig& config, const std::string& name) {
  for (const NamedValue& value : config.values) {
    if (value.name == name) return value;
  }
  throw_error("train config", {"expected a value '", name, "', got none"});
}

}  // namespace

int64_t TrainConfig::integer(const std::string& name) const {
  const auto* value = std::get_if<int64_t>(&value_of(*this, name).value);
  WEFT_CHECK(value, "train config", "expected an integer as '", name, "', got another kind");
  return *value;
}

double TrainConfig::number(const std::string& name) const {
  const auto& value = value_of(*this, name).value;
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  const auto* number = std::get_if<double>(&value);
  WEFT_CHECK(number, "train config", "expected a number as '", name, "', got a text");
  return *number;
}

const std::string& TrainConfig::text(const std::string& name) const {
  const auto* value = std::get_if<std::string>(&value_of(*this, name).value);
  WEFT_CHECK(value, "train config", "expected a text as '", name, "', got a number");
  return *value;
}

namespace detail {
namespace {

namespace fs = std::filesystem;

bool lies_in(const std::string& path, const std::string& folder) {
  std::error_code error;
  const fs::path parent = fs::weakly_canonical(path, error).parent_path();
  return !error && fs::equivalent(parent, folder, error) && !error;
}

}  // namespace

RunStart begin_run(const RunFolder& folder, const RunConfig& run) {
  RunStart start;
  start.resume = run.resume;
  const bool path = run.resume != "none" && run.resume != "auto";
  WEFT_CHECK(!run.resume.empty(), "run", "expected none, auto or a checkpoint as ", run.resume_flag,
             ", got nothing");
  if (path) {
    std::error_code error;
    WEFT_CHECK(fs::exists(run.resume + "/manifest.json", error), "run",
               "expected none, auto or the folder of a checkpoint as ", run.resume_flag, ", got ",
               run.resume);
    start.resume = fs::absolute(run.resume, error).string();
  }
  const bool own = path && lies_in(run.resume, folder.checkpoints());
  // A run without checkpoints has nothing that a new one could not make again.
  if (!run.overwrite && (folder.has_checkpoints() || run.resume == "auto")) {
    WEFT_CHECK(!folder.finished() || own, "run", "expected a run that has not finished, got ",
               folder.path(), ", which has: ", run.overwrite_flag, " begins it anew");
    WEFT_CHECK(run.resume == "auto" || own, "run", "expected no checkpoints of an earlier run in ",
               folder.path(), ", got some: ", run.resume_flag, " auto goes on from them, ",
               run.overwrite_flag, " begins anew");
  }
  const bool goes_on = folder.has_checkpoints() && !run.overwrite;
  WEFT_CHECK(!(run.overwrite && own), "run", "expected a checkpoint that stays, got ", run.resume,
             ", which ", run.overwrite_flag, " would remove");
  if (!goes_on) {
    folder.clear();
    if (!path) start.resume = "none";
  }
  std::error_code error;
  fs::remove(folder.path() + "/result.json", error);
  return start;
}

void share(RunStart& start, Communicator& comm) {
  int64_t numbers[2] = {start.attempt, static_cast<int64_t>(start.resume.size())};
  comm.broadcast({numbers, 2, i64}, 0, {.unit = "run"});
  start.attempt = numbers[0];
  start.resume.resize(static_cast<size_t>(numbers[1]));
  comm.broadcast({start.resume.data(), numbers[1], u8}, 0, {.unit = "run"});
}

void note_attempt(const RunFolder& folder, int64_t attempt, int ranks, const std::string& ending,
                  const LaunchReport& report) {
  folder.write_attempt(
      attempt, concat({"{\"attempt\":", attempt, ",\"ranks\":", ranks, ",\"ending\":\"", ending,
                       "\",\"code\":", report.code, ",\"failed_rank\":", report.failed_rank,
                       ",\"signal\":", report.signal, "}\n"}));
}

Result result_of(const RunConfig& run, int exit_code, int64_t attempts, int failures) {
  Result result;
  result.exit_code = exit_code;
  result.restarts = std::max<int64_t>(0, attempts - 1);
  result.failures = failures;
  result.directory = run.directory;
  const CheckpointDirectory checkpoints(run.directory + "/checkpoints");
  if (const auto latest = checkpoints.latest()) result.checkpoint = latest->path;
  try {
    if (const auto best = checkpoints.best(run.checkpoint.keep.higher_is_better))
      result.best_checkpoint = best->path;
  } catch (const StorageError& error) {  // the run has ended as it has, all the same
    std::fprintf(stderr, "%s: %s\n", run.name.c_str(), error.what());
  }
  const std::string text = read_file(run.directory + "/reports.jsonl").value_or("");
  if (text.size() < 2) return result;
  // The last whole line.
  const size_t end = text.rfind('\n');
  const size_t before = end == std::string::npos || end == 0 ? end : text.rfind('\n', end - 1);
  const size_t begin = before == std::string::npos || before == end ? 0 : before + 1;
  const auto report = Json::try_parse(std::string_view(text).substr(begin, end - begin));
  if (!report || !report->is_object()) return result;
  if (const Json* step = report->find("step")) result.step = step->get<int64_t>();
  for (const auto& [name, value] : report->at("metrics").members()) {
    result.metrics.emplace_back(
        name, value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN());
  }
  return result;
}

std::vector<std::string> own_command() {
  std::error_code error;
  std::vector<std::string> command{fs::read_symlink("/proc/self/exe", error).string()};
  WEFT_CHECK(!error, "trainer", "expected the path of this program, got ", error.message());
  const std::string words = read_file("/proc/self/cmdline").value_or("");
  size_t begin = words.find('\0');  // behind the program's own name
  while (begin != std::string::npos && begin + 1 < words.size()) {
    const size_t end = words.find('\0', begin + 1);
    command.push_back(words.substr(begin + 1, end - begin - 1));
    begin = end;
  }
  return command;
}

}  // namespace detail
}  // namespace weft::dist
