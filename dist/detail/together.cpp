#include "dist/detail/together.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace weft::dist::detail {
namespace {

// How long a rank may be at work before it says so: well below any sensible timeout.
constexpr auto kRound = std::chrono::milliseconds(50);

Elements bytes_of(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), static_cast<int64_t>(text.size()), u8};
}

// Tells the other ranks, while this one is at work, that it is, and ends when all are done.
class Watch {
 public:
  Watch(Communicator& comm, const Function<void()>& alive) : comm_(comm), alive_(alive) {
    if (comm.size() > 1 || alive) thread_ = std::thread([this] { keep(); });
  }
  ~Watch() { finish(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // This rank is done; returns when all are.
  void end() {
    finish();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void finish() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  void keep() noexcept {
    try {
      std::vector<int64_t> states(static_cast<size_t>(comm_.size()));
      do {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kRound, [this] { return done_; });
        int64_t done = done_ ? 1 : 0;
        lock.unlock();
        if (alive_) alive_();
        comm_.all_gather({&done, 1, i64}, {states.data(), comm_.size(), i64}, {"checkpoint"});
      } while (std::find(states.begin(), states.end(), 0) != states.end());
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  Communicator& comm_;
  const Function<void()>& alive_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace

std::vector<std::string> share_texts(Communicator& comm, const std::string& text) {
  const auto ranks = static_cast<size_t>(comm.size());
  auto length = static_cast<int64_t>(text.size());
  std::vector<int64_t> lengths(ranks);
  comm.all_gather({&length, 1, i64}, {lengths.data(), comm.size(), i64}, {"checkpoint"});
  const auto longest = static_cast<size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::string own = text;
  own.resize(longest);
  std::string all(longest * ranks, '\0');
  if (longest > 0) comm.all_gather(bytes_of(own), bytes_of(all), {"checkpoint"});
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < ranks; ++rank)
    texts.push_back(all.substr(rank * longest, static_cast<size_t>(lengths[rank])));
  return texts;
}

std::string broadcast_text(Communicator& comm, const std::string& text, int root) {
  auto length = static_cast<int64_t>(text.size());
  comm.broadcast({&length, 1, i64}, root, {"checkpoint"});
  std::string result = text;
  result.resize(static_cast<size_t>(length));
  if (length > 0) comm.broadcast(bytes_of(result), root, {"checkpoint"});
  return result;
}

std::vector<std::string> run_together(Communicator& comm, const Function<void()>& job,
                                      const Function<void()>& alive) {
  std::string error;
  Watch watch(comm, alive);
  try {
    job();
  } catch (const std::exception& caught) {
    error = caught.what();
    if (error.empty()) error = "an error without a text";
  }
  watch.end();
  return share_texts(comm, error);
}

std::string by_rank(const std::vector<std::string>& texts) {
  if (std::all_of(texts.begin(), texts.end(), [&](const auto& t) { return t == texts[0]; }))
    return texts[0];
  std::string all;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    all += concat({all.empty() ? "" : "; ", "rank ", rank, ": ", texts[rank]});
  }
  return all;
}

}  // namespace weft::dist::detail
