#include "apps/common/run_directory.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace weft::app {

RunDirectory::RunDirectory(const std::string& path, bool prints) : path_(path) {
  std::error_code error;
  std::filesystem::create_directories(path + "/logs", error);
  WEFT_CHECK(!error, "run", "expected to make the run directory, got ", path, ": ",
             error.message());
  std::filesystem::remove(path + "/result.json", error);
  const char* kept = std::getenv("WEFT_LOG");
  const bool ours =
      kept && std::filesystem::equivalent(kept, path + "/logs/rank-0.log", error) && !error;
  logged_by_launcher_ = ours && prints;
  log_ = open("logs/rank-0.log", ours ? "ae" : "we");
}

RunDirectory::~RunDirectory() {
  std::fclose(log_);
}

std::FILE* RunDirectory::open(const std::string& name, const char* mode) const {
  std::FILE* file = std::fopen((path_ + "/" + name).c_str(), mode);
  WEFT_CHECK(file, "run", "expected to write ", path_, "/", name, ", got ", std::strerror(errno));
  return file;
}

void RunDirectory::check_written(bool written, const std::string& name) const {
  WEFT_CHECK(written, "run", "expected to write ", path_, "/", name, ", got ",
             std::strerror(errno));
}

void RunDirectory::log(const std::string& text) {
  if (logged_by_launcher_) return;
  check_written(std::fprintf(log_, "%s\n", text.c_str()) > 0 && std::fflush(log_) == 0,
                "logs/rank-0.log");
}

void RunDirectory::write(const std::string& name, const std::string& text) const {
  std::FILE* file = open(name);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  check_written(std::fclose(file) == 0 && written, name);
}

void RunDirectory::write_whole(const std::string& name, const std::string& text) const {
  std::FILE* file = open(name + ".partial");
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                       std::fflush(file) == 0 && fsync(fileno(file)) == 0;
  check_written(std::fclose(file) == 0 && written, name + ".partial");
  const std::string target = path_ + "/" + name;
  check_written(std::rename((target + ".partial").c_str(), target.c_str()) == 0, name);
}

}  // namespace weft::app
