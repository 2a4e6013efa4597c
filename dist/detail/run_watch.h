// What the supervisor sees of a running attempt: ranks that make no progress, ranks that are slow
// or grow, and places that come and go.
#pragma once

#include "dist/detail/awake_time.h"
#include "dist/detail/supervisor.h"
#include "dist/launch.h"

#include <optional>

namespace weft::dist::detail {

class RunWatch final : public LaunchWatch {
 public:
  // All must outlive this.
  RunWatch(const RunFolder& folder, RunBoard& board, const SupervisorOptions& options);

  double interval() const override { return 0.05; }
  std::vector<std::string> look(std::span<const pid_t> processes) override;

 private:
  struct Beat {
    uint64_t count = 0;
    double since = 0;    // when it last rose, by awake_
    double longest = 0;  // between two, so far
  };

  void look_at_beats(std::span<const RankSample> samples, std::span<const pid_t> processes,
                     std::vector<std::string>& lines);
  void look_at_places(std::span<const RankSample> samples, std::vector<std::string>& lines);

  const RunFolder& folder_;
  RunBoard& board_;
  const SupervisorOptions& options_;
  StepWatch steps_;
  AwakeTime awake_;
  std::vector<Beat> beats_;
  std::string complaint_;  // about the places file, told once
};

}  // namespace weft::dist::detail
