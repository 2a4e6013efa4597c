// The course of a worker function: where to go on, steps, signs of life.
#include "dist/session.h"

#include "core/error.h"
#include "dist/detail/run_folder.h"
#include "dist/detail/session_state.h"
#include "dist/detail/together.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

namespace weft::dist {
namespace {

// Between looks at this process's memory, which cost microseconds.
constexpr double kMemoryLookSeconds = 0.05;

// The phase of a fault for what storage is asked to do; null for what belongs to no save.
const char* phase_of(StorageAction action) {
  switch (action) {
    case StorageAction::make_directory:
    case StorageAction::create:
      return "open";
    case StorageAction::write:
      return "write";
    case StorageAction::sync:
    case StorageAction::sync_directory:
      return "fsync";
    case StorageAction::rename:
    case StorageAction::exchange:
      return "rename";
    case StorageAction::remove_file:
    case StorageAction::remove_directory:
      return "remove";
    default:
      return nullptr;
  }
}

std::string line_of(const StepRecord& record) {
  char loss[32] = "null";  // JSON has no NaN or infinity; loss_bits still tells which
  if (std::isfinite(record.loss))
    std::snprintf(loss, sizeof loss, "%.9g", static_cast<double>(record.loss));
  char line[320];
  std::snprintf(line, sizeof line,
                "{\"step\":%lld,\"epoch\":%lld,\"loss\":%s,\"loss_bits\":\"%08x\",\"lr\":%.9g,"
                "\"images_per_second\":%.1f,\"seconds\":%.6f}",
                static_cast<long long>(record.step), static_cast<long long>(record.epoch), loss,
                std::bit_cast<uint32_t>(record.loss), record.lr, record.samples_per_second,
                record.seconds);
  return line;
}

}  // namespace

Session::State::State(Setup given)
    : setup(std::move(given)),
      signs(std::make_shared<detail::SessionSigns>()),
      faulty([&]() -> std::unique_ptr<Communicator> {
        Communicator& real = *setup.comm;
        signs->point.faults =
            Faults(parse_faults(setup.run->inject), real.rank(), real.size(), setup.attempt);
        if (!signs->point.faults.any("communication")) return nullptr;
        return detail::with_faults(real, signs->point);
      }()),
      comm(faulty ? *faulty : *setup.comm) {
  signs->board = setup.board;
  signs->slot = setup.supervised ? comm.rank() : 0;
  signs->point.faults.set_lose(
      [](void* board) { static_cast<detail::RunBoard*>(board)->lose_place(); }, setup.board);
  if (!setup.supervised) watch.emplace(1);
  if (first()) {
    first_loss.emplace(setup.directory, setup.run->name, *setup.train,
                       setup.scaling->logical_shards > 0 ? 0 : comm.size());
  }
  signs->beat();
  signs->point.faults.at("start", 0);
}

Session::Session(Setup setup) : state_(std::make_unique<State>(std::move(setup))) {}

Session::~Session() = default;

Communicator& Session::comm() const {
  return state_->comm;
}
int Session::rank() const {
  return state_->comm.rank();
}
int Session::size() const {
  return state_->comm.size();
}
int64_t Session::attempt() const {
  return state_->setup.attempt;
}
const TrainConfig& Session::train_config() const {
  return *state_->setup.train;
}
const ScalingConfig& Session::scaling() const {
  return *state_->setup.scaling;
}
const RunConfig& Session::run() const {
  return *state_->setup.run;
}
const std::string& Session::directory() const {
  return state_->setup.directory;
}
const StepClock& Session::clock() const {
  return state_->clock;
}
double Session::seconds_before() const {
  return state_->seconds_before;
}
bool Session::stopped() const {
  return state_->stopped;
}
void Session::set_span_listener(Function<void(const char*, double, double)> listener) {
  state_->spans = std::move(listener);
}

std::vector<std::pair<int64_t, int64_t>> Session::dataset_shard(const Parallel& parallel,
                                                                int64_t global_batch) const {
  std::vector<std::pair<int64_t, int64_t>> rows;
  for (const Shard& shard : parallel.shards()) {
    if (!shard.ghost) rows.emplace_back(shard.first_row(global_batch), shard.rows(global_batch));
  }
  return rows;
}

CheckpointOptions Session::checkpoint_options() const {
  const State& s = *state_;
  const RunConfig::CheckpointPolicy& policy = s.setup.run->checkpoint;
  CheckpointOptions options;
  options.directory = s.path("checkpoints");
  options.keep = policy.keep;
  options.asynchronous = policy.asynchronous;
  options.on_failure = policy.on_failure;
  options.report = [name = s.setup.run->name](const std::string& line) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), line.c_str());
  };
  options.storage =
      hooked_storage(local_storage(), [signs = s.signs](const StorageOperation& operation) {
        signs->beat();
        StorageFault fault;
        const char* phase = phase_of(operation.action);
        if (!phase || signs->point.faults.empty()) return fault;
        const Faults::Struck struck = signs->point.faults.at(phase, signs->saving.load());
        if (struck.fill) {
          fault.error = ENOSPC;
          fault.written = operation.bytes / 2;
        }
        if (struck.flip && operation.bytes > 0) fault.flip_bit = operation.bytes * 4;
        return fault;
      });
  return options;
}

std::optional<LoadedCheckpoint> Session::resume(Checkpointer& checkpoints) {
  State& s = *state_;
  const std::string& from = s.setup.resume;
  if (from == "none") {
    s.setup.board->begin();
    return std::nullopt;
  }
  std::optional<LoadedCheckpoint> loaded;
  if (from == "auto") {
    if (checkpoints.directory().latest()) s.signs->point.faults.at("load", 0);
    loaded = checkpoints.resume();
  } else {
    s.signs->point.faults.at("load", 0);
    loaded = checkpoints.load(from);
  }
  if (!loaded) return loaded;
  if (s.first()) {
    for (const std::string& damaged : loaded->passed_over)
      std::fprintf(stderr, "%s: passed over a damaged checkpoint: %s\n", run().name.c_str(),
                   damaged.c_str());
    const int64_t step = loaded->progress.step;
    if (s.first_loss) s.first_loss->expect(step);
    s.log = std::make_unique<detail::StepLog>(s.path("metrics.jsonl"), step);
    s.reports = std::make_unique<detail::StepLog>(s.path("reports.jsonl"), step);
    s.seconds_before = std::atof(detail::member_of_line(s.log->kept(), "seconds").c_str());
    CheckpointDirectory directory(checkpoints.directory().path());
    for (const StoredCheckpoint& stored : directory.list()) {
      if (stored.step <= step) continue;
      if (from == "auto") {
        const std::string kept = directory.set_aside(stored);
        std::fprintf(stderr, "%s: %s is kept as %s\n", run().name.c_str(), stored.name.c_str(),
                     kept.c_str());
      } else {
        directory.retire(stored);
      }
    }
    try {
      directory.clean();
      // A process that was killed behind the rename of its last save has not removed what is older.
      if (run().checkpoint.every > 0) directory.thin(run().checkpoint.keep);
    } catch (const StorageError& error) {  // it takes room, no more
      std::fprintf(stderr, "%s: %s\n", run().name.c_str(), error.what());
    }
  }
  s.step = loaded->progress.step;
  if (s.first()) s.setup.board->begin();
  s.comm.barrier();  // nobody saves before what is removed is gone
  return loaded;
}

// ---- a step ----

void Session::State::charge(Phase phase) {
  if (clock.running() && spans) {
    const double began = clock.last_begin();
    const Phase before = clock.phase();
    clock.begin(phase);
    spans(kPhaseNames[static_cast<size_t>(before)], began, clock.last_begin());
  } else {
    clock.begin(phase);
  }
  signs->phase.store(phase, std::memory_order_relaxed);
  signs->beat();
}

void Session::begin_step(int64_t step) {
  State& s = *state_;
  s.step = step;
  s.waited = s.comm.recorder().waited_seconds();
  s.signs->point.step.store(step, std::memory_order_relaxed);
  begin(Phase::data);
}

void Session::begin(Phase phase) {
  State& s = *state_;
  s.charge(phase);
  s.signs->point.faults.at(kPhaseNames[static_cast<size_t>(phase)], s.step);
}

void Session::at(const char* what) {
  State& s = *state_;
  if (s.clock.running()) {
    s.charge(s.clock.phase());
    s.clock.pause();
  } else {
    s.signs->beat();
  }
  s.signs->point.faults.at(what, s.step);
}

void Session::in_own_time(const char* what, const Function<void()>& job) {
  at(what);
  const std::string error = detail::by_rank(
      detail::run_together(*state_->setup.comm, job, [signs = state_->signs] { signs->beat(); }));
  if (!error.empty()) throw Error(error);
}

Session::Next Session::end_step(const StepRecord& record) {
  State& s = *state_;
  if (s.clock.running()) {
    s.charge(s.clock.phase());
    s.clock.pause();
  }
  s.clock.move_to_communication(s.comm.recorder().waited_seconds() - s.waited);
  s.step = record.step;
  int64_t resident = 0;
  if (clock_seconds() - s.looked > kMemoryLookSeconds) {
    resident = detail::resident_bytes();
    s.looked = clock_seconds();
  }
  s.setup.board->completed(s.signs->slot, record.step, s.clock.seconds(), resident);
  if (resident > 0) s.watch_itself();
  if (s.first()) s.hold(record);
  const int64_t every = s.setup.run->checkpoint.every;
  Next next;
  next.stop = s.stops(record.step);
  next.save = every > 0 && (record.step % every == 0 || next.stop);
  s.stopped = s.stopped || next.stop;
  return next;
}

// Writes the step's line, once the first one's loss has been held against what it was.
void Session::State::hold(const StepRecord& record) {
  if (!log) log = std::make_unique<detail::StepLog>(path("metrics.jsonl"));
  const std::string line = line_of(record);
  if (first_loss) {
    if (const std::string wrong = first_loss->hold(record.step, line); !wrong.empty()) {
      setup.board->forbid_restart();
      throw Error(wrong);
    }
    first_loss.reset();
  }
  log->add(line);
}

bool Session::State::stops(int64_t of_step) {
  signalfd_siginfo info{};
  if (setup.signals >= 0 && read(setup.signals, &info, sizeof info) == sizeof info)
    setup.board->request_stop(detail::StopReason::preempted);
  if (setup.supervised || comm.size() == 1) return setup.board->stops_after(of_step);
  if (setup.signals < 0) return false;
  // Ranks that share no memory ask each other.
  int64_t asked = setup.board->stop_requested() != detail::StopReason::none ? 1 : 0;
  comm.all_reduce({&asked, 1, i64}, ReduceOp::max, {.unit = "stop"});
  return asked != 0;
}

void Session::State::watch_itself() {
  if (!watch) return;
  const detail::RankSample sample = setup.board->sample(signs->slot);
  for (const std::string& line : watch->add({&sample, 1})) {
    // Its board has one place, whoever it is.
    std::fprintf(
        stderr, "%s: %s\n", setup.run->name.c_str(),
        ("rank " + std::to_string(comm.rank()) + line.substr(sizeof "rank 0" - 1)).c_str());
  }
}

// ---- reports ----

void Session::report(const Metrics& metrics) {
  State& s = *state_;
  at("report");
  s.check_report(metrics, false);
  if (s.first()) s.write_report(metrics, "");
}

void Session::report(const Metrics& metrics, Checkpointer& checkpoints,
                     const TrainingProgress& progress) {
  State& s = *state_;
  at("report");
  s.check_report(metrics, true);
  s.charge(Phase::checkpoint);
  checkpoints.wait();  // so that faults of a save strike in none before it
  s.signs->saving.store(progress.step);
  s.signs->point.faults.at("snapshot", progress.step);
  checkpoints.save(progress);
  if (s.first()) s.write_report(metrics, checkpoint_name(progress.step));
  s.charge(Phase::checkpoint);
  s.clock.pause();
}

void Session::State::write_report(const Metrics& metrics, const std::string& checkpoint) {
  if (!reports) reports = std::make_unique<detail::StepLog>(path("reports.jsonl"));
  std::string values;
  for (const auto& [name, value] : metrics) {
    char text[40] = "null";
    if (std::isfinite(value)) std::snprintf(text, sizeof text, "%.17g", value);
    values += (values.empty() ? "" : ",") + detail::quoted_json(name) + ":" + text;
  }
  reports->add(concat({"{\"step\":", step, ",\"attempt\":", setup.attempt, ",\"checkpoint\":\"",
                       checkpoint, "\",\"metrics\":{", values, "}}"}));
}

// Ranks compare what they are about to report; who reports alone is found out by the collective.
void Session::State::check_report(const Metrics& metrics, bool saves) {
  if (comm.size() == 1) return;
  constexpr size_t kLength = 240;
  std::string own =
      concat({"step ", step, saves ? ", with a checkpoint" : ", without a checkpoint"});
  for (const auto& [name, value] : metrics)
    own += ", " + name;
  if (own.size() > kLength)
    own = own.substr(0, kLength - 24) + concat({" #", std::hash<std::string>()(own)});
  own.resize(kLength, ' ');
  std::string to_all;
  for (int rank = 0; rank < comm.size(); ++rank)
    to_all += own;
  std::string all(to_all.size(), ' ');
  comm.all_to_all({to_all.data(), static_cast<int64_t>(to_all.size()), u8},
                  {all.data(), static_cast<int64_t>(all.size()), u8}, {.unit = "report"});
  const auto of = [&](int rank) {
    const std::string text = all.substr(static_cast<size_t>(rank) * kLength, kLength);
    return text.substr(0, text.find_last_not_of(' ') + 1);
  };
  for (int rank = 1; rank < comm.size(); ++rank) {
    if (of(rank) == of(0)) continue;
    throw ContractError(
        concat({"[report] expected the same report of all ", comm.size(),
                " ranks, got on rank 0: ", of(0), "; on rank ", rank, ": ", of(rank)}));
  }
}

}  // namespace weft::dist
