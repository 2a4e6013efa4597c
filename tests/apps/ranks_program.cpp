// An app of a few lines, for tests of how ranks are started, joined and ended: sums the ranks'
// numbers and, if told so, lets one of them fail.
#include "apps/common/ranks.h"
#include "apps/common/run_directory.h"
#include "core/parallel.h"
#include "ops/ops.h"

#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <string>

namespace weft::app {
namespace {

struct ProgramOptions {
  CommonFlags common;
  std::string act = "sum";
  int64_t who = 1;
};

void act(const ProgramOptions& options, dist::Communicator& comm) {
  const Tensor sum = full({4}, comm.rank() + 1);
  comm.all_reduce(sum);
  char text[128];
  std::snprintf(text, sizeof text, "rank %d of %d: sum %g, backend %s, threads %d", comm.rank(),
                comm.size(), select(sum, 0, 3).item(), comm.backend(), num_threads());
  std::printf("%s\n", text);
  std::fflush(stdout);
  if (comm.rank() == 0) RunDirectory(options.common.run_dir, true).log(text);
  if (comm.rank() == options.who) {
    if (options.act == "throw") throw Error("[program] expected nothing, got this");
    if (options.act == "exit") _exit(17);
    if (options.act == "kill") kill(getpid(), SIGKILL);
    if (options.act == "stop") kill(getpid(), SIGSTOP);
    if (options.act == "leave") return;
  }
  if (options.act == "large") {
    const Tensor large = full({1 << 20}, 1);
    for (int i = 0; i < 8; ++i)
      comm.all_reduce(large);
    const double product = std::pow(comm.size(), 8);
    WEFT_CHECK(select(large, 0, 12345).item() == product, "program", "expected ", product, ", got ",
               select(large, 0, 12345).item());
    return;
  }
  if (options.act != "sum") comm.all_reduce(sum, dist::ReduceOp::sum, {.unit = "second"});
}

int run(int argc, char** argv) {
  ProgramOptions options;
  options.common.run_dir = "ranks_program_run";
  options.common.global_batch = 120;  // whatever the number of ranks
  CommandLine line("ranks_program", "Sums the ranks' numbers.");
  line.add_choice("--act", options.act, {"sum", "large", "throw", "exit", "kill", "stop", "leave"},
                  "what one rank does then, or all: large sums");
  line.add("--who", options.who, "the rank that does it", 0);
  add_common_flags(line, options.common);
  if (const auto code = line.parse(argc, argv)) return *code;
  if (const auto code = apply_common_flags(line, options.common)) return *code;
  return run_ranks(argc, argv, options.common,
                   [&](dist::Communicator& comm) { act(options, comm); });
}

}  // namespace
}  // namespace weft::app

int main(int argc, char** argv) {
  return weft::app::run_guarded("ranks_program", weft::app::run, argc, argv);
}
