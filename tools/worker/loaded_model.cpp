#include "tools/worker/loaded_model.hpp"

#include <optional>

#include "src/checkpoint/fp8_blocks.hpp"
#include "src/checkpoint/hugging_face.hpp"
#include "src/checkpoint/hugging_face_config.hpp"
#include "src/checkpoint/restore.hpp"
#include "src/checkpoint/restore_foreign.hpp"
#include "src/config/job_config.hpp"
#include "src/config/load_extension.hpp"
#include "src/data/byte_tokenizer.hpp"
#include "src/data/open_documents.hpp"
#include "src/device/state_copies.hpp"
#include "src/model/families.hpp"
#include "tools/launcher/checkpoint_path.hpp"
#include "tools/launcher/foreign_start.hpp"
#include "tools/worker/open_device.hpp"

namespace troupe {
namespace {

/// Which model the weights are of.
struct Source {
  JobConfig config;
  std::optional<FoundCheckpoint> checkpoint;  ///< nothing: Hugging Face's folder
  std::int64_t longest = 0;
  std::vector<std::int32_t> stop_tokens;
  std::shared_ptr<const Tokenizer> tokenizer = {};  ///< null: tokens are bytes
};

/// As transformers' generate takes them.
Result<std::vector<std::int32_t>> stop_tokens_of(const ModelFacts& facts, const std::filesystem::path& folder, Storage& storage) {
  std::vector<std::int64_t> ids = facts.eos;
  if (const auto file = folder / "generation_config.json"; storage.exists(file)) {
    const auto text = read_text(storage, file.string(), std::uint64_t{1} << 24U);
    if (!text) return text.error();
    if (auto named = stop_tokens_of_generation_config(*text); !named.empty()) ids = std::move(named);
  }
  return std::vector<std::int32_t>(ids.begin(), ids.end());
}

Result<Source> source_of(const std::filesystem::path& folder, const std::vector<std::string>& more, Storage& storage) {
  if (storage.exists(folder / "manifest.json")) {
    auto found = open_checkpoint_at(folder, storage);
    if (!found) return found.error();
    auto config = with_extension(JobConfig::parse(found->manifest.position.config, (folder / "manifest.json").string() + ", config", more));
    if (!config) return config.error();
    const std::int64_t longest = config->training.seq_len;
    const auto tokenizer = open_tokenizer(config->model.hf_assets_path, config->data.tokenizer.get());
    if (!tokenizer) return tokenizer.error();
    Source source{std::move(*config), std::move(*found), longest, {}, *tokenizer};
    const std::optional<std::int32_t> eos = *tokenizer ? (*tokenizer)->parts().eos : ByteTokenizer::eos;
    if (eos) source.stop_tokens.push_back(*eos);
    return source;
  }
  if (!storage.exists(folder / "config.json"))
    return Error{folder.string() + ": is neither a sealed checkpoint (…/step-N with a manifest.json) nor a folder of Hugging Face (with a config.json)"};
  const std::string file = (folder / "config.json").string();
  const auto text = read_text(storage, file, std::uint64_t{1} << 24U);
  if (!text) return text.error();
  const auto facts = read_model_facts(*text, "llama3", file);
  if (!facts) return facts.error();
  auto config = with_extension(JobConfig::parse(model_section(*facts, "llama3") + "[training]\nmixed_precision_param = \"float32\"\n", file, more));
  if (!config) return config.error();
  Source source{std::move(*config), std::nullopt, facts->max_positions, {}, {}};
  std::optional<std::string> assets = source.config.model.hf_assets_path;
  if (!assets && (storage.exists(folder / "tokenizer.json") || storage.exists(folder / "tokenizer.model"))) assets = folder.string();
  const auto tokenizer = open_tokenizer(assets);
  if (!tokenizer) return tokenizer.error();
  source.tokenizer = *tokenizer;
  const auto stop_tokens = stop_tokens_of(*facts, folder, storage);
  if (!stop_tokens) return stop_tokens.error();
  source.stop_tokens = *stop_tokens;
  return source;
}

Result<void> load_weights(const Source& source, const std::filesystem::path& folder, Storage& storage, TrainingModel& model, Device& device) {
  RestoreOptions weights;
  weights.model_only = true;
  weights.copy_in = copies_into(device);
  if (source.checkpoint) return restore_state(source.checkpoint->manifest, source.checkpoint->folder, storage, model.state(), weights);
  auto found = open_hugging_face(storage, folder);
  if (!found) return found.error();
  if (says_fp8_blocks(storage, folder)) {
    if (auto joined = join_fp8_scales(*found, storage, folder); !joined) return joined.error();
  }
  const auto names = foreign_names(source.config, *found);
  if (!names) return names.error();
  return restore_foreign(*found, *names, model.description().head_dim, storage, model.state(), weights, folder.string());
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> load_model(const std::filesystem::path& folder, const std::vector<std::string>& overrides, Storage& storage) {
  auto source = source_of(folder, overrides, storage);
  if (!source) return source.error();
  const std::int64_t vocabulary = source->tokenizer ? source->tokenizer->vocabulary() : ByteTokenizer::vocab_size;
  auto description = describe_model(source->config.model, vocabulary);
  if (!description && !source->checkpoint) description = describe_model(source->config.model, std::nullopt);
  if (!description) return description.error();
  auto loaded = std::make_unique<LoadedModel>();
  loaded->longest = source->longest;
  loaded->stop_tokens = source->stop_tokens;
  loaded->tokenizer = source->tokenizer;
  loaded->device = open_device(source->config, 0);
  if (!loaded->device->host_visible()) return Error{"text is generated on a CPU: give --runtime.device cpu"};
  loaded->attention = make_cpu_cached_attention();
  TrainingOptions training;
  training.batch = {1, 1};
  training.compute = source->config.training.mixed_precision_param == "float32" ? DType::f32 : DType::bf16;
  loaded->model = std::make_unique<TrainingModel>(std::move(*description), training, *loaded->device, nullptr);
  if (auto done = load_weights(*source, folder, storage, *loaded->model, *loaded->device); !done) return done.error();
  loaded->model->after_restore();
  return loaded;
}

}  // namespace troupe
