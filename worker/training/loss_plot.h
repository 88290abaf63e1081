// The losses of a run as a picture: SVG, drawn when the run ends.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "worker/training/observer.h"

namespace muster::worker {

// Keeps what it is told; a run that resumes at an earlier step forgets what came after it. At most
// kMostPoints of training loss are kept: then every second one goes, and from there on.
class LossPlot : public TrainingObserver {
 public:
  static constexpr size_t kMostPoints = 2000;

  void OnStep(const StepReport& report) override;
  void OnValidation(int64_t step, double loss) override;
  void OnCheckpoint(int64_t /*step*/, const absl::Status& /*status*/) override {}
  void OnStart(int64_t step) override;

  // A whole SVG file; says so if there is nothing to draw.
  std::string Svg() const;

 private:
  using Points = std::vector<std::pair<int64_t, double>>;  // step, loss

  Points training_, validation_;
  int64_t every_ = 1;  // report that is kept
  int64_t reports_ = 0;
};

}  // namespace muster::worker
