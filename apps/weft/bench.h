// `weft bench WHAT`: measures one thing and prints a table; --json adds a line a row to a file.
#pragma once

#include "apps/common/command_line.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace weft::app {

// One row of the table.
struct BenchRow {
  std::string bench = {};  // WHAT
  std::string name = {};   // the case
  int64_t threads = 1;
  int64_t workers = 1;
  std::string dtype = "f32";
  double median_seconds = 0;
  double rate = 0;
  std::string unit = {};
};

// Median seconds of `body` over `repeats` runs after `warmup` more.
double median_seconds(int repeats, int warmup, const std::function<void()>& body);

// Appends the rows to a JSON-lines file. Throws when it cannot be written.
void append_json(const std::vector<BenchRow>& rows, const std::string& path);

// One measurement below `weft bench`: adds its flags, and runs if it was chosen.
class Bench {
 public:
  virtual ~Bench() = default;
  // Refuses values that cannot be honoured (exit code), or measures.
  virtual std::optional<int> run(std::vector<BenchRow>& rows) = 0;
  // Prints the rows as a table.
  virtual void print(const std::vector<BenchRow>& rows) const;

  CommandLine* line = nullptr;
  int64_t threads = 1;
  std::string json;

 protected:
  // Adds --threads and --json.
  Bench(CommandLine& bench, const std::string& name, const std::string& description);
};

std::unique_ptr<Bench> make_bench_op(CommandLine& bench);
std::unique_ptr<Bench> make_bench_step(CommandLine& bench);
std::unique_ptr<Bench> make_bench_optim(CommandLine& bench);
std::unique_ptr<Bench> make_bench_comm(CommandLine& bench);
std::unique_ptr<Bench> make_bench_checkpoint(CommandLine& bench);
std::unique_ptr<Bench> make_bench_data(CommandLine& bench);

}  // namespace weft::app
