#include "tools/worker/sample_mode.hpp"

#include <cstdio>

#include "src/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/restore.hpp"
#include "src/config/job_config.hpp"
#include "src/config/load_extension.hpp"
#include "src/data/byte_tokenizer.hpp"
#include "src/data/open_documents.hpp"
#include "src/device/state_copies.hpp"
#include "src/model/families.hpp"
#include "src/model/sample.hpp"
#include "tools/worker/open_device.hpp"
#include "tools/worker/terminal_text.hpp"

namespace troupe {
namespace {

/// The checkpoint asked for, the newest of the run, or none.
Result<std::optional<FoundCheckpoint>> choose(const SampleRequest& request, const JobConfig& config, Storage& storage) {
  if (request.untrained) return std::optional<FoundCheckpoint>{};
  if (request.checkpoint.empty()) {
    const CheckpointStore store(std::filesystem::path(config.job.dump_folder) / config.checkpoint.folder, storage);
    std::vector<std::string> warnings;
    auto found = store.find(config.checkpoint.load_step, false, warnings);
    for (const std::string& warning : warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
    if (found && !*found)
      return Error{"no checkpoint in " + (std::filesystem::path(config.job.dump_folder) / config.checkpoint.folder).string() +
                   ": train first, name one with --checkpoint, or sample from the initial weights with --untrained"};
    return found;
  }
  const std::string name =
      request.checkpoint.filename().empty() ? request.checkpoint.parent_path().filename().string() : request.checkpoint.filename().string();
  const std::filesystem::path folder = request.checkpoint.filename().empty() ? request.checkpoint.parent_path() : request.checkpoint;
  if (!name.starts_with("step-") || name.find_first_not_of("0123456789", 5) != std::string::npos || name.size() == 5)
    return Error{request.checkpoint.string() + " is no checkpoint's folder: expected …/step-N"};
  auto found = CheckpointStore(folder.parent_path(), storage).open(Step{std::stoull(name.substr(5))});
  if (!found) return found.error();
  return std::optional<FoundCheckpoint>{std::move(found.value())};
}

TrainingOptions sampling_options(const JobConfig& config) {
  TrainingOptions options;
  options.batch = {1, static_cast<std::uint32_t>(config.training.seq_len)};
  options.compute = config.training.mixed_precision_param == "float32" ? DType::f32 : DType::bf16;
  options.float8 = {config.model.float8(), config.float8.filter_fqns, config.float8.enable_fsdp_float8_all_gather, float8_recipe(config.float8)};
  return options;
}

std::vector<std::int32_t> prompt_of(const std::string& text, const std::shared_ptr<const Tokenizer>& tokenizer) {
  std::vector<std::int32_t> prompt;
  if (!tokenizer) {
    prompt.push_back(ByteTokenizer::bos);
    for (const char byte : text) prompt.push_back(static_cast<unsigned char>(byte));
    return prompt;
  }
  if (tokenizer->parts().bos) prompt.push_back(*tokenizer->parts().bos);
  TokenEncoder(tokenizer).encode(text, {}, prompt);
  return prompt;
}

/// Prompt and answer decoded together: a character may be spread over both.
std::string whole_text(std::vector<std::int32_t> prompt, const std::vector<std::int32_t>& drawn, const Tokenizer& tokenizer) {
  prompt.insert(prompt.end(), drawn.begin(), drawn.end());
  return tokenizer.decode(prompt);
}

Result<void> print_sample(const SampleRequest& request, const JobConfig& config) {
  const auto storage = make_posix_storage();
  auto found = choose(request, config, *storage);
  if (!found) return found.error();
  const auto tokenizer = open_tokenizer(config.model.hf_assets_path, config.data.tokenizer.get());
  if (!tokenizer) return tokenizer.error();
  const auto vocabulary = vocabulary_of(config.data, config.model.hf_assets_path);
  if (!vocabulary) return vocabulary.error();
  auto description = describe_model(config.model, *vocabulary);
  if (!description) return description.error();
  const auto device = open_device(config, 0);
  TrainingModel model(std::move(description.value()), sampling_options(config), *device, nullptr);
  model.initialise(static_cast<std::uint64_t>(config.debug.seed));
  if (*found) {
    RestoreOptions weights;
    weights.model_only = true;
    weights.copy_in = copies_into(*device);
    if (auto restored = restore_state((*found)->manifest, (*found)->folder, *storage, model.state(), weights); !restored) return restored;
    model.after_restore();
  }
  std::fprintf(stderr, "%s\n", *found ? ("weights of " + (*found)->folder.string()).c_str() : "initial weights");
  const std::vector<std::int32_t> prompt = prompt_of(request.prompt, *tokenizer);
  SampleOptions options;
  options.count = request.tokens;
  options.temperature = request.temperature;
  options.seed = request.seed;
  options.context = static_cast<std::uint32_t>(config.training.seq_len);
  options.stop_token = *tokenizer ? (*tokenizer)->parts().eos.value_or(-1) : ByteTokenizer::eos;
  const auto drawn = sample(model, *device, prompt, options);
  std::string text = request.prompt;
  if (*tokenizer) text = whole_text(prompt, drawn, **tokenizer);
  for (const std::int32_t token : drawn)
    if (!*tokenizer && token >= 0 && token < ByteTokenizer::bos) text += static_cast<char>(token);
  return print_last(terminal_text(text));
}

}  // namespace

int run_sample(const SampleRequest& request) {
  const auto config = with_extension(JobConfig::load(request.config, request.overrides));
  if (!config) {
    std::fprintf(stderr, "%s\n", config.error().message.c_str());
    return exit_usage;
  }
  if (auto printed = print_sample(request, *config); !printed) {
    std::fprintf(stderr, "troupe sample: %s\n", printed.error().message.c_str());
    return exit_failed;
  }
  return exit_done;
}

}  // namespace troupe
