#include "dist/detail/base.h"

#include "core/parallel.h"

#include <algorithm>
#include <cstring>
#include <exception>

namespace weft::dist {

void Handle::wait() {
  if (!state_) return;
  if (!state_->done.load(std::memory_order_acquire)) {
    const double start = clock_seconds();
    state_->done.wait(false, std::memory_order_acquire);
    state_->recorder->add_waited(start, clock_seconds());
  }
  if (state_->error) std::rethrow_exception(state_->error);
}

bool Handle::done() const {
  return !state_ || state_->done.load(std::memory_order_acquire);
}

namespace detail {

CommunicatorBase::CommunicatorBase(int rank, int size, std::string name,
                                   std::shared_ptr<Recorder> recorder, CommunicatorOptions options)
    : rank_(rank),
      size_(size),
      name_(std::move(name)),
      recorder_(std::move(recorder)),
      options_(options),
      exceptions_(std::uncaught_exceptions()),
      sends_(static_cast<size_t>(size), 0),
      receives_(static_cast<size_t>(size), 0) {}

CommunicatorBase::~CommunicatorBase() = default;

void CommunicatorBase::close() {
  if (std::uncaught_exceptions() > exceptions_) abort("");
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  arrived_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Ref<Storage> CommunicatorBase::allocate(int64_t bytes) {
  WEFT_CHECK(bytes >= 0, "allocate", "expected at least 0 bytes, got ", bytes);
  Ref<Storage> storage = Storage::allocate(bytes);
  std::memset(storage->data(), 0, static_cast<size_t>(bytes));
  return storage;
}

void CommunicatorBase::check_whole() const {
  if (!broken_.load(std::memory_order_acquire)) return;
  if (contract_error_) throw ContractError(verdict_);
  throw CommunicationError(verdict_);
}

double CommunicatorBase::number(Handle::State& job, bool starts_now) {
  const auto peer = static_cast<size_t>(job.call.root);
  switch (job.call.collective) {
    case Collective::send:
      job.sequence = sends_[peer]++;
      break;
    case Collective::recv:
      job.sequence = receives_[peer]++;
      break;
    default:
      job.sequence = collectives_++;
  }
  Event event;
  event.collective = job.call.collective;
  event.op = job.call.op;
  event.dtype = dtype_of_call(job.call);
  event.sequence = job.sequence;
  event.count = count_of(job.call);
  event.sent_bytes = sent_bytes_of(job.call, rank_, size_);
  event.queued = clock_seconds();
  if (starts_now) event.start = event.queued;
  event.communicator = name_;
  event.unit = job.call.tag.unit.substr(0, Tag::kLength);
  event.begin = job.call.tag.begin;
  event.tag_end = job.call.tag.end;
  const double now = event.queued;
  job.event = recorder_->begin(std::move(event));
  return now;
}

double CommunicatorBase::perform(Handle::State& job, Waiting waiting) {
  check_whole();
  try {
    execute(job.call, job.sequence, waiting);
  } catch (const CommunicationError& error) {
    verdict_ = error.what();
    contract_error_ = dynamic_cast<const ContractError*>(&error) != nullptr;
    broken_.store(true, std::memory_order_release);
    throw;
  } catch (const std::exception& error) {
    // Whatever else goes wrong in here, the others must not wait for this rank.
    abort(error.what());
    verdict_ = error.what();
    broken_.store(true, std::memory_order_release);
    throw;
  }
  return recorder_->ended(job.event);
}

void CommunicatorBase::run(const Call& call) {
  check_call(call, rank_, size_);
  check_whole();
  if (pending_.load(std::memory_order_acquire) == 0) {
    Handle::State job;
    job.call = call;
    const double start = number(job, true);
    recorder_->add_waited(start, perform(job, Waiting::eager));
  } else {
    Handle(enqueue(call)).wait();
  }
}

Handle CommunicatorBase::start(const Call& call) {
  check_call(call, rank_, size_);
  check_whole();
  return Handle(enqueue(call));
}

std::shared_ptr<Handle::State> CommunicatorBase::enqueue(const Call& call) {
  auto job = std::make_shared<Handle::State>();
  job->call = call;
  job->unit = call.tag.unit;
  job->call.tag.unit = job->unit;
  job->threads = num_threads();
  job->category = current_category();
  job->recorder = recorder_;
  number(*job, false);
  pending_.fetch_add(1, std::memory_order_relaxed);
  if (!thread_.joinable()) {
    ledger_ = &current_ledger();
    thread_ = std::thread([this] { serve(); });
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(job);
  }
  arrived_.notify_one();
  last_ = job;
  return job;
}

void CommunicatorBase::serve() {
  const LedgerScope ledger(*ledger_);
  for (;;) {
    std::shared_ptr<Handle::State> job;
    {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    const CategoryScope category(job->category);
    set_num_threads(job->threads);
    try {
      recorder_->started(job->event);
      perform(*job, Waiting::patient);
    } catch (...) {
      job->error = std::current_exception();
    }
    pending_.fetch_sub(1, std::memory_order_release);
    job->done.store(true, std::memory_order_release);
    job->done.notify_all();
  }
}

void CommunicatorBase::wait_all() {
  Handle(std::exchange(last_, nullptr)).wait();
}

std::unique_ptr<Communicator> CommunicatorBase::split(int color, int key,
                                                      const std::string& label) {
  WEFT_CHECK(!label.empty(), "split", "expected a label, got an empty one");
  struct Choice {
    int64_t color, key;
  };
  const auto size = static_cast<size_t>(size_);
  const Choice own{color, key};
  std::vector<Choice> all(size);
  const auto exchange = [&](const void* in, void* out, int64_t words) {
    run({.collective = Collective::split,
         .in = {const_cast<void*>(in), words, i64},
         .out = {out, words * size_, i64},
         .tag = {.unit = label}});
  };
  exchange(&own, all.data(), 2);

  std::vector<int> members;
  for (int r = 0; r < size_; ++r) {
    if (color >= 0 && all[static_cast<size_t>(r)].color == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return all[static_cast<size_t>(a)].key < all[static_cast<size_t>(b)].key;
  });
  int64_t prepared = 0;
  if (!members.empty() && members[0] == rank_)
    prepared = static_cast<int64_t>(prepare_group(members));
  std::vector<int64_t> everyones(size);
  exchange(&prepared, everyones.data(), 1);
  if (members.empty()) return nullptr;
  const auto index = std::find(members.begin(), members.end(), rank_) - members.begin();
  return join_group(members, static_cast<int>(index), concat({name_, "/", label, "[", color, "]"}),
                    static_cast<uint64_t>(everyones[static_cast<size_t>(members[0])]));
}

}  // namespace detail
}  // namespace weft::dist
