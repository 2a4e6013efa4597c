// What the first loss after a restart is held against: a run that goes on goes on to the same bits,
// and this notices when it does not.
//
//   RUN/first_loss.json   the line that metrics.jsonl had of the step that comes next. It is there
//                         from before that file is cut back until a loss has been held against it,
//                         however many attempts die or are refused in between
//   RUN/run.json          what the losses of the steps from `since_step` on depend on: the app's
//                         hyper-parameters, threads, processor and build, and the number of ranks
//                         where bits depend on it
//
// Rank 0's alone. Throws Error where files cannot be written.
#pragma once

#include "core/json.h"
#include "dist/run_config.h"

#include <cstdint>
#include <string>

namespace weft::dist::detail {

class FirstLoss {
 public:
  // `name`: how messages begin. `ranks`: 0 if any number of them gives the same bits.
  FirstLoss(std::string run, std::string name, const TrainConfig& train, int ranks);

  // Training is about to go on after `step`; before metrics.jsonl is cut back. Says in which
  // parameters the run goes on otherwise.
  void expect(int64_t step);

  // `line` is what metrics.jsonl is to have of the attempt's first step. Returns what is wrong with
  // its loss, where nothing explains that it is another; else "", and what was expected is
  // forgotten.
  std::string hold(int64_t step, const std::string& line);

 private:
  std::string path(const char* file) const { return run_ + "/" + file; }

  std::string run_;
  std::string name_;
  Json parameters_;  // of now
};

}  // namespace weft::dist::detail
