// Files with a line for each step that survive restarts: cut back to the step that training goes on
// from, they read as those of a run that was never interrupted.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace weft::dist::detail {

class StepLog {
 public:
  // Begins the file anew. Throws Error, as all of it does.
  explicit StepLog(std::string path);
  // Goes on with the file after `step`: lines of later steps, and what a killed process left of a
  // line, are cut off.
  StepLog(std::string path, int64_t step);
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // Appends a line, which begins {"step":N, and is in the file when this returns.
  void add(const std::string& line);

  // The last line that was kept; empty where there was none.
  const std::string& kept() const { return kept_; }

 private:
  void open(const char* mode);
  std::string path_;
  std::string kept_;
  std::FILE* file_ = nullptr;
};

// The first line of a later step than `step` in such a file; empty where there is none.
std::string line_after(const std::string& path, int64_t step);

// {"step":N,… -> N
std::optional<int64_t> step_of_line(const std::string& line);
// The text of a member of a flat object on one line, without quotes: "loss_bits" -> 3f800000
std::string member_of_line(const std::string& line, const std::string& name);

// Text as JSON has it, in quotes.
std::string quoted_json(const std::string& text);

}  // namespace weft::dist::detail
