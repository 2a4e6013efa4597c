// Common flags as configurations of a Trainer.
#include "apps/common/training.h"

namespace weft::app {

int run_trainer(const CommonFlags& flags, const std::string& app, dist::TrainConfig train,
                const std::function<void(dist::Session& session)>& body) {
  const std::vector<dist::NamedValue> common = {{"dtype", flags.dtype},
                                                {"seed", flags.seed},
                                                {"epochs", flags.epochs},
                                                {"steps", flags.steps},
                                                {"global_batch", flags.global_batch},
                                                {"accumulate", flags.accumulate},
                                                {"logical_shards", flags.logical_shards},
                                                {"lr", flags.lr},
                                                {"optimizer", flags.optimizer},
                                                {"data", flags.data}};
  train.values.insert(train.values.end(), common.begin(), common.end());

  dist::ScalingConfig scaling;
  scaling.workers = static_cast<int>(flags.workers);
  scaling.min_workers = static_cast<int>(flags.min_workers);
  scaling.fits = [flags](int workers) { return shards_fit(flags, workers); };
  scaling.strategy = flags.strategy;
  scaling.threads = static_cast<int>(flags.threads);
  scaling.logical_shards = flags.logical_shards;
  scaling.backend = flags.backend;
  scaling.timeout_seconds = flags.timeout;

  dist::RunConfig run;
  run.name = app;
  run.directory = flags.run_dir;
  run.resume = flags.resume;
  run.overwrite = flags.overwrite;
  run.resume_flag = "--resume";
  run.overwrite_flag = "--overwrite";
  run.checkpoint.every = flags.checkpoint_every;
  run.checkpoint.keep = {.last = flags.keep, .best = 0};
  if (flags.on_save_error == "continue")
    run.checkpoint.on_failure = dist::CheckpointOptions::OnFailure::go_on;
  run.failure.max_failures = static_cast<int>(flags.max_failures);
  run.failure.heartbeat_seconds = flags.heartbeat;
  run.failure.grace_seconds = flags.grace;
  run.inject = flags.inject;
  return dist::Trainer([&body](dist::Session& session) { body(session); }, std::move(train),
                       std::move(scaling), std::move(run))
      .fit()
      .exit_code;
}

}  // namespace weft::app
