#include "dist/detail/first_loss.h"

#include "core/crc32c.h"
#include "core/error.h"
#include "core/parallel.h"
#include "dist/detail/run_folder.h"
#include "dist/detail/step_log.h"

#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace weft::dist::detail {
namespace {

constexpr const char* kFirstLoss = "first_loss.json";
constexpr const char* kParameters = "run.json";
constexpr const char* kSince = "since_step";

std::string processor_name() {
  std::FILE* file = std::fopen("/proc/cpuinfo", "re");
  if (!file) return {};
  std::string name;
  char line[256];
  while (name.empty() && std::fgets(line, sizeof line, file)) {
    const char* const colon = std::strchr(line, ':');
    if (!colon || std::strncmp(line, "model name", 10) != 0) continue;
    name = colon + 1 + std::strspn(colon + 1, " ");
    name.resize(name.find_last_not_of('\n') + 1);
  }
  std::fclose(file);
  return name;
}

// Of the identifiers that linkers give to this program and to each library that it has loaded, but
// for the one of the kernel.
std::string build_name() {
  uint32_t crc = 0;
  const auto add = [](dl_phdr_info* object, size_t, void* sum) {
    if (std::strncmp(object->dlpi_name, "linux-vdso", 10) == 0) return 0;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = object->dlpi_phdr[i];
      if (part.p_type != PT_NOTE) continue;
      const size_t align = part.p_align == 8 ? 8 : 4;
      const auto end_of = [align](size_t at) { return (at + align - 1) / align * align; };
      const auto* const notes = reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr);
      ElfW(Nhdr) note;
      for (size_t at = 0; at + sizeof note <= part.p_memsz;) {
        std::memcpy(&note, notes + at, sizeof note);
        const size_t id = end_of(at + sizeof note + note.n_namesz);
        at = end_of(id + note.n_descsz);
        if (note.n_type != NT_GNU_BUILD_ID || id + note.n_descsz > part.p_memsz) continue;
        auto& so_far = *static_cast<uint32_t*>(sum);
        so_far = crc32c(notes + id, note.n_descsz, so_far);
      }
    }
    return 0;
  };
  dl_iterate_phdr(add, &crc);
  char name[9];
  std::snprintf(name, sizeof name, "%08x", crc);
  return name;
}

// An object; null where there is none that can be read.
Json read_parameters(const std::string& path) {
  const auto text = read_file(path);
  const auto json = text ? Json::try_parse(*text) : std::nullopt;
  return json && json->is_object() ? *json : Json();
}

struct Difference {
  std::string name;
  std::string before;
  std::string now;
};

std::vector<Difference> differences(const Json& before, const Json& now) {
  std::vector<Difference> found;
  if (!before.is_object()) return found;
  for (const auto& [name, value] : now.members()) {
    const Json* const old = before.find(name);
    if (old && *old == value) continue;
    found.push_back({name, old ? old->dump() : "none", value.dump()});
  }
  return found;
}

}  // namespace

FirstLoss::FirstLoss(std::string run, std::string name, const TrainConfig& train, int ranks)
    : run_(std::move(run)), name_(std::move(name)), parameters_(Json::object()) {
  if (ranks > 0) parameters_["ranks"] = ranks;
  parameters_["threads"] = num_threads();
  parameters_["processor"] = processor_name();
  parameters_["build"] = build_name();
  for (const NamedValue& value : train.values)
    std::visit([&](const auto& v) { parameters_[value.name] = v; }, value.value);
}

void FirstLoss::expect(int64_t step) {
  const std::string line = line_after(path("metrics.jsonl"), step);
  // Where it has been cut off already, an earlier attempt has kept it.
  if (!line.empty()) write_file_whole(path(kFirstLoss), line + "\n");
  for (const Difference& other : differences(read_parameters(path(kParameters)), parameters_)) {
    std::fprintf(stderr, "%s: the run goes on with %s %s, before %s\n", name_.c_str(),
                 other.name.c_str(), other.now.c_str(), other.before.c_str());
  }
}

std::string FirstLoss::hold(int64_t step, const std::string& line) {
  const Json before = read_parameters(path(kParameters));
  const auto others = differences(before, parameters_);
  const Json* const since = before.is_object() ? before.find(kSince) : nullptr;
  const bool same = before.is_object() && others.empty() &&
                    (!since || !since->is_integer() || step >= since->get<int64_t>());

  std::string expected = read_file(path(kFirstLoss)).value_or("");
  expected.resize(expected.find_last_not_of('\n') + 1);
  if (step_of_line(expected) == step) {
    const std::string bits = member_of_line(expected, "loss_bits");
    const std::string got = member_of_line(line, "loss_bits");
    if (bits != got && same) {
      return concat({"[resume] expected the loss of step ", step, " to be what it was, bits ", bits,
                     ", got ", got, "; without ", path(kFirstLoss),
                     " the run goes on all the same"});
    }
    if (bits != got) {
      std::string names;
      for (const Difference& other : others)
        names += (names.empty() ? "" : ", ") + other.name;
      std::fprintf(stderr, "%s: the loss of step %lld was %s and is now %s, with other %s\n",
                   name_.c_str(), static_cast<long long>(step),
                   member_of_line(expected, "loss").c_str(), member_of_line(line, "loss").c_str(),
                   names.empty() ? "parameters" : names.c_str());
    }
  }
  // In this order: whoever is killed in between has nothing that a loss could be held against
  // wrongly.
  unlink(path(kFirstLoss).c_str());
  if (!same) {
    Json now = parameters_;
    now[kSince] = step;
    write_file_whole(path(kParameters), now.dump(2) + "\n");
  }
  return {};
}

}  // namespace weft::dist::detail
