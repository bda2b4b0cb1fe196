#pragma once
#include <span>

#include "src/base/ids.hpp"
#include "src/base/result.hpp"
#include "src/metrics/logged_metrics.hpp"

namespace troupe {

/// Where the numbers of logged steps go beside metrics.jsonl. Lives in the Coordinator's process; one thread; may block on a file or pipe.
class MetricSink {
 public:
  virtual ~MetricSink() = default;
  /// `wall_time`: seconds since 1970. An error is told once and training goes on.
  [[nodiscard]] virtual Result<void> write(Step step, double wall_time, std::span<const Scalar> scalars) = 0;
  /// The run has ended: everything is out of this process's hands on return.
  [[nodiscard]] virtual Result<void> close() = 0;
};

}  // namespace troupe
