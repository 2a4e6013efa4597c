// The `weft` command.
#include "apps/common/command_line.h"
#include "apps/weft/bench.h"
#include "apps/weft/checkpoint.h"
#include "apps/weft/data.h"
#include "apps/weft/run.h"
#include "core/parallel.h"

#include <array>
#include <cstdio>

namespace weft::app {
namespace {

int run(int argc, char** argv) {
  CommandLine line("weft",
                   "Tools around Weft, a deep-learning framework with distribution woven in.");
  CommandLine& bench = line.command("bench", "Measure one thing and print a table.");
  const std::array benches = {make_bench_op(bench),    make_bench_step(bench),
                              make_bench_optim(bench), make_bench_data(bench),
                              make_bench_comm(bench),  make_bench_checkpoint(bench)};
  RunCommand ranks(line);
  CheckpointCommand checkpoint(line);
  DataCommand data(line);
  if (const auto code = line.parse(argc, argv)) return *code;
  if (ranks.chosen()) return ranks.run();
  if (checkpoint.chosen()) return checkpoint.run();
  if (data.chosen()) return data.run();
  for (const auto& each : benches) {
    if (!each->line->chosen()) continue;
    set_num_threads(static_cast<int>(each->threads));
    std::vector<BenchRow> rows;
    if (const auto code = each->run(rows)) return *code;
    each->print(rows);
    if (!each->json.empty()) append_json(rows, each->json);
  }
  return 0;
}

}  // namespace
}  // namespace weft::app

int main(int argc, char** argv) {
  return weft::app::run_guarded("weft", weft::app::run, argc, argv);
}
