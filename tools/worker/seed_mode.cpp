#include "tools/worker/seed_mode.hpp"

#include <cstdio>
#include <stdexcept>

#include "src/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/snapshot.hpp"
#include "src/config/job_config.hpp"
#include "src/config/load_extension.hpp"
#include "src/data/open_documents.hpp"
#include "src/device/state_copies.hpp"
#include "src/model/families.hpp"
#include "src/model/training_model.hpp"
#include "tools/commands/commands.hpp"
#include "tools/worker/open_device.hpp"

namespace troupe {

int write_seed_checkpoint(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  const auto config = with_extension(JobConfig::load(file, overrides));
  if (!config) {
    std::fprintf(stderr, "%s\n", config.error().message.c_str());
    return exit_usage;
  }
  const auto vocabulary = vocabulary_of(config->data, config->model.hf_assets_path);
  if (!vocabulary) throw std::runtime_error(vocabulary.error().message);
  auto description = describe_model(config->model, *vocabulary);
  if (!description) throw std::runtime_error(description.error().message);
  const auto device = open_device(*config, 0);
  TrainingOptions options;
  options.batch = {1, static_cast<std::uint32_t>(config->training.seq_len)};
  TrainingModel model(std::move(description.value()), options, *device, nullptr);
  model.initialise(static_cast<std::uint64_t>(config->debug.seed));
  const auto storage = make_posix_storage();
  CheckpointStore store(std::filesystem::path(config->job.dump_folder) / config->checkpoint.folder, *storage);
  const auto program =
      make_snapshot_program(model.state(), {.rank = 0, .world = 1, .model_only = [](Step) { return true; }, .copy_out = copies_out_of(*device)}, *storage);
  const auto slot = allocate_host(program->snapshot_bytes());
  program->copy(device->setup_stream(), Step{0}, slot->bytes());
  device->wait(device->setup_stream());
  const SavedShard shard = program->save(Step{0}, slot->bytes(), store.writing_folder(Step{0}, EpochId{0}));
  const RunPosition position{.step = Step{0}, .epoch = EpochId{0}, .config_hash = config->hash(), .model_only = true, .config = config->to_toml()};
  if (auto sealed = store.seal(position, {shard}); !sealed) throw std::runtime_error(sealed.error().message);
  return exit_done;
}

}  // namespace troupe
