#include "dist/detail/run_folder.h"

#include "core/error.h"
#include "dist/detail/step_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

namespace weft::dist::detail {
namespace {

namespace fs = std::filesystem;

// A killed run's ranks are ended by its guardian within moments.
constexpr double kLockSeconds = 1.5;

void check(const std::error_code& error, const std::string& what, const std::string& path) {
  WEFT_CHECK(!error, "run", "expected to ", what, " ", path, ", got ", error.message());
}

// "12" -> 12; else -1.
int64_t as_number(const std::string& text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 ? number : -1;
}

// Removes the entries that `ours` knows, and the folder if nothing else is in it.
void clear_of(const std::string& folder, bool (*ours)(const std::string& name)) {
  std::error_code error;
  std::vector<fs::path> going;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (ours(at->path().filename().string())) going.push_back(at->path());
  }
  for (const fs::path& path : going) {
    fs::remove_all(path, error);
    check(error, "remove", path.string());
  }
  fs::remove(folder, error);  // stays if others have something there
}

int64_t last_attempt_of(const std::string& run) {
  int64_t last = 0;
  std::error_code error;
  for (fs::directory_iterator at(run + "/attempts", error), end; !error && at != end;
       at.increment(error))
    last = std::max(last, as_number(at->path().filename().string()));
  return last;
}

}  // namespace

RunFolder::RunFolder(const std::string& path) : path_(path) {
  WEFT_CHECK(!path.empty(), "run", "expected a run directory, got none");
  std::error_code error;
  fs::create_directories(path, error);
  check(error, "make the run directory", path);
  // Not closed in what is started: the lock is held until the last rank has ended.
  int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY);
  if (fd >= 0 && fd <= STDERR_FILENO) {
    const int low = fd;
    fd = fcntl(low, F_DUPFD, STDERR_FILENO + 1);
    close(low);
  }
  WEFT_CHECK(fd >= 0, "run", "expected to open the run directory ", path, ", got ",
             std::strerror(errno));
  lock_ = FileDescriptor(fd);
  const auto start = std::chrono::steady_clock::now();
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    WEFT_CHECK(errno == EWOULDBLOCK || errno == EINTR, "run", "expected to lock ", path, ", got ",
               std::strerror(errno));
    WEFT_CHECK(
        std::chrono::steady_clock::now() - start < std::chrono::duration<double>(kLockSeconds),
        "run", "expected a run directory that no other run uses, got ", path,
        ", in which one is at work: another --run-dir keeps them apart");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

bool RunFolder::has_checkpoints() const {
  std::error_code error;
  for (fs::directory_iterator at(checkpoints(), error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().filename().string().rfind("step-", 0) == 0) return true;
  }
  return false;
}

bool RunFolder::finished() const {
  std::error_code error;
  if (fs::exists(path_ + "/result.json", error)) return true;
  const auto text =
      read_file(path_ + "/attempts/" + std::to_string(last_attempt()) + "/attempt.json");
  return text && member_of_line(*text, "ending") == "finished";
}

// Somebody may have pointed a run at a folder with things of their own: only what runs have made
// goes.
void RunFolder::clear() const {
  std::error_code error;
  // The result first: what is cleared by halves is not a finished run.
  for (const char* name : {"result.json", "result.json.partial", "metrics.jsonl", "reports.jsonl",
                           "run.json", "first_loss.json"}) {
    fs::remove(path_ + "/" + name, error);
    check(error, "remove", path_ + "/" + name);
  }
  clear_of(checkpoints(), [](const std::string& name) {
    return name.rfind("step-", 0) == 0 || name.rfind(".step-", 0) == 0 || name == "pinned";
  });
  clear_logs();
  clear_of(path_ + "/attempts", [](const std::string& name) { return as_number(name) > 0; });
}

void RunFolder::clear_logs() const {
  const std::string logs = path_ + "/logs";
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(logs, error))) {
    fs::remove(logs, error);
    check(error, "remove", logs);
  } else {
    clear_of(logs, [](const std::string& name) {
      return name.rfind("rank-", 0) == 0 && name.size() > 4 &&
             name.compare(name.size() - 4, 4, ".log") == 0;
    });
  }
}

int64_t RunFolder::last_attempt() const {
  return last_attempt_of(path_);
}

std::string RunFolder::begin_attempt(int64_t attempt) const {
  const std::string number = std::to_string(attempt);
  const std::string folder = path_ + "/attempts/" + number;
  std::error_code error;
  fs::create_directories(folder + "/logs", error);
  check(error, "make", folder + "/logs");
  // A link is replaced at once; a folder of logs makes way for it.
  const std::string logs = path_ + "/logs";
  if (!fs::is_symlink(fs::symlink_status(logs, error))) clear_logs();
  const std::string fresh = path_ + "/.logs.partial";
  fs::remove(fresh, error);
  fs::create_directory_symlink("attempts/" + number + "/logs", fresh, error);
  check(error, "make", logs);
  fs::rename(fresh, logs, error);
  check(error, "make", logs);
  return folder;
}

void RunFolder::write_attempt(int64_t attempt, const std::string& json) const {
  write_file_whole(path_ + "/attempts/" + std::to_string(attempt) + "/attempt.json", json);
}

std::optional<int> read_places(const std::string& run) {
  const auto text = read_file(run + "/places");
  if (!text) return std::nullopt;
  const size_t end = text->find_last_not_of(" \n");
  const std::string number = text->substr(0, end == std::string::npos ? 0 : end + 1);
  const int64_t places = as_number(number);
  WEFT_CHECK(places >= 0 && places <= 1 << 20, "run", "expected a number of ranks in ", run,
             "/places, got '", number, "'");
  return static_cast<int>(places);
}

void write_places(const std::string& run, int places) {
  write_file_whole(run + "/places", std::to_string(places) + "\n");
}

void write_file_whole(const std::string& path, const std::string& text) {
  const std::string partial = path + ".partial";
  std::FILE* file = std::fopen(partial.c_str(), "we");
  WEFT_CHECK(file, "run", "expected to write ", partial, ", got ", std::strerror(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  WEFT_CHECK(written && closed && std::rename(partial.c_str(), path.c_str()) == 0, "run",
             "expected to write ", path, ", got ", std::strerror(errno));
}

std::optional<std::string> read_file(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (!file) return std::nullopt;
  std::string text;
  char bytes[4096];
  for (size_t got = 0; (got = std::fread(bytes, 1, sizeof bytes, file)) > 0;)
    text.append(bytes, got);
  std::fclose(file);
  return text;
}

}  // namespace weft::dist::detail
