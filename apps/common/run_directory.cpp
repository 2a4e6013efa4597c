#include "apps/common/run_directory.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
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
  metrics_ = open("metrics.jsonl");
  try {
    log_ = open("logs/rank-0.log", ours ? "ae" : "we");
  } catch (...) {
    std::fclose(metrics_);
    throw;
  }
}

RunDirectory::~RunDirectory() {
  std::fclose(metrics_);
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

void RunDirectory::metrics(const StepMetrics& m) {
  char loss[32] = "null";  // JSON has no NaN or infinity; loss_bits still tells which
  if (std::isfinite(m.loss)) std::snprintf(loss, sizeof loss, "%.9g", static_cast<double>(m.loss));
  const int written =
      std::fprintf(metrics_,
                   "{\"step\":%lld,\"epoch\":%lld,\"loss\":%s,\"loss_bits\":\"%08x\",\"lr\":%.9g,"
                   "\"images_per_second\":%.1f,"
                   "\"seconds\":%.6f}\n",
                   static_cast<long long>(m.step), static_cast<long long>(m.epoch), loss,
                   std::bit_cast<uint32_t>(m.loss), m.lr, m.images_per_second, m.seconds);
  check_written(written > 0, "metrics.jsonl");
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

void RunDirectory::flush_metrics() {
  check_written(std::fflush(metrics_) == 0, "metrics.jsonl");
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
