#include "dist/checkpoint.h"

#include "core/parallel.h"
#include "core/random.h"
#include "dist/detail/checkpoint_load.h"
#include "dist/detail/checkpoint_write.h"
#include "dist/detail/snapshot.h"
#include "dist/detail/together.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>

namespace weft::dist {
namespace {

using namespace detail;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A job's exceptions come to all ranks as text; the first letter says of which kind.
constexpr char kDamage = 'd';
constexpr char kOther = 'e';

template <class F>
void tell_kind(const F& job) {
  try {
    job();
  } catch (const DamagedCheckpoint& error) {
    throw Error(kDamage + std::string(error.what()));
  } catch (const std::exception& error) {
    throw Error(kOther + std::string(error.what()));
  }
}

// Throws what any rank threw, the same on all of them: damage only where nobody has another error.
void throw_kind(std::vector<std::string> texts) {
  const auto has = [&](char kind) {
    return std::any_of(texts.begin(), texts.end(),
                       [kind](const auto& text) { return !text.empty() && text[0] == kind; });
  };
  const bool other = has(kOther);
  if (!other && !has(kDamage)) return;
  for (std::string& text : texts)
    text = text.empty() || (other && text[0] == kDamage) ? "" : text.substr(1);
  if (other) throw Error(by_rank(texts));
  throw DamagedCheckpoint(by_rank(texts));
}

// Tidying up, on which no checkpoint depends. What a storage says against it, "" if nothing.
template <class F>
std::string tidy(const F& job) {
  try {
    job();
  } catch (const StorageError& error) {
    return error.what();
  }
  return {};
}

template <class Named>
void sort_by_name(std::vector<Named>& list, std::string Named::*name, const char* what) {
  std::sort(list.begin(), list.end(),
            [name](const Named& a, const Named& b) { return a.*name < b.*name; });
  const auto twice =
      std::adjacent_find(list.begin(), list.end(),
                         [name](const Named& a, const Named& b) { return a.*name == b.*name; });
  if (twice != list.end())
    throw_error("checkpoint",
                {"expected ", what, " of different names, got ", (*twice).*name, " twice"});
}

}  // namespace

class Checkpointer::Impl {
 public:
  Impl(nn::Module& model, Parallel& parallel, CheckpointOptions options);
  ~Impl();

  void save(const TrainingProgress& progress);
  void finish(bool may_throw);
  LoadedCheckpoint load(const std::string& path);
  std::optional<LoadedCheckpoint> resume();

  // A save under way: what it writes, and what becomes of it.
  struct Job {
    Manifest manifest;
    std::vector<Piece> own;
    std::string early_error;  // what kept this rank from even beginning
    double started = 0;
    double stalled = 0;
    int64_t number = 0;
    std::string error = {};
    bool verdict = false;     // the error is a verdict about the ranks, not about the storage
    std::string untidy = {};  // what could not be removed, once the checkpoint was whole
    SavedCheckpoint saved = {};
  };

  void run(Job& job) noexcept;
  void write(Job& job);
  void commit(Job& job, const std::vector<std::string>& reports);
  std::string temporary(const Job& job) const;
  void abandon(const Job& job) noexcept;
  void report(const std::string& line) const;

  CheckpointOptions options;
  CheckpointParts parts;
  optim::Scheduler* scheduler = nullptr;
  Communicator& world;
  std::unique_ptr<Communicator> comm;
  CheckpointDirectory directory;
  std::string token;  // of this object's temporary names, the same on all ranks
  int64_t saves = 0;

  std::unique_ptr<Job> job;
  std::thread thread;
  std::atomic<bool> running{false};
  std::atomic<int64_t> failed{0};
  mutable std::mutex mutex;
  std::optional<SavedCheckpoint> newest;
};

Checkpointer::Impl::Impl(nn::Module& model, Parallel& parallel, CheckpointOptions given)
    : options(std::move(given)),
      parts{model, parallel},
      world(parallel.communicator()),
      comm(world.split(0, world.rank(), "checkpoint")),
      directory(options.directory, options.storage) {
  WEFT_CHECK(options.block_bytes >= 8 && options.block_bytes % 8 == 0, "checkpoint",
             "expected block_bytes that 8 divides, got ", options.block_bytes);
  WEFT_CHECK(options.keep.last >= 0 && options.keep.best >= 0, "checkpoint",
             "expected numbers of checkpoints to keep of 0 or more, got ", options.keep.last,
             " and ", options.keep.best);
  std::string untidy;
  const auto errors = run_together(*comm, [&] {
    if (comm->rank() != 0) return;
    options.storage->make_directory(directory.path());
    untidy = tidy([this] { directory.clean(); });
    std::random_device random;
    char text[9];
    std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(random()));
    token = text;
  });
  if (const std::string error = by_rank(errors); !error.empty()) throw CheckpointError(error);
  token = broadcast_text(*comm, token);
  if (!untidy.empty())
    report(concat({"[checkpoint] expected to remove what earlier saves have left, got ", untidy}));
}

Checkpointer::Impl::~Impl() {
  try {
    finish(false);
  } catch (...) {
  }
}

std::string Checkpointer::Impl::temporary(const Job& work) const {
  return concat({directory.path(), "/.", checkpoint_name(work.manifest.progress.step), ".", token,
                 "-", work.number, ".partial"});
}

void Checkpointer::Impl::report(const std::string& line) const {
  if (comm->rank() != 0) return;
  if (options.report) return options.report(line);
  std::fprintf(stderr, "%s\n", line.c_str());
}

void Checkpointer::Impl::save(const TrainingProgress& progress) {
  finish(true);
  const double started = seconds_now();
  auto work = std::make_unique<Job>();
  work->started = started;
  work->number = saves++;
  Manifest& manifest = work->manifest;
  manifest.progress = progress;
  sort_by_name(manifest.progress.values, &NamedValue::name, "values");
  checkpoint_name(progress.step);
  WEFT_CHECK(progress.epoch >= 0 && progress.consumed >= 0, "checkpoint",
             "expected an epoch and samples of 0 or more, got ", progress.epoch, " and ",
             progress.consumed);
  manifest.seed = random_state().seed;
  if (scheduler) manifest.schedule = scheduler->position();
  manifest.strategy = parts.parallel.plan().name;
  manifest.ranks = comm->size();
  manifest.block_bytes = options.block_bytes;
  for (const auto& [alias, first] : parts.model.aliases())
    manifest.aliases.emplace_back("model." + alias, "model." + first);
  std::sort(manifest.aliases.begin(), manifest.aliases.end());
  std::sort(manifest.progress.notes.begin(), manifest.progress.notes.end());
  // What goes wrong on this rank alone, it tells the others where they wait for it.
  try {
    std::vector<Piece> held = model_pieces(parts);
    for (Piece& piece : ema_pieces(parts))
      held.push_back(std::move(piece));
    for (Piece& piece : optimizer_pieces(parts))
      held.push_back(std::move(piece));
    work->own = own_pieces(held);
    if (options.asynchronous) take_snapshot(work->own);
  } catch (const CommunicationError&) {
    throw;
  } catch (const std::exception& error) {
    work->own.clear();
    work->early_error = error.what();
  }
  job = std::move(work);
  if (options.asynchronous) {
    running = true;
    job->stalled = seconds_now() - started;
    try {
      thread = std::thread([this] { run(*job); });
      return;
    } catch (const std::system_error&) {  // no thread to be had: the same without one
    }
  }
  run(*job);
  finish(true);
}

void Checkpointer::Impl::finish(bool may_throw) {
  if (thread.joinable()) thread.join();
  if (!job) return;
  const auto work = std::move(job);
  if (!work->untidy.empty()) {
    report(concat({"[checkpoint] step ", work->manifest.progress.step,
                   " is saved, but not all removed that it replaces: ", work->untidy}));
  }
  if (work->error.empty()) return;
  ++failed;
  const std::string line = concat(
      {"[checkpoint] expected to save step ", work->manifest.progress.step, ", got ", work->error});
  if (may_throw && work->verdict) throw CommunicationError(line);
  if (may_throw && options.on_failure == CheckpointOptions::OnFailure::fail)
    throw CheckpointError(line);
  report(line);
}

// On the saving thread, or on the caller's.
void Checkpointer::Impl::run(Job& work) noexcept {
  try {
    write(work);
    const std::lock_guard lock(mutex);
    newest = work.saved;
  } catch (const CommunicationError& error) {
    work.error = error.what();
    work.verdict = true;
  } catch (const std::exception& error) {
    work.error = error.what();
  }
  work.own.clear();
  running = false;
}

void Checkpointer::Impl::write(Job& work) {
  const std::string path = temporary(work);
  FileReport own;
  const auto failed_any = [&](const std::vector<std::string>& errors) {
    const std::string error = by_rank(errors);
    if (error.empty()) return;
    if (comm->rank() == 0) abandon(work);
    // Nobody begins another save before this one's traces are gone.
    comm->barrier();
    throw Error(error);
  };
  failed_any(run_together(*comm, [&] {
    if (!work.early_error.empty()) throw Error(work.early_error);
    options.storage->make_directory(path);
    own = write_rank_file(*options.storage, path, rank_file_name(comm->rank(), comm->size()),
                          work.own, options.block_bytes, work.manifest.progress.step);
  }));
  work.own.clear();
  const auto reports = share_texts(*comm, report_text(own));
  failed_any(run_together(*comm, [&] {
    if (comm->rank() == 0) commit(work, reports);
  }));
  const auto facts = share_texts(*comm, comm->rank() == 0 ? work.saved.digest : "");
  work.saved.digest = facts[0];
  work.saved.step = work.manifest.progress.step;
  work.saved.path = directory.path() + "/" + checkpoint_name(work.saved.step);
  for (const std::string& text : reports)
    work.saved.bytes += parse_report(text).file.bytes;
  work.saved.seconds = seconds_now() - work.started;
  work.saved.stalled = options.asynchronous ? work.stalled : work.saved.seconds;
}

// Rank 0, once every file is written and synced.
void Checkpointer::Impl::commit(Job& work, const std::vector<std::string>& reports) {
  CheckpointStorage& storage = *options.storage;
  const std::string path = temporary(work);
  std::vector<FileReport> parsed;
  for (const std::string& text : reports)
    parsed.push_back(parse_report(text));
  merge_reports(work.manifest, std::move(parsed));
  const auto there = storage.list(path);
  for (const StoredFile& file : work.manifest.files) {
    WEFT_CHECK(std::binary_search(there.begin(), there.end(), file.name), "checkpoint",
               "expected all ranks to share the file system of ", directory.path(), ", got no ",
               file.name, " there");
  }
  write_manifest(storage, path, work.manifest);
  storage.sync_directory(path);
  const std::string name = checkpoint_name(work.manifest.progress.step);
  const std::string target = directory.path() + "/" + name;
  const auto others = directory.list();
  const bool replaces = std::any_of(others.begin(), others.end(),
                                    [&](const StoredCheckpoint& c) { return c.name == name; });
  if (replaces) {
    storage.exchange(path, target);
  } else {
    storage.rename(path, target);
  }
  storage.sync_directory(directory.path());
  work.saved.digest = work.manifest.digest();
  // The checkpoint is whole, whatever becomes of those that it replaces.
  work.untidy = tidy([&] {
    if (replaces) remove_tree(storage, path);
    directory.thin(options.keep);
  });
}

void Checkpointer::Impl::abandon(const Job& work) noexcept {
  try {
    remove_tree(*options.storage, temporary(work));
  } catch (const std::exception&) {  // the first error is the one to tell; clean() will try again
  }
}

LoadedCheckpoint Checkpointer::Impl::load(const std::string& path) {
  finish(true);
  std::string text;
  throw_kind(run_together(*comm, [&] {
    tell_kind([&] {
      if (comm->rank() == 0) text = read_manifest_text(*options.storage, path);
    });
  }));
  text = broadcast_text(*comm, text);
  CheckpointReader reader(path, options.storage, parse_manifest(text, path + "/manifest.json"));
  std::optional<CheckpointLoad> loading;
  const Manifest& manifest = reader.manifest();
  // Nothing of this rank changes before all ranks know that all can.
  throw_kind(run_together(*comm, [&] {
    tell_kind([&] {
      reader.check_files(comm->rank(), comm->size());
      loading.emplace(parts, reader);
      if (!scheduler) return;
      WEFT_CHECK(manifest.schedule, "checkpoint", path,
                 ": expected the position of a schedule, got none");
      scheduler->check(*manifest.schedule);
    });
  }));
  throw_kind(run_together(*comm, [&] { tell_kind([&] { loading->read(); }); }));
  throw_kind(run_together(*comm, [&] { tell_kind([&] { loading->prepare(); }); }));
  loading->apply();
  if (scheduler) scheduler->seek(*manifest.schedule);
  RandomState& random = random_state();
  random = {manifest.seed, static_cast<uint64_t>(manifest.progress.step), 0, 0};
  return {path,           manifest.digest(), manifest.progress, manifest.strategy,
          manifest.ranks, manifest.seed};
}

std::optional<LoadedCheckpoint> Checkpointer::Impl::resume() {
  finish(true);
  std::string names;
  throw_kind(run_together(*comm, [&] {
    tell_kind([&] {
      if (comm->rank() != 0) return;
      for (const StoredCheckpoint& stored : directory.list())
        names = stored.name + "\n" + names;
    });
  }));
  names = broadcast_text(*comm, names);
  std::vector<std::string> passed_over;
  for (size_t at = 0; at < names.size();) {
    const size_t end = names.find('\n', at);
    const std::string path = directory.path() + "/" + names.substr(at, end - at);
    at = end + 1;
    try {
      LoadedCheckpoint loaded = load(path);
      loaded.passed_over = std::move(passed_over);
      return loaded;
    } catch (const DamagedCheckpoint& error) {
      passed_over.push_back(path + ": " + error.what());
    }
  }
  if (passed_over.empty()) return std::nullopt;
  std::string all;
  for (const std::string& line : passed_over)
    all += "\n  " + line;
  throw DamagedCheckpoint(concat({"[checkpoint] expected a whole checkpoint in ", directory.path(),
                                  ", got damaged ones only:", all}));
}

// ---- the public face ----

Checkpointer::Checkpointer(nn::Module& model, Parallel& parallel, CheckpointOptions options)
    : impl_(std::make_unique<Impl>(model, parallel, std::move(options))) {}
Checkpointer::~Checkpointer() = default;

void Checkpointer::add(optim::Optimizer& optimizer) {
  WEFT_CHECK(!impl_->parts.optimizer, "checkpoint", "expected one optimizer, got a second");
  impl_->parts.optimizer = &optimizer;
}
void Checkpointer::add(optim::Scheduler& scheduler) {
  WEFT_CHECK(!impl_->scheduler, "checkpoint", "expected one scheduler, got a second");
  impl_->scheduler = &scheduler;
}
void Checkpointer::add(const optim::Ema& averages) {
  WEFT_CHECK(!impl_->parts.ema, "checkpoint", "expected one set of moving averages, got a second");
  impl_->parts.ema = &averages;
  for (NamedTensor& named : averages.replicated())
    impl_->parts.tensors.push_back({"ema_" + named.name, named.tensor});
}
void Checkpointer::add(std::vector<NamedTensor> tensors) {
  for (NamedTensor& named : tensors)
    impl_->parts.tensors.push_back(std::move(named));
}
void Checkpointer::save(const TrainingProgress& progress) {
  impl_->save(progress);
}
void Checkpointer::wait() {
  impl_->finish(true);
}
bool Checkpointer::busy() const {
  return impl_->running;
}
std::optional<SavedCheckpoint> Checkpointer::saved() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->newest;
}
int64_t Checkpointer::failures() const {
  return impl_->failed;
}
LoadedCheckpoint Checkpointer::load(const std::string& path) {
  return impl_->load(path);
}
std::optional<LoadedCheckpoint> Checkpointer::resume() {
  return impl_->resume();
}
const CheckpointDirectory& Checkpointer::directory() const {
  return impl_->directory;
}

}  // namespace weft::dist
