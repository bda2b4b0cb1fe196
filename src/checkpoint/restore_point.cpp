#include "src/checkpoint/restore_point.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "src/checkpoint/fp8_blocks.hpp"
#include "src/checkpoint/hugging_face.hpp"
#include "src/checkpoint/torch_checkpoint.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

/// A checkpoint of another run.
struct Foreign {
  FoundCheckpoint checkpoint;
  std::optional<ForeignTensors> tensors;  ///< of another program
};

RestorePoint point_of(FoundCheckpoint found, bool own, const CheckpointSettings& settings, std::optional<ForeignTensors> foreign = std::nullopt) {
  const RunPosition& position = found.manifest.position;
  const bool weights_alone = position.step == Step{0} || (!own && settings.initial_load_model_only);
  RestorePoint point{.checkpoint = {},
                     .foreign = std::move(foreign),
                     .own = own,
                     .start = position,
                     .model = !settings.excludes("model"),
                     .optimizer = !settings.excludes("optimizer")};
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
  if (!own && settings.initial_data_row >= 0) point.start.data_row = static_cast<std::uint64_t>(settings.initial_data_row);
  if (settings.excludes("lr_scheduler")) point.schedule_before = point.start.step;
  point.checkpoint = std::move(found);
  return point;
}

std::int64_t step_number(const std::string& name) {
  std::int64_t step = -1;
  const bool one = name.starts_with("step-") && std::from_chars(name.data() + 5, name.data() + name.size(), step).ptr == name.data() + name.size();
  return one ? step : -1;
}

/// torchtitan's …/step-N, or the newest whole one in a folder of them; nothing: it is none.
std::optional<fs::path> torch_folder(Storage& storage, const fs::path& path) {
  if (storage.exists(path / torch_metadata_file)) return path;
  const auto entries = storage.list(path);
  std::int64_t newest = -1;
  if (entries) {
    for (const auto& entry : *entries)
      if (entry.folder && storage.exists(path / entry.name / torch_metadata_file)) newest = std::max(newest, step_number(entry.name));
  }
  return newest < 0 ? std::nullopt : std::optional(path / ("step-" + std::to_string(newest)));
}

Result<Foreign> open_torch(const CheckpointSettings& settings, Storage& storage, const fs::path& folder, const std::string& where) {
  auto tensors = open_torch_checkpoint(storage, folder);
  if (!tensors) return Error{where + tensors.error().message};
  Foreign foreign{{folder, {}}, std::move(*tensors)};
  foreign.checkpoint.manifest.position.model_only = settings.initial_load_model_only;
  if (settings.initial_load_model_only) return foreign;
  const auto step = read_whole_number(*foreign.tensors, storage, "train_state.step");
  if (!step || *step < 0)
    return Error{where + (step ? "train_state.step is negative" : step.error().message) +
                 ": to take the weights alone leave checkpoint.initial_load_model_only at true"};
  foreign.checkpoint.manifest.position.step = Step{static_cast<std::uint64_t>(*step)};
  if (const auto tokens = read_whole_number(*foreign.tensors, storage, "train_state.ntokens_seen"); tokens && *tokens > 0)
    foreign.checkpoint.manifest.position.tokens = static_cast<std::uint64_t>(*tokens);
  return foreign;
}

Result<Foreign> open_weights_of_hugging_face(const CheckpointSettings& settings, Storage& storage, const fs::path& folder, const std::string& where) {
  if (!settings.initial_load_model_only) return Error{where + "a folder of Hugging Face holds weights alone: set checkpoint.initial_load_model_only = true"};
  auto tensors = open_hugging_face(storage, folder);
  if (!tensors) return Error{where + tensors.error().message};
  if (settings.initial_load_in_hf_quantized) {
    if (auto joined = join_fp8_scales(*tensors, storage, folder); !joined) return Error{where + joined.error().message};
  }
  Foreign foreign{{folder, {}}, std::move(*tensors)};
  foreign.checkpoint.manifest.position.model_only = true;
  return foreign;
}

/// Another program's folder, …/step-N, or the newest in a folder of them.
Result<Foreign> find_foreign(const CheckpointSettings& settings, Storage& storage, bool data, std::vector<std::string>& warnings,
                             const CheckpointStore::Progress& progress = {}) {
  fs::path path = fs::path(*settings.initial_load_path).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  const std::string where = "checkpoint.initial_load_path = \"" + *settings.initial_load_path + "\": ";
  if (!storage.exists(path)) return Error{where + "there is no such folder (seen from " + fs::current_path().string() + ")"};
  if (settings.initial_load_in_hf) return open_weights_of_hugging_face(settings, storage, path, where);
  if (const auto torch = torch_folder(storage, path)) return open_torch(settings, storage, *torch, where);
  const std::int64_t step = step_number(path.filename().string());
  CheckpointStore store(step >= 0 ? path.parent_path() : path, storage);
  store.watch(progress);
  auto found = store.find(step >= 0 ? step : -1, data, warnings);
  if (!found) return Error{where + found.error().message};
  if (!*found) {
    const bool looks_so = storage.exists(path / hugging_face_index) || storage.exists(path / hugging_face_single);
    return Error{where + "holds no sealed checkpoint (step-N with a manifest.json)" +
                 (looks_so ? "; it looks like a folder of Hugging Face: set checkpoint.initial_load_in_hf = true" : "")};
  }
  return Foreign{std::move(**found), std::nullopt};
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
  if (settings.initial_load_in_hf_quantized && !settings.initial_load_in_hf)
    return Error{"checkpoint.initial_load_in_hf_quantized = true: says what a folder of Hugging Face holds; set checkpoint.initial_load_in_hf = true too"};
  if (settings.initial_load_in_hf && !settings.initial_load_path)
    return Error{"checkpoint.initial_load_in_hf = true: name the folder of Hugging Face with checkpoint.initial_load_path"};
  if (settings.initial_data_row >= 0 && !settings.initial_load_path)
    return Error{"checkpoint.initial_data_row = " + std::to_string(settings.initial_data_row) +
                 ": says where in the data a run begins that starts from checkpoint.initial_load_path, which is not set"};
  if (!settings.initial_load_path) return std::optional<RestorePoint>{};
  auto foreign = find_foreign(settings, storage, settings.check_before_load, warnings, own.progress());
  if (!foreign) return foreign.error();
  if (foreign->checkpoint.manifest.position.model_only && !settings.initial_load_model_only && !settings.excludes("optimizer"))
    return Error{"checkpoint.initial_load_path = \"" + *settings.initial_load_path +
                 "\": holds weights alone, but checkpoint.initial_load_model_only = false asks for all of a run's state"};
  return std::optional(point_of(std::move(foreign->checkpoint), false, settings, std::move(foreign->tensors)));
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
  auto point = point_of(std::move(foreign->checkpoint), false, settings, std::move(foreign->tensors));
  if (point.start.step != restore_step)
    return Error{"the checkpoint of step " + std::to_string(restore_step.value()) + " is neither in " + own.sealed_folder(restore_step).parent_path().string() +
                 " nor at checkpoint.initial_load_path"};
  return std::optional(std::move(point));
}

}  // namespace troupe
