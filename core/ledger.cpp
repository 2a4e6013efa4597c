#include "core/ledger.h"

#include <cstdio>

namespace weft {
namespace {

constexpr std::array<const char*, kCategories> kCategoryNames = {
    "parameters", "gradients", "optimizer", "activations", "communication", "data", "other"};

thread_local Ledger* t_ledger = nullptr;
thread_local Category t_category = Category::activations;

}  // namespace

std::string to_string(Category category) {
  return kCategoryNames[static_cast<size_t>(category)];
}

void Ledger::Count::raise_peak(int64_t now) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

void Ledger::check_room(Category category, int64_t bytes) const {
  const int64_t most = limit();
  if (most > 0 && bytes > most - current_total()) {
    throw OutOfMemory(
        concat({"[memory] expected at most ", format_bytes(most),
                " on this rank, got a request of ", format_bytes(bytes), " for ", category,
                " on top of ", format_bytes(current_total()), "\n", report()}));
  }
}

void Ledger::charge(Category category, int64_t bytes) {
  int64_t before = total_.current.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t most = limit();
    if (most > 0 && bytes > most - before) {
      check_room(category, bytes);  // passes if another thread has given memory back meanwhile
      before = total_.current.load(std::memory_order_relaxed);
    } else if (total_.current.compare_exchange_weak(before, before + bytes,
                                                    std::memory_order_relaxed)) {
      break;
    }
  }
  total_.raise_peak(before + bytes);
  slot(category).add(bytes);
}

void Ledger::credit(Category category, int64_t bytes) {
  total_.current.fetch_sub(bytes, std::memory_order_relaxed);
  slot(category).current.fetch_sub(bytes, std::memory_order_relaxed);
}

void Ledger::move(Category from, Category to, int64_t bytes) {
  slot(from).current.fetch_sub(bytes, std::memory_order_relaxed);
  slot(to).add(bytes);
}

void Ledger::reset_peaks() {
  for (Count& count : counts_)
    count.peak.store(count.current.load());
  total_.peak.store(total_.current.load());
}

std::string Ledger::report() const {
  std::string text = "category            current          peak\n";
  char line[96];
  const auto row = [&](const char* name, const Count& count) {
    std::snprintf(line, sizeof line, "%-14s %12s  %12s\n", name,
                  format_bytes(count.current.load()).c_str(),
                  format_bytes(count.peak.load()).c_str());
    text += line;
  };
  for (int i = 0; i < kCategories; ++i)
    row(kCategoryNames[static_cast<size_t>(i)], counts_[static_cast<size_t>(i)]);
  row("total", total_);
  return text;
}

Ledger& current_ledger() {
  // Never destroyed: tensors with static lifetime may be freed after this function's statics would
  // be.
  static Ledger* process = new Ledger;
  return t_ledger ? *t_ledger : *process;
}

LedgerScope::LedgerScope(Ledger& ledger) : previous_(t_ledger) {
  t_ledger = &ledger;
}
LedgerScope::~LedgerScope() {
  t_ledger = previous_;
}

Category current_category() {
  return t_category;
}

CategoryScope::CategoryScope(Category category) : previous_(t_category) {
  t_category = category;
}
CategoryScope::~CategoryScope() {
  t_category = previous_;
}

std::string format_bytes(int64_t bytes) {
  constexpr std::array<const char*, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

}  // namespace weft
