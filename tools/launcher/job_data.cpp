#include "tools/launcher/job_data.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/restore_point.hpp"

namespace troupe {

LoaderOptions loader_options(const JobConfig& config, std::uint32_t rank, std::uint32_t world) {
  LoaderOptions options;
  options.layout = {static_cast<std::uint32_t>(config.training.local_batch_size), static_cast<std::uint32_t>(config.training.seq_len),
                    config.data.isolate_documents};
  options.blend = blend_of(config.data);
  options.sampler = sampler_options(config.data, config.debug.seed, config.training.seq_len);
  options.rank = rank;
  options.ranks = world;
  options.micro_batches = static_cast<std::uint32_t>(config.micro_batches(world));
  options.global_rows = static_cast<std::uint64_t>(config.global_rows(world));
  return options;
}

namespace {

/// An epoch of the run, as its journal tells.
struct JournalEpoch {
  Step first;
  std::uint32_t world = 1;
  std::optional<std::uint64_t> row = {};    ///< rows of data used before it; nothing: a journal of an earlier build
  std::vector<std::string> overrides = {};  ///< of the configuration that the run began with
};

/// Epochs that begin up to this step, in the order in which they began.
std::vector<JournalEpoch> epochs_up_to(Step step, const std::filesystem::path& run) {
  std::vector<JournalEpoch> epochs;
  std::ifstream journal(run / "journal.jsonl");
  for (std::string line; std::getline(journal, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object() || event.value("event", "") != "epoch") continue;
    JournalEpoch epoch{.first = Step{event.value("first_step", std::uint64_t{1})}};
    if (const auto row = event.find("data_row"); row != event.end() && row->is_number_unsigned()) epoch.row = row->get<std::uint64_t>();
    while (!epochs.empty() && epochs.back().first >= epoch.first) epochs.pop_back();  // steps that ran again, in this one
    if (epoch.first > step) continue;
    if (const auto members = event.find("members"); members != event.end()) epoch.world = static_cast<std::uint32_t>(members->size());
    if (const auto changes = event.find("changes"); changes != event.end())
      for (const auto& change : *changes) epoch.overrides.push_back("--" + change.get<std::string>());
    epochs.push_back(std::move(epoch));
  }
  return epochs;
}

/// Where a run that has not begun will: after the checkpoint of another, if that can be read.
void start_elsewhere(DataPosition& position, Step step, const CheckpointStore& own, Storage& storage) {
  CheckpointSettings settings = position.config.checkpoint;
  if (!settings.enable || !settings.initial_load_path) return;
  settings.check_before_load = false;
  std::vector<std::string> passed_over;
  const auto point = choose_restore_point(settings, own, storage, passed_over);
  if (!point || !*point || (*point)->start.step >= step) return;
  position.first_step = (*point)->start.step.next();
  position.first_row = (*point)->start.data_row;
}

Result<JobConfig> config_of(const JournalEpoch& epoch, const JobConfig& config) {
  if (epoch.overrides.empty()) return config;
  return JobConfig::parse(config.to_toml(), "the run's configuration", epoch.overrides);
}

}  // namespace

Result<DataPosition> data_position_at(Step step, const JobConfig& config) {
  DataPosition position;
  position.config = config;
  const std::filesystem::path run = config.job.dump_folder;
  const auto storage = make_posix_storage();
  const CheckpointStore store(run / config.checkpoint.folder, *storage);
  const auto steps = store.steps();
  if (!steps) return steps.error();
  for (const Step sealed : *steps) {
    if (sealed >= step || sealed == Step{0}) continue;
    const auto found = store.open(sealed);
    if (!found) return found.error();
    position.first_step = sealed.next();
    position.first_row = found->manifest.position.data_row;
  }
  const std::vector<JournalEpoch> epochs = epochs_up_to(step, run);
  if (epochs.empty() && steps->empty()) start_elsewhere(position, step, store, *storage);
  for (const JournalEpoch& epoch : epochs) {
    if (epoch.row && epoch.first >= position.first_step) {
      position.first_row = *epoch.row;
      position.first_step = epoch.first;
    } else if (epoch.first > position.first_step) {
      position.first_row += (epoch.first.value() - position.first_step.value()) * static_cast<std::uint64_t>(position.config.global_rows(position.world));
      position.first_step = epoch.first;
    }
    auto changed = config_of(epoch, config);
    if (!changed) return changed.error();
    position.config = std::move(*changed);
    position.world = epoch.world;
  }
  return position;
}

}  // namespace troupe
