// What a run leaves behind as result.json.
#include "apps/common/run_directory.h"
#include "core/json.h"
#include "core/ledger.h"

#include <algorithm>

namespace weft::app {
namespace {

Json ledger_bytes(int64_t (Ledger::*count)(Category) const) {
  Json bytes = Json::object();
  for (int i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    bytes[to_string(category)] = (current_ledger().*count)(category);
  }
  return bytes;
}

Json this_rank(const RunResult& result, const dist::StepClock& clock,
               const dist::Communicator& comm) {
  Json seconds = Json::object();
  for (size_t i = 0; i < dist::kPhases; ++i)
    seconds[dist::kPhaseNames[i]] = clock.seconds(static_cast<dist::Phase>(i));
  Json peak = ledger_bytes(&Ledger::peak);
  peak["total"] = current_ledger().peak_total();
  return Json::object({{"rank", comm.rank()},
                       {"state_bytes", Json::object({{"parameters", result.state.parameters},
                                                     {"gradients", result.state.gradients},
                                                     {"masters", result.state.masters},
                                                     {"padding", result.state.padding},
                                                     {"optimizer", result.optimizer_bytes}})},
                       {"resident_bytes", ledger_bytes(&Ledger::current)},
                       {"peak_bytes", peak},
                       {"seconds", seconds}});
}

using Totals = std::array<dist::Recorder::Total, dist::kCollectives>;

// Calls of rank 0, and the bytes it sent in them.
Json calls_and_bytes(const Totals& totals) {
  Json json = Json::object();
  for (int i = 0; i < dist::kCollectives; ++i) {
    const auto& total = totals[static_cast<size_t>(i)];
    if (total.calls == 0) continue;
    json[name_of(static_cast<dist::Collective>(i))] =
        Json::object({{"calls", total.calls}, {"bytes", total.sent_bytes}});
  }
  return json;
}

// The same for each unit: flat buffers of the model, and small things by their names.
Json units(dist::Communicator& comm) {
  Json json = Json::object();
  for (const auto& [unit, totals] : comm.recorder().totals_by_unit())
    json[unit] = calls_and_bytes(totals);
  return json;
}

// Every rank's text, on rank 0.
std::vector<std::string> gather_texts(const std::string& text, dist::Communicator& comm) {
  auto longest = static_cast<int64_t>(text.size());
  comm.all_reduce({&longest, 1, i64}, dist::ReduceOp::max, {"result"});
  std::string padded = text;
  padded.resize(static_cast<size_t>(longest), ' ');
  std::string all(static_cast<size_t>(longest * (comm.rank() == 0 ? comm.size() : 0)), ' ');
  comm.gather({padded.data(), longest, u8}, {all.data(), static_cast<int64_t>(all.size()), u8}, 0,
              {"result"});
  std::vector<std::string> texts;
  for (size_t at = 0; at < all.size(); at += static_cast<size_t>(longest))
    texts.push_back(all.substr(at, static_cast<size_t>(longest)));
  return texts;
}

}  // namespace

std::string result_text(const RunResult& result, const CommonFlags& flags,
                        const dist::StepClock& clock, dist::Communicator& comm) {
  const Json traffic = calls_and_bytes(comm.recorder().totals());
  const Json by_unit = units(comm);
  Json ranks = Json::array();
  for (const std::string& text : gather_texts(this_rank(result, clock, comm).dump(), comm))
    ranks.push_back(Json::parse(text));
  if (comm.rank() != 0) return {};
  Json final = Json::object({{"train_loss", result.train_loss},
                             {"test_loss", result.test_loss},
                             {"test_accuracy", result.test_accuracy}});
  if (result.test_top5) final["test_top5_accuracy"] = *result.test_top5;
  if (result.unreadable) final["unreadable_samples"] = *result.unreadable;
  Json json = Json::object({
      {"app", result.app},
      {"strategy", flags.strategy},
      {"world_size", comm.size()},
      {"device", flags.device},
      {"dtype", flags.dtype},
      {"seed", flags.seed},
      {"steps", result.steps},
      {"epochs", result.epochs},
      {"global_batch", flags.global_batch},
      {"parameters", result.parameters},
      {"restarts", result.restarts},
      {"final", final},
      {"images_per_second", result.images_per_second},
      {"wall_seconds", result.wall_seconds},
      {"ranks", ranks},
      {"communication", traffic},
      {"communication_by_unit", by_unit},
  });
  if (result.loss_scale) {
    json["loss_scale"] = *result.loss_scale;
    json["skipped_steps"] = result.skipped_steps;
  }
  return json.dump(2) + "\n";
}

}  // namespace weft::app
