#include "tools/worker/row_sources.hpp"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/data/blend.hpp"
#include "tools/launcher/job_data.hpp"

namespace troupe {

LoaderOptions loader_of_epoch(const JobConfig& config, const EpochStart& start) {
  LoaderOptions loader = loader_options(config, start.place(), start.world());
  loader.first_step = start.first_step;
  loader.first_row = start.data_row;
  return loader;
}

TrainingJob with_sources(TrainingJob job, const JobConfig& config, const EpochStart& start) {
  if (job.options.sources.count < 2) return job;
  const auto blend = std::make_shared<Blend>(blend_of(config.data));
  (void)blend->at(start.data_row);  // walks there now, while the rank is built, and not within its first step
  job.options.sources.of = [loader = loader_of_epoch(config, start), blend](Step step, Micro micro) {
    std::vector<std::optional<std::uint32_t>> sources;
    for (const auto row : loader.rows_of(step, micro)) sources.push_back(row ? std::optional(blend->at(*row).source) : std::nullopt);
    return sources;
  };
  return job;
}

}  // namespace troupe
