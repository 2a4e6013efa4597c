#include "apps/common/common_flags.h"

#include "apps/common/optimizers.h"
#include "core/ledger.h"
#include "core/parallel.h"
#include "core/random.h"
#include "dist/faults.h"
#include "dist/trainer.h"

#include <unistd.h>

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
  line.add_choice("--backend", flags.backend, {"auto", "thread", "shm", "tcp", "gloo", "mpi"},
                  "how ranks communicate; WEFT_BACKEND decides for auto, else where they run");
  line.add("--timeout", flags.timeout,
           "seconds that ranks wait for one that is alive but does not come", 0.001, 1e9);
  line.add_choice("--device", flags.device, {"cpu", "cuda"}, "where to train");
  line.add_choice("--dtype", flags.dtype, {"f32", "bf16", "f16"},
                  "type that the model computes in; what is trained stays f32 (f16: the loss is "
                  "scaled, and steps that overflow are skipped)");
  line.add("--threads", flags.threads,
           "threads of a rank, 0 for all processors divided among the ranks of a host", 0, 4096);
  line.add("--seed", flags.seed, "seed of initial weights, order and augmentation", 0);
  line.add("--epochs", flags.epochs, "passes over the training data", 1, kMany);
  line.add("--steps", flags.steps, "stop after this many steps, 0 to let the epochs decide", 0);
  line.add("--global-batch", flags.global_batch, "samples of one step, over all ranks", 1, kMany);
  line.add("--accumulate", flags.accumulate, "micro-batches a step is cut into", 1, kMany);
  line.add("--lr", flags.lr, "peak learning rate", 0.0, 1e6);
  line.add_choice("--optimizer", flags.optimizer, optimizer_names(), "optimizer");
  line.add("--logical-shards", flags.logical_shards,
           "shards of the global batch for rank-independent bits", 0, kMany);
  line.add("--data", flags.data, "folder of the data set");
  line.add("--run-dir", flags.run_dir, "folder for metrics, result and logs");
  line.add("--resume", flags.resume,
           "none: begin anew; auto: go on from the run's newest whole checkpoint; or the folder of "
           "a checkpoint");
  line.add_switch("--overwrite", flags.overwrite,
                  "begin anew in the folder of a run that has checkpoints (one without is begun "
                  "anew in any case)");
  line.add("--checkpoint-every", flags.checkpoint_every,
           "steps between checkpoints, 0 for none; also saves when SIGTERM ends the run", 0);
  line.add("--keep", flags.keep, "newest checkpoints that are kept, 0 for all", 0);
  line.add_choice("--on-save-error", flags.on_save_error, {"fail", "continue"},
                  "what becomes of the run when a checkpoint cannot be written");
  line.add("--max-failures", flags.max_failures,
           "times that ranks are started again from the newest checkpoint after a failure", 0,
           kMany);
  line.add("--min-workers", flags.min_workers,
           "fewest ranks to go on with when places are gone (RUN_DIR/places says how many there "
           "are), 0 for all",
           0, kMany);
  line.add("--heartbeat", flags.heartbeat,
           "seconds after which a rank that makes no progress counts as failed, 0 for never", 0.0,
           1e9);
  line.add("--grace", flags.grace, "seconds that ranks have to save after SIGTERM", 0.0, 1e9);
  line.add("--inject", flags.inject,
           "faults to try, such as kill:phase=backward,step=3,rank=1 (dist/faults.h lists them)");
  line.add_bytes("--memory-limit", flags.memory_limit, "tensor memory of a rank");
  line.add("--init", flags.init, "safetensors file with initial weights");
  line.add("--export", flags.export_to, "safetensors file to write the trained weights to");
  line.add("--trace", flags.trace,
           "file for a time line of all ranks, which Perfetto (ui.perfetto.dev) shows");
  line.add_switch(
      "--profile", flags.profile,
      "at the end, print rank 0's training time by operator and layer, and how far from "
      "the machine's best (RUN_DIR/profile.txt)");
  line.add_switch("--quiet", flags.quiet, "print nothing but errors");
}

bool shards_fit(const CommonFlags& flags, int64_t workers) {
  if (flags.logical_shards > 0 && flags.logical_shards < workers) return false;
  const int64_t shards =
      flags.logical_shards > 0 ? flags.logical_shards : workers * flags.accumulate;
  return flags.global_batch % shards == 0;
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
    // A trainer's attempt may have fewer ranks than the run began with.
    if (line.given("--workers") && !dist::Trainer::started_this() &&
        flags.workers != flags.environment.size) {
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

std::optional<int> check_shards(const CommandLine& line, const CommonFlags& flags) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (flags.logical_shards > 0 && flags.accumulate > 1) {
    return line.reject("--accumulate: expected 1 with --logical-shards, which says how many " +
                       std::string("micro-batches there are, got ") + number(flags.accumulate));
  }
  if (shards_fit(flags, flags.workers)) return std::nullopt;
  if (flags.logical_shards > 0 && flags.logical_shards < flags.workers) {
    return line.reject("--logical-shards: expected at least one for each of " +
                       number(flags.workers) + " ranks, got " + number(flags.logical_shards));
  }
  const int64_t shards =
      flags.logical_shards > 0 ? flags.logical_shards : flags.workers * flags.accumulate;
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

// What is said about failures and checkpoints has to make sense together: a flag that would change
// nothing is a mistake. Ranks that a trainer has started need not ask again.
std::optional<int> check_failures(const CommandLine& line, const CommonFlags& flags) {
  if (dist::Trainer::started_this()) return std::nullopt;
  if (flags.min_workers > flags.workers) {
    return line.reject("--min-workers: expected at most the " + std::to_string(flags.workers) +
                       " of --workers, got " + std::to_string(flags.min_workers));
  }
  for (const char* flag : {"--max-failures", "--min-workers", "--heartbeat", "--grace"}) {
    if (line.given(flag) && flags.environment.launched()) {
      return line.reject(std::string(flag) + ": expected ranks that this program starts itself, " +
                         "got " + flags.environment.launcher + "'s");
    }
  }
  for (const char* flag : {"--heartbeat", "--grace"}) {
    if (line.given(flag) && flags.workers == 1 && flags.max_failures == 0) {
      return line.reject(std::string(flag) +
                         ": expected several --workers or --max-failures beside it");
    }
  }
  for (const char* flag : {"--keep", "--on-save-error", "--grace"}) {
    if (line.given(flag) && flags.checkpoint_every == 0)
      return line.reject(std::string(flag) + ": expected --checkpoint-every beside it");
  }
  if (line.given("--min-workers") && flags.max_failures == 0 && flags.checkpoint_every == 0)
    return line.reject("--min-workers: expected --max-failures or --checkpoint-every beside it");
  if (flags.overwrite && flags.resume == "auto")
    return line.reject("--overwrite: expected no --resume auto beside it, got both");
  if (flags.resume != "none" && flags.resume != "auto" &&
      access((flags.resume + "/manifest.json").c_str(), R_OK) != 0) {
    return line.reject("--resume: expected auto, none or the folder of a checkpoint, got '" +
                       flags.resume + "'");
  }
  try {
    dist::parse_faults(flags.inject);
  } catch (const Error& error) {
    return line.reject(std::string("--inject: ") + error.what());
  }
  return std::nullopt;
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
  if (const auto code = check_shards(line, flags)) return code;
  if (const auto code = check_failures(line, flags)) return code;
  if (flags.threads == 0) flags.threads = default_threads(flags);
  set_num_threads(static_cast<int>(flags.threads));
  if (flags.memory_limit > 0) current_ledger().set_limit(flags.memory_limit);
  manual_seed(static_cast<uint64_t>(flags.seed));
  flags.agreed = agreed_settings(line, flags);
  return std::nullopt;
}

}  // namespace weft::app
