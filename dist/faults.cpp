#include "dist/faults.h"

#include "core/error.h"
#include "core/random.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

namespace weft::dist {
namespace {

struct ActionName {
  const char* name;
  FaultAction action;
};
constexpr ActionName kActions[] = {{"kill", FaultAction::kill},   {"stop", FaultAction::stop},
                                   {"delay", FaultAction::delay}, {"throw", FaultAction::fail},
                                   {"leak", FaultAction::leak},   {"fill", FaultAction::fill},
                                   {"flip", FaultAction::flip},   {"lose", FaultAction::lose}};

bool is_phase(std::string_view text) {
  return std::any_of(kFaultPhases.begin(), kFaultPhases.end(),
                     [&](const char* phase) { return text == phase; });
}

// Phases of a save's own thread, which come by several times in one save.
bool of_storage(std::string_view phase) {
  return phase == "open" || phase == "write" || phase == "fsync" || phase == "rename" ||
         phase == "remove";
}

std::string phases() {
  std::string list;
  for (const char* phase : kFaultPhases)
    list += (list.empty() ? "" : ", ") + std::string(phase);
  return list;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

// The pieces between separators.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const size_t end = std::min(text.find(separator), text.size());
    pieces.push_back(trimmed(text.substr(0, end)));
    if (end == text.size()) return pieces;
    text.remove_prefix(end + 1);
  }
}

// One fault's text, for its messages.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Fault parse() {
    const size_t colon = std::min(text_.find(':'), text_.size());
    parse_action(trimmed(text_.substr(0, colon)));
    if (colon < text_.size()) {
      for (const std::string_view pair : split(text_.substr(colon + 1), ','))
        parse_pair(pair);
    }
    check();
    return fault_;
  }

 private:
  [[noreturn]] void fail(const std::string& expected, std::string_view got) const {
    throw_error("inject", {"expected ", expected, ", got '", got, "' in '", text_, "'"});
  }

  void parse_action(std::string_view name) {
    std::string list;
    for (const ActionName& known : kActions) {
      if (name == known.name) {
        fault_.action = known.action;
        return;
      }
      list += (list.empty() ? "" : ", ") + std::string(known.name);
    }
    fail("one of " + list, name);
  }

  int64_t number(std::string_view value, int64_t low, const std::string& what) const {
    int64_t result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || result < low)
      fail(what + " of at least " + std::to_string(low), value);
    return result;
  }

  void parse_pair(std::string_view pair) {
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) fail("key=value", pair);
    const std::string key(trimmed(pair.substr(0, equals)));
    const std::string_view value = trimmed(pair.substr(equals + 1));
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end()) fail(key + " once", pair);
    seen_.push_back(key);
    if (key == "phase") {
      if (!is_phase(value)) fail("a phase (" + phases() + ")", value);
      fault_.phase = value;
    } else if (key == "step") {
      const size_t dash = std::min(value.find('-'), value.size());
      fault_.first_step = number(value.substr(0, dash), 0, "a step");
      fault_.last_step = dash == value.size()
                             ? fault_.first_step
                             : number(value.substr(dash + 1), fault_.first_step, "a last step");
      fault_.step_given = true;
    } else if (key == "rank") {
      fault_.rank = number(value, 0, "a rank");
    } else if (key == "call") {
      fault_.call = number(value, 1, "a number of the call");
    } else if (key == "attempt") {
      fault_.attempt = value == "any" ? 0 : number(value, 1, "'any' or an attempt");
    } else if (key == "times") {
      fault_.times = number(value, 1, "a number");
    } else if (key == "seed") {
      fault_.seed = static_cast<uint64_t>(number(value, 0, "a seed"));
      fault_.seeded = true;
    } else if (key == "steps") {
      fault_.steps = number(value, 1, "a number of steps");
    } else if (key == "seconds") {
      const std::string text(value);
      char* end = nullptr;
      fault_.seconds = std::strtod(text.c_str(), &end);
      if (text.empty() || *end || !(fault_.seconds >= 0) || fault_.seconds > 1e6)
        fail("seconds in [0, 1e6]", value);
    } else if (key == "bytes") {
      fault_.bytes = number(value, 1, "bytes");
    } else if (key == "target") {
      if (value == "rank") {
        fault_.target = FaultTarget::rank;
      } else if (value == "supervisor") {
        fault_.target = FaultTarget::supervisor;
      } else if (value == "all") {
        fault_.target = FaultTarget::all;
      } else {
        fail("target=rank, supervisor or all", value);
      }
    } else {
      fail("one of phase, step, rank, call, attempt, times, seed, steps, seconds, bytes, target",
           key);
    }
  }

  bool given(const char* key) const {
    return std::find(seen_.begin(), seen_.end(), key) != seen_.end();
  }
  // A key that would change nothing is a mistake.
  void only_for(const char* key, bool fits, const char* what) const {
    if (given(key) && !fits) fail(std::string(key) + " only with " + what, text_);
  }

  void check() {
    const FaultAction action = fault_.action;
    only_for("seconds", action == FaultAction::delay, "delay");
    only_for("bytes", action == FaultAction::leak, "leak");
    only_for("target", action == FaultAction::kill, "kill");
    only_for("steps", fault_.seeded && !fault_.step_given, "a seed and no step");
    const bool stored = action == FaultAction::fill || action == FaultAction::flip;
    if (stored && fault_.phase.empty()) fault_.phase = "write";
    if (action == FaultAction::fill && !of_storage(fault_.phase))
      fail("phase open, write, fsync, rename or remove for fill", fault_.phase);
    if (action == FaultAction::flip && fault_.phase != "write")
      fail("phase write for flip", fault_.phase);
    if (fault_.phase.empty() && !fault_.seeded) fail("a phase (" + phases() + ") or a seed", text_);
    const bool every =
        action == FaultAction::delay || action == FaultAction::leak || action == FaultAction::fill;
    if (fault_.times < 0 && !every) fault_.times = 1;
  }

  std::string_view text_;
  Fault fault_;
  std::vector<std::string> seen_;
};

const char* name_of(FaultAction action) {
  for (const ActionName& known : kActions) {
    if (action == known.action) return known.name;
  }
  return "";
}

// Memory that stays: written to, so that the system really gives it.
void leak(int64_t bytes) {
  auto* memory = static_cast<volatile char*>(std::malloc(static_cast<size_t>(bytes)));
  for (int64_t i = 0; memory && i < bytes; i += 1024)
    memory[i] = 1;
}

}  // namespace

std::vector<Fault> parse_faults(const std::string& spec) {
  std::vector<Fault> faults;
  if (trimmed(spec).empty()) return faults;
  for (const std::string_view text : split(spec, ';'))
    faults.push_back(Parser(text).parse());
  return faults;
}

Fault drawn(Fault fault, int ranks) {
  if (!fault.seeded) return fault;
  const RandomKey key{.seed = fault.seed, .stream = 0x6661756c};
  // Each choice has a draw of its own, so that what is given does not change the others.
  const auto draw = [&](uint64_t index, uint64_t bound) {
    return static_cast<int64_t>(random_below(key, index, bound));
  };
  if (fault.phase.empty()) {
    // Not start and load, in which there is no step.
    constexpr size_t kFirst = 2;
    fault.phase = kFaultPhases[kFirst + static_cast<size_t>(draw(0, kFaultPhases.size() - kFirst))];
  }
  const bool stored = of_storage(fault.phase);
  if (!fault.step_given) {
    fault.first_step = 1 + draw(1, static_cast<uint64_t>(fault.steps));
    const bool saved = stored || fault.phase == "snapshot" || fault.phase == "report" ||
                       fault.phase == "evaluation";
    fault.last_step = saved ? INT64_MAX : fault.first_step;
  }
  if (fault.rank < 0) fault.rank = draw(2, static_cast<uint64_t>(ranks));
  if (fault.call == 0 && stored) fault.call = 1 + draw(3, 4);
  return fault;
}

std::string describe(const Fault& fault) {
  std::string text = name_of(fault.action);
  if (fault.target == FaultTarget::supervisor) text += " of the supervisor";
  if (fault.target == FaultTarget::all) text += " of all";
  text += " in " + (fault.phase.empty() ? "a phase to be drawn" : fault.phase);
  if (fault.call > 0) text += " #" + std::to_string(fault.call);
  if (fault.first_step == fault.last_step) {
    text += " of step " + std::to_string(fault.first_step);
  } else if (fault.first_step > 0) {
    text += " from step " + std::to_string(fault.first_step) + " on";
  }
  if (fault.rank >= 0) text += " on rank " + std::to_string(fault.rank);
  return text;
}

struct Faults::State {
  struct Armed {
    Fault fault;
    int64_t struck = 0;
    int64_t calls = 0;  // in `step`
    int64_t step = -1;
  };
  std::mutex mutex;
  std::vector<Armed> armed;
  int rank = 0;
  void (*lose)(void*) = nullptr;
  void* context = nullptr;

  void strike(const Fault& fault, const char* phase, int64_t step, Struck& struck) const {
    switch (fault.action) {
      case FaultAction::lose:
        if (lose) lose(context);
        [[fallthrough]];
      case FaultAction::kill: {
        // Without a launcher this process is its own supervisor.
        const bool launched = std::getenv("WEFT_JOB") != nullptr;
        if (fault.target != FaultTarget::rank && launched) kill(getppid(), SIGKILL);
        if (fault.target != FaultTarget::supervisor || !launched) kill(getpid(), SIGKILL);
        // SIGKILL comes to this process too, by the launcher's guardian.
        for (;;)
          pause();
      }
      case FaultAction::stop:
        raise(SIGSTOP);
        break;
      case FaultAction::delay:
        std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
        break;
      case FaultAction::fail:
        throw_error("inject", {"expected no fault, got a throw in ", phase, " of step ", step,
                               " on rank ", rank});
      case FaultAction::leak:
        leak(fault.bytes);
        break;
      case FaultAction::fill:
        struck.fill = true;
        break;
      case FaultAction::flip:
        struck.flip = true;
        break;
    }
  }
};

Faults::Faults(const std::vector<Fault>& faults, int rank, int ranks, int64_t attempt) {
  for (const Fault& given : faults) {
    const Fault fault = drawn(given, ranks);
    if ((fault.rank >= 0 && fault.rank != rank) || (fault.attempt != 0 && fault.attempt != attempt))
      continue;
    if (!state_) state_ = std::make_shared<State>();
    state_->rank = rank;
    state_->armed.push_back({fault});
  }
}

bool Faults::any(const char* phase) const {
  return state_ && std::any_of(state_->armed.begin(), state_->armed.end(),
                               [&](const State::Armed& a) { return a.fault.phase == phase; });
}

Faults::Struck Faults::at(const char* phase, int64_t step) const {
  Struck struck;
  if (!state_) return struck;
  std::vector<Fault> due;
  {
    const std::lock_guard lock(state_->mutex);
    for (State::Armed& armed : state_->armed) {
      const Fault& fault = armed.fault;
      if (fault.phase != phase || step < fault.first_step || step > fault.last_step) continue;
      if (std::exchange(armed.step, step) != step) armed.calls = 0;
      if (fault.call > 0 && ++armed.calls != fault.call) continue;
      if (fault.times >= 0 && armed.struck >= fault.times) continue;
      ++armed.struck;
      due.push_back(fault);
    }
  }
  for (const Fault& fault : due)
    state_->strike(fault, phase, step, struck);
  return struck;
}

void Faults::set_lose(void (*lose)(void* context), void* context) {
  if (!state_) return;
  state_->lose = lose;
  state_->context = context;
}

}  // namespace weft::dist
