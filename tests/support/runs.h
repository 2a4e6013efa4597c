// Runs of apps for tests: data for them, their folders, and what is left of them.
#pragma once

#include "core/json.h"

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace weft::test {

std::string read_file(const std::string& path);
// `count` images in IDX files PREFIX-images-idx3-ubyte and PREFIX-labels-idx1-ubyte, of which a few
// pixels depend on the label.
void write_images(const std::string& prefix, uint32_t count);

struct ProgramResult {
  int code = -1;       // exit code; 128 + N if signal N ended it
  std::string output;  // standard output and errors
};

// A program on its way: words[0] is a path.
class Program {
 public:
  explicit Program(const std::vector<std::string>& words);
  ~Program();  // kills it
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  pid_t process() const { return process_; }
  void signal(int number) const;
  ProgramResult wait();

 private:
  pid_t process_ = -1;
  int output_ = -1;
  bool ended_ = false;
};
ProgramResult run_program(const std::vector<std::string>& words);

// Looks until it holds, a minute at most; whether it came to hold.
bool comes_true(const std::function<bool()>& condition);
// Living processes in whose command line `text` stands, but for this one.
std::vector<pid_t> processes_with(const std::string& text);
// The values of a member of each line of a file of JSON lines, as text.
std::vector<std::string> column(const std::string& path, const std::string& name);

}  // namespace weft::test

namespace weft {
// What a failed comparison shows.
inline void PrintTo(const Json& json, std::ostream* out) {
  *out << json.dump();
}
}  // namespace weft
