#include "src/checkpoint/restore_point.hpp"

#include <charconv>
#include <filesystem>

namespace troupe {
namespace {

namespace fs = std::filesystem;

RestorePoint point_of(FoundCheckpoint found, bool own, const CheckpointSettings& settings) {
  const RunPosition& position = found.manifest.position;
  const bool weights_alone = position.step == Step{0} || (!own && settings.initial_load_model_only);
  RestorePoint point{.checkpoint = {}, .own = own, .start = position, .model = !settings.excludes("model"), .optimizer = !settings.excludes("optimizer")};
  if (weights_alone) {
    point.optimizer = false;
    point.start.step = Step{0};
    point.start.data_row = point.start.tokens = 0;
  }
  if (settings.excludes("train_state")) {
    point.start.step = Step{0};
    point.start.tokens = 0;
  }
  if (settings.excludes("dataloader")) point.start.data_row = 0;
  if (settings.excludes("lr_scheduler")) point.schedule_before = point.start.step;
  point.checkpoint = std::move(found);
  return point;
}

/// …/step-N, or the newest in a folder of them.
Result<FoundCheckpoint> find_foreign(const CheckpointSettings& settings, Storage& storage, bool data, std::vector<std::string>& warnings) {
  fs::path path = fs::path(*settings.initial_load_path).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  const std::string where = "checkpoint.initial_load_path = \"" + *settings.initial_load_path + "\": ";
  if (!storage.exists(path)) return Error{where + "there is no such folder (seen from " + fs::current_path().string() + ")"};
  const std::string name = path.filename().string();
  std::int64_t step = -1;
  const bool one = name.starts_with("step-") && std::from_chars(name.data() + 5, name.data() + name.size(), step).ptr == name.data() + name.size();
  auto found = one ? CheckpointStore(path.parent_path(), storage).find(step, data, warnings) : CheckpointStore(path, storage).find(-1, data, warnings);
  if (!found) return Error{where + found.error().message};
  if (!*found) return Error{where + "holds no sealed checkpoint (step-N with a manifest.json)"};
  return std::move(**found);
}

}  // namespace

Result<std::optional<RestorePoint>> choose_restore_point(const CheckpointSettings& settings, const CheckpointStore& own, Storage& storage,
                                                         std::vector<std::string>& warnings) {
  const std::size_t before = warnings.size();
  auto found = own.find(settings.load_step, settings.check_before_load, warnings);
  if (!found) return found.error();
  if (!settings.skip_damaged && warnings.size() > before)
    return Error{warnings[before] + " (checkpoint.skip_damaged = false; move it away, or name another with checkpoint.load_step)"};
  if (*found) {
    if (settings.excludes("train_state") && (*found)->manifest.position.step > Step{0})
      return Error{"checkpoint.exclude_from_loading holds train_state, but this run has checkpoints of its own (step " +
                   std::to_string((*found)->manifest.position.step.value()) + "): it would begin again at step 1. Choose another job.dump_folder"};
    return std::optional(point_of(std::move(**found), true, settings));
  }
  if (!settings.initial_load_path) return std::optional<RestorePoint>{};
  auto foreign = find_foreign(settings, storage, settings.check_before_load, warnings);
  if (!foreign) return foreign.error();
  if (foreign->manifest.position.model_only && !settings.initial_load_model_only && !settings.excludes("optimizer"))
    return Error{"checkpoint.initial_load_path = \"" + *settings.initial_load_path +
                 "\": holds weights alone, but checkpoint.initial_load_model_only = false asks for all of a run's state"};
  return std::optional(point_of(std::move(*foreign), false, settings));
}

Result<std::optional<RestorePoint>> restore_point_at(Step restore_step, const CheckpointSettings& settings, const CheckpointStore& own, Storage& storage) {
  if (!settings.enable) return std::optional<RestorePoint>{};
  const auto steps = own.steps();
  if (!steps) return steps.error();
  if (std::ranges::find(*steps, restore_step) != steps->end()) {
    auto found = own.open(restore_step);
    if (!found) return found.error();
    return std::optional(point_of(std::move(*found), true, settings));
  }
  if (!settings.initial_load_path) {
    if (restore_step > Step{0}) return own.open(restore_step).error();
    return std::optional<RestorePoint>{};
  }
  std::vector<std::string> passed_over;
  auto foreign = find_foreign(settings, storage, false, passed_over);
  if (!foreign) return foreign.error();
  auto point = point_of(std::move(*foreign), false, settings);
  if (point.start.step != restore_step)
    return Error{"the checkpoint of step " + std::to_string(restore_step.value()) + " is neither in " + own.sealed_folder(restore_step).parent_path().string() +
                 " nor at checkpoint.initial_load_path"};
  return std::optional(std::move(point));
}

}  // namespace troupe
