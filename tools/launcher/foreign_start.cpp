#include "tools/launcher/foreign_start.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/checkpoint/hugging_face.hpp"
#include "src/checkpoint/hugging_face_config.hpp"
#include "src/checkpoint/restore_foreign.hpp"
#include "src/data/byte_tokenizer.hpp"
#include "src/data/open_documents.hpp"
#include "src/model/families.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t longest_config = std::uint64_t{1} << 24U;

/// Names, shapes and types of a run's state, without memory.
StateTensors state_outline(const ModelDescription& model, bool optimizer) {
  StateTensors state;
  const auto add = [&](std::string name, const Shape& shape, DType dtype, bool weights) {
    StateTensor tensor;
    tensor.name = std::move(name);
    tensor.global_shape = shape;
    tensor.view.dtype = dtype;
    tensor.model = weights;
    state.push_back(std::move(tensor));
  };
  for (const UnitDescription& unit : model.units) {
    for (const ParameterDescription& p : unit.parameters) {
      if (!p.tied_to.empty()) continue;
      add(p.name, p.shape(), DType::f32, true);
      if (!optimizer) continue;
      add("optimizer.exp_avg." + p.name, p.shape(), DType::f32, false);
      add("optimizer.exp_avg_sq." + p.name, p.shape(), DType::f32, false);
      add("optimizer.step." + p.name, Shape{1}, DType::i64, false);
    }
  }
  return state;
}

/// torchtitan's loaders keep, by rank, how many documents of their data set they have read and the tokens left over: that names no row here.
std::string where_data_begin(const JobConfig& config, const RestorePoint& point) {
  const auto loaders = std::ranges::count_if(point.foreign->other, [](const std::string& name) { return name.starts_with("dataloader."); });
  std::string text = fmt::format("The data begin at row {}", point.start.data_row);
  if (loaders > 0) text += ": the state of torchtitan's data loaders, which counts documents of its own order, is not read";
  if (config.checkpoint.initial_data_row >= 0) return text + " (checkpoint.initial_data_row)";
  text += fmt::format("; to leave out what {} steps have seen set checkpoint.initial_data_row = {} × ", point.start.step.value(), point.start.step.value());
  if (config.training.global_batch_size <= 0) return text + "the rows of a step";
  return text +
         fmt::format("{} = {}", config.training.global_batch_size, point.start.step.value() * static_cast<std::uint64_t>(config.training.global_batch_size));
}

Result<void> compare_config(const JobConfig& config, const ModelDescription& model, const std::filesystem::path& folder, Storage& storage,
                            std::vector<std::string>& warnings) {
  const std::filesystem::path file = folder / "config.json";
  if (!storage.exists(file)) {
    warnings.push_back(fmt::format("{} has no config.json: rotary base, epsilon and scaling could not be compared with [model]", folder.string()));
    return {};
  }
  const auto text = read_text(storage, file, longest_config);
  if (!text) return text.error();
  const auto theirs = read_model_facts(*text, config.model.name, file.string());
  if (!theirs) return theirs.error();
  const auto ours = facts_of(model);
  if (!ours) return ours.error();
  const auto lines = differences(*ours, *theirs);
  if (lines.empty()) return {};
  std::string problem = fmt::format("{} is another model than [model] describes:", file.string());
  for (const std::string& line : lines) problem += "\n  " + line;
  return Error{problem + "\nWhat fits:\n" + model_section(*theirs, config.model.name)};
}

}  // namespace

Result<ForeignNames> foreign_names(const JobConfig& config, const ForeignTensors& tensors) {
  if (tensors.kind == ForeignTensors::Kind::torch) return torchtitan_names();
  const ForeignNames* const names = hugging_face_names(config.model.name);
  if (names == nullptr) return Error{fmt::format("model.name = \"{}\": there is no table of its names in Hugging Face's files", config.model.name)};
  ForeignNames table = *names;
  return table;
}

Result<ExportPlan> plan_export(const JobConfig& config, Storage& storage) {
  const auto vocabulary = vocabulary_of(config.data, config.model.hf_assets_path);
  if (!vocabulary) return vocabulary.error();
  const auto model = describe_model(config.model, *vocabulary);
  if (!model) return model.error();
  auto facts = facts_of(*model);
  if (!facts) return facts.error();
  ExportPlan plan{.facts = std::move(*facts), .family = config.model.name, .head_dim = model->head_dim, .assets = {}, .dtype = std::nullopt};
  plan.facts.max_positions = config.training.seq_len;
  const auto tokenizer = open_tokenizer(config.model.hf_assets_path, config.data.tokenizer.get());
  if (!tokenizer) return tokenizer.error();
  plan.facts.bos = *tokenizer ? (*tokenizer)->parts().bos : ByteTokenizer::bos;
  if (const std::optional<std::int32_t> eos = *tokenizer ? (*tokenizer)->parts().eos : ByteTokenizer::eos) plan.facts.eos = {*eos};
  if (!config.checkpoint.initial_load_in_hf || !config.checkpoint.initial_load_path) return plan;
  const std::filesystem::path from = *config.checkpoint.initial_load_path;
  if (!storage.exists(from / "config.json")) return plan;
  const auto text = read_text(storage, from / "config.json", longest_config);
  if (!text) return text.error();
  const auto theirs = read_model_facts(*text, config.model.name, (from / "config.json").string());
  if (!theirs) return theirs.error();
  plan.facts.max_positions = std::max(plan.facts.max_positions, theirs->max_positions);
  plan.facts.bos = theirs->bos;
  plan.facts.eos = theirs->eos;
  plan.assets = from;
  return plan;
}

Result<void> check_foreign_start(const JobConfig& config, const RestorePoint& point, Storage& storage, std::vector<std::string>& warnings) {
  const auto names = foreign_names(config, *point.foreign);
  if (!names) return names.error();
  const auto vocabulary = vocabulary_of(config.data, config.model.hf_assets_path);
  if (!vocabulary) return vocabulary.error();
  const auto model = describe_model(config.model, *vocabulary);
  if (!model) return model.error();
  const std::filesystem::path& folder = point.checkpoint.folder;
  if (point.foreign->kind == ForeignTensors::Kind::hugging_face) {
    if (auto same = compare_config(config, *model, folder, storage, warnings); !same) return same;
  } else if (point.start.step > Step{0}) {
    warnings.push_back(
        fmt::format("{} was written by torchtitan: this run goes on after its step {} with its weights, moments and step counts; learning rate and "
                    "schedule are this configuration's. {}",
                    folder.string(), point.start.step.value(), where_data_begin(config, point)));
  }
  const RestoreOptions parts{.model_only = !point.optimizer, .leave_model = !point.model, .leave = {}, .copy_in = {}};
  return check_foreign(*point.foreign, *names, state_outline(*model, point.optimizer), parts, folder.string());
}

}  // namespace troupe
