#include "apps/common/common_flags.h"

#include "core/ledger.h"
#include "core/parallel.h"
#include "core/random.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace weft::app {

void add_common_flags(CommandLine& line, CommonFlags& flags) {
  constexpr int64_t kMany = 1 << 20;
  line.add("--workers", flags.workers,
           "ranks to train on: processes that this program starts, unless a launcher has", 1,
           kMany);
  line.add_choice("--strategy", flags.strategy,
                  {"single", "ddp", "zero1", "zero2", "zero3", "fsdp"},
                  "how parameters, gradients and optimizer state rest on the ranks; ddp by default "
                  "for several");
  line.add_choice("--backend", flags.backend, {"auto", "thread", "shm", "gloo", "mpi"},
                  "how ranks communicate; WEFT_BACKEND decides for auto, else where they run");
  line.add("--timeout", flags.timeout,
           "seconds that ranks wait for one that is alive but does not come", 0.001, 1e9);
  line.add_choice("--device", flags.device, {"cpu", "cuda"}, "where to train");
  line.add_choice("--dtype", flags.dtype, {"f32", "bf16", "f16"},
                  "type that the model computes in; what is trained stays f32");
  line.add("--threads", flags.threads,
           "threads of a rank, 0 for all processors divided among the ranks of a host", 0, 4096);
  line.add("--seed", flags.seed, "seed of initial weights, order and augmentation", 0);
  line.add("--epochs", flags.epochs, "passes over the training data", 1, kMany);
  line.add("--steps", flags.steps, "stop after this many steps, 0 to let the epochs decide", 0);
  line.add("--global-batch", flags.global_batch, "samples of one step, over all ranks", 1, kMany);
  line.add("--accumulate", flags.accumulate, "micro-batches a step is cut into", 1, kMany);
  line.add("--lr", flags.lr, "peak learning rate", 0.0, 1e6);
  line.add_choice("--optimizer", flags.optimizer, {"sgd", "adam", "adamw", "lars", "lamb"},
                  "optimizer");
  line.add("--logical-shards", flags.logical_shards,
           "shards of the global batch for rank-independent bits", 0, kMany);
  line.add("--data", flags.data, "folder of the data set");
  line.add("--run-dir", flags.run_dir, "folder for metrics, result and logs");
  line.add("--resume", flags.resume, "auto, none, or a checkpoint folder");
  line.add("--checkpoint-every", flags.checkpoint_every, "steps between checkpoints", 0);
  line.add("--keep", flags.keep, "checkpoints kept", 0);
  line.add("--max-failures", flags.max_failures, "restarts after failures", 0);
  line.add("--min-workers", flags.min_workers, "fewest ranks to go on with", 0);
  line.add_bytes("--memory-limit", flags.memory_limit, "tensor memory of a rank");
  line.add("--init", flags.init, "safetensors file with initial weights");
  line.add("--export", flags.export_to, "safetensors file to write the trained weights to");
  line.add("--trace", flags.trace,
           "file for a time line of all ranks, which Perfetto (ui.perfetto.dev) shows");
  line.add_switch("--quiet", flags.quiet, "print nothing but errors");
}

namespace {

// Who this process is; the exit code where that contradicts itself or the flags.
std::optional<int> find_rank(const CommandLine& line, CommonFlags& flags) {
  try {
    flags.environment = dist::read_environment();
  } catch (const Error& error) {
    return line.reject(error.what());
  }
  if (flags.environment.launched()) {
    if (line.given("--workers") && flags.workers != flags.environment.size) {
      return line.reject("--workers: expected the " + std::to_string(flags.environment.size) +
                         " ranks that " + flags.environment.launcher + " has started, got " +
                         std::to_string(flags.workers));
    }
    flags.workers = flags.environment.size;
  }
  if (!line.given("--strategy")) flags.strategy = flags.workers > 1 ? "ddp" : "single";
  if (flags.strategy == "single" && flags.workers > 1) {
    return line.reject("--strategy: expected ddp, zero1, zero2, zero3 or fsdp for " +
                       std::to_string(flags.workers) + " ranks, got single");
  }
  return std::nullopt;
}

// The global batch is cut into logical shards of equal size, at least one a rank.
std::optional<int> check_shards(const CommandLine& line, const CommonFlags& flags) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (flags.logical_shards > 0 && flags.accumulate > 1) {
    return line.reject("--accumulate: expected 1 with --logical-shards, which says how many " +
                       std::string("micro-batches there are, got ") + number(flags.accumulate));
  }
  if (flags.logical_shards > 0 && flags.logical_shards < flags.workers) {
    return line.reject("--logical-shards: expected at least one for each of " +
                       number(flags.workers) + " ranks, got " + number(flags.logical_shards));
  }
  const int64_t shards =
      flags.logical_shards > 0 ? flags.logical_shards : flags.workers * flags.accumulate;
  if (flags.global_batch % shards == 0) return std::nullopt;
  const std::string what =
      flags.logical_shards > 0
          ? number(shards) + " logical shards"
          : number(flags.workers) + " ranks x " + number(flags.accumulate) + " micro-batches";
  return line.reject("--global-batch: expected a multiple of " + number(shards) + " (" + what +
                     "), got " + number(flags.global_batch));
}

// Paths may differ from host to host, and what a rank prints and how much it may use is its own
// affair; of files that some ranks alone read or write, all must know that there are some.
std::vector<std::string> agreed_settings(const CommandLine& line, const CommonFlags& flags) {
  constexpr std::array<std::string_view, 11> own = {
      "--data",    "--run-dir",  "--quiet", "--threads", "--memory-limit", "--timeout",
      "--workers", "--strategy", "--init",  "--export",  "--trace"};
  std::vector<std::string> agreed = {"--strategy " + flags.strategy,
                                     flags.init.empty() ? "no --init" : "--init",
                                     flags.export_to.empty() ? "no --export" : "--export",
                                     flags.trace.empty() ? "no --trace" : "--trace"};
  for (const auto& [name, value] : line.settings()) {
    if (std::find(own.begin(), own.end(), name) == own.end()) agreed.push_back(name + " " + value);
  }
  return agreed;
}

// Who has set OMP_NUM_THREADS has decided; Weft's own launcher does.
int default_threads(const CommonFlags& flags) {
  if (std::getenv("OMP_NUM_THREADS") || !flags.environment.launched()) return num_threads();
  return dist::threads_per_rank(flags.environment.local_size);
}

}  // namespace

std::optional<int> apply_common_flags(const CommandLine& line, CommonFlags& flags) {
  const auto not_here = [&](const std::string& flag, const std::string& value,
                            const std::string& wanted) {
    return line.reject(flag + ": expected " + wanted + ", got " + value +
                       ", which this version does not do yet");
  };
  if (const auto code = find_rank(line, flags)) return code;
  if (flags.device != "cpu") return not_here("--device", flags.device, "cpu");
  if (flags.dtype == "f16")
    return not_here("--dtype", "f16 (it needs loss scaling)", "f32 or bf16");
  constexpr std::array<const char*, 5> later = {"--resume", "--checkpoint-every", "--keep",
                                                "--max-failures", "--min-workers"};
  for (const char* flag : later) {
    if (line.given(flag))
      return line.reject(std::string(flag) + ": this version does not do it yet");
  }
  if (const auto code = check_shards(line, flags)) return code;
  if (flags.threads == 0) flags.threads = default_threads(flags);
  set_num_threads(static_cast<int>(flags.threads));
  if (flags.memory_limit > 0) current_ledger().set_limit(flags.memory_limit);
  manual_seed(static_cast<uint64_t>(flags.seed));
  flags.agreed = agreed_settings(line, flags);
  return std::nullopt;
}

}  // namespace weft::app
