#include "dist/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

namespace weft::dist {
namespace {

constexpr int kCompute = 0;
constexpr int kWaiting = 1;
constexpr int kFirstCommunicator = 2;

std::string quoted_label(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + '"';
}

std::string microseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", seconds * 1e6);
  return text;
}

// An event of Chrome's trace event format, open for more members.
std::string complete_event(const std::string& name, int rank, int track, double begin, double end) {
  return concat({R"({"ph":"X","pid":)", rank, R"(,"tid":)", track, R"(,"ts":)", microseconds(begin),
                 R"(,"dur":)", microseconds(std::max(0.0, end - begin)), R"(,"name":)",
                 quoted_label(name)});
}

std::string named(const char* what, int rank, int track, const std::string& name) {
  return concat({R"({"ph":"M","pid":)", rank, R"(,"tid":)", track, R"(,"name":")", what,
                 R"(","args":{"name":)", quoted_label(name), "}}"});
}

// Closes the file and removes what was not renamed.
struct PartialFile {
  std::string path;
  std::FILE* file = nullptr;
  ~PartialFile() {
    if (!file) return;
    std::fclose(file);
    unlink(path.c_str());
  }
};

}  // namespace

struct Trace::Log {
  struct Span {
    std::string name;
    int track;
    double begin, end;
  };

  explicit Log(size_t most) : capacity(most) {}

  bool has_room() {
    if (spans.size() + events.size() < capacity) return true;
    ++left_out;
    return false;
  }
  void add(const std::string& name, int track, double begin, double end) {
    const std::lock_guard lock(mutex);
    if (has_room()) spans.push_back({name, track, begin, end});
  }
  void add(const Event& event) {
    const std::lock_guard lock(mutex);
    if (has_room()) events.push_back(event);
  }
  // What this rank has to say, events separated by commas.
  std::string text(int rank, double origin);

  const size_t capacity;
  std::mutex mutex;
  std::vector<Span> spans;
  std::vector<Event> events;
  int64_t left_out = 0;
};

std::string Trace::Log::text(int rank, double origin) {
  const std::lock_guard lock(mutex);
  std::string all = named("process_name", rank, 0, concat({"rank ", rank}));
  const auto append = [&](const std::string& event) { all += ",\n" + event; };
  append(named("thread_name", rank, kCompute, "compute"));
  append(named("thread_name", rank, kWaiting, "waiting"));
  for (const Span& span : spans) {
    append(complete_event(span.name, rank, span.track, span.begin - origin, span.end - origin) +
           "}");
  }
  std::vector<std::string> communicators;
  for (const Event& event : events) {
    const auto known = std::find(communicators.begin(), communicators.end(), event.communicator);
    const int track = kFirstCommunicator + static_cast<int>(known - communicators.begin());
    if (known == communicators.end()) {
      communicators.push_back(event.communicator);
      append(named("thread_name", rank, track, "communication: " + event.communicator));
    }
    std::string name = name_of(event.collective);
    if (!event.unit.empty()) name += " " + event.unit;
    append(complete_event(name, rank, track, event.start - origin, event.end - origin) +
           concat({R"(,"cat":"communication","args":{"collective":")", name_of(event.collective),
                   R"(","sequence":)", event.sequence, R"(,"count":)", event.count, R"(,"dtype":")",
                   event.dtype, R"(","sent_bytes":)", event.sent_bytes, R"(,"unit":)",
                   quoted_label(event.unit), R"(,"queued_us":)",
                   microseconds(event.queued - origin), "}}"}));
  }
  if (left_out > 0)
    append(complete_event(concat({left_out, " later events left out"}), rank, kCompute,
                          clock_seconds() - origin, clock_seconds() - origin) +
           "}");
  return all;
}

Trace::Trace(Communicator& comm, size_t capacity)
    : comm_(comm), log_(std::make_shared<Log>(capacity)) {
  comm.recorder().set_listener([log = log_](const Event& event) { log->add(event); });
  comm.recorder().set_wait_listener(
      [log = log_](double begin, double end) { log->add("wait", kWaiting, begin, end); });
}

Trace::~Trace() {
  comm_.recorder().set_listener({});
  comm_.recorder().set_wait_listener({});
}

void Trace::span(const std::string& what, double begin, double end) {
  log_->add(what, kCompute, begin, end);
}

// One rank's text at a time, so that rank 0 needs no more memory than any other.
void Trace::write(const std::string& path) {
  double origin = clock_seconds();
  {
    const std::lock_guard lock(log_->mutex);
    for (const auto& span : log_->spans)
      origin = std::min(origin, span.begin);
    for (const Event& event : log_->events)
      origin = std::min(origin, event.start);
  }
  comm_.all_reduce({&origin, 1, f64}, ReduceOp::min, {"trace"});
  std::string text = log_->text(comm_.rank(), origin);
  if (comm_.rank() != 0) {
    auto bytes = static_cast<int64_t>(text.size());
    comm_.send({&bytes, 1, i64}, 0, {"trace"});
    comm_.send({text.data(), bytes, u8}, 0, {"trace"});
    return;
  }
  PartialFile partial{path + ".partial"};
  partial.file = std::fopen(partial.path.c_str(), "we");
  bool written = partial.file != nullptr;
  const auto put = [&](const std::string& part) {
    written = written && std::fwrite(part.data(), 1, part.size(), partial.file) == part.size();
  };
  put("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + text);
  for (int rank = 1; rank < comm_.size(); ++rank) {
    int64_t bytes = 0;
    comm_.recv({&bytes, 1, i64}, rank, {"trace"});
    text.resize(static_cast<size_t>(bytes));
    comm_.recv({text.data(), bytes, u8}, rank, {"trace"});
    put(",\n" + text);
  }
  put("\n]}\n");
  written = written && std::fflush(partial.file) == 0;
  written = written && std::rename(partial.path.c_str(), path.c_str()) == 0;
  WEFT_CHECK(written, "trace", "expected to write ", path, ", which failed");
  std::fclose(std::exchange(partial.file, nullptr));
}

}  // namespace weft::dist
