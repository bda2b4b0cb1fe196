#include "src/config/job_config.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "src/config/toml_reader.hpp"
#include "src/config/unbuilt_sections.hpp"
#include "src/optimizer/parameter_groups.hpp"

namespace troupe {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

/// What a layer that is updated before the whole backward pass is known has to do without.
void check_step_in_backward(Schema& schema, const JobConfig& config) {
  if (!config.optimizer.early_step_in_backward) return;
  const auto refuse = [&](const std::string& why) {
    const auto* key = schema.find("optimizer.early_step_in_backward");
    schema.problem(key->where.empty() ? std::string("default") : key->where, "optimizer.early_step_in_backward: " + why);
  };
  if (config.training.max_norm > 0 && std::isfinite(config.training.max_norm)) {
    std::ostringstream norm;
    norm << config.training.max_norm;
    refuse("a layer is updated before the norm of all gradients is known, but training.max_norm = " + norm.str() +
           " clips to it: set training.max_norm = 0 (no clipping), or leave early_step_in_backward off");
  }
  if (config.training.guard.nonfinite != "stop")
    refuse(
        "when a gradient is found not to be finite, the layers behind it are updated already, so the step cannot be taken back (training.guard.nonfinite = \"" +
        config.training.guard.nonfinite + "\"): set training.guard.nonfinite = \"stop\", or leave early_step_in_backward off");
  if (config.elastic.policy == "shrink" && config.parallelism.reduce_gradients != "last")
    refuse(
        "fewer ranks (elastic.policy = \"shrink\") take more micro-batches for the same global batch, whose gradients are whole only with the last: set "
        "parallelism.reduce_gradients = \"last\"");
}

/// Checks that need two keys; each problem names both.
void check_together(Schema& schema, const JobConfig& config) {
  const auto where = [&](std::string_view key) {
    const auto* found = schema.find(key);
    return found->where.empty() ? std::string("default") : found->where;
  };
  if (!config.trace.steps.empty() && (config.trace.steps.size() != 2 || config.trace.steps[0] > config.trace.steps[1])) {
    schema.problem(where("trace.steps"), "trace.steps: expected [first, last] with first <= last");
  }
  if (config.profiling.profiler_active > config.profiling.profile_freq) {
    schema.problem(where("profiling.profiler_active"), "profiling.profiler_active: a timeline of " + std::to_string(config.profiling.profiler_active) +
                                                           " steps every " + std::to_string(config.profiling.profile_freq) +
                                                           " (profiling.profile_freq) overlaps the next");
  }
  if (config.checkpoint.keep_latest_k == 1) {
    schema.problem(where("checkpoint.keep_latest_k"),
                   "checkpoint.keep_latest_k: 1 would leave no checkpoint if the newest were damaged; use 0 (keep all) or at least 2");
  }
  const auto& option = config.activation_checkpoint.selective_ac_option;
  if (option != "op" && !config.activation_checkpoint.every_nth_block()) {
    schema.problem(where("activation_checkpoint.selective_ac_option"),
                   "activation_checkpoint.selective_ac_option: expected \"op\" or a positive integer as a string, found \"" + option + "\"");
  }
  if (const std::string problem = blend_problem(config.data); !problem.empty()) schema.problem(where("data.blend_weights"), "data.blend_weights: " + problem);
  if (config.elastic.recovers() && config.data.loader_hosts > 0)
    schema.problem(where("elastic.policy"), "elastic.policy: " + config.elastic.policy +
                                                " does not go with data.loader_hosts = " + std::to_string(config.data.loader_hosts) +
                                                " in this version; set one of them back (loader_hosts = 0, or policy = \"stop\")");
  if (config.training.guard.rolls_back() && config.data.loader_hosts > 0)
    schema.problem(where("training.guard.nonfinite"), "training.guard: rollbacks do not go with data.loader_hosts = " +
                                                          std::to_string(config.data.loader_hosts) + " in this version; set loader_hosts = 0");
  if (const Float8Settings& f = config.float8; f.recipe_name.value_or("tensorwise") != "tensorwise") {
    if (f.enable_fsdp_float8_all_gather)
      schema.problem(where("float8.enable_fsdp_float8_all_gather"),
                     "float8.enable_fsdp_float8_all_gather: scales of recipe " + *f.recipe_name +
                         " do not survive sharding by rows; use float8.recipe_name = \"tensorwise\", or gather unquantised");
    const bool automatic = std::find(f.filter_fqns.begin(), f.filter_fqns.end(), "auto_filter_small_kn") != f.filter_fqns.end();
    if (automatic && *f.recipe_name == "rowwise_with_gw_hp")
      schema.problem(where("float8.filter_fqns"), "float8.filter_fqns: auto_filter_small_kn knows no sizes for rowwise_with_gw_hp; name the layers");
  }
  if (config.checkpoint.last_save_ema && (config.optimizer.ema_decay <= 0 || !config.checkpoint.last_save_model_only))
    schema.problem(where("checkpoint.last_save_ema"),
                   "checkpoint.last_save_ema: needs averages, so optimizer.ema_decay above 0, and checkpoint.last_save_model_only = true");
  check_step_in_backward(schema, config);
  if (const auto groups = ParameterGroups::of(config.optimizer); !groups)
    schema.problem(where("optimizer.param_groups"), "optimizer.param_groups: " + groups.error().message);
  if (const auto rules = rules_of(config.faults); !rules) schema.problem(where("faults.rules"), "faults.rules: " + rules.error().message);
}

}  // namespace

void describe(Schema& schema, JobSettings& s) {
  schema.section("job", "The run as a whole.");
  schema.key("dump_folder", &s.dump_folder, KeyClass::frozen, "the run's folder: config, metrics, journal, logs, trace, checkpoints").apart();
  schema.key("description", &s.description, KeyClass::frozen, "free text").apart();
  schema.ignored("use_for_integration_test", false, "it only marks the file");
  schema.ignored("print_config", false, "`troupe config` prints the merged configuration").alias("job.print_args");
  schema.ignored("save_config_file", std::optional<std::string>{}, "job.dump_folder/config.toml always has the merged configuration");
  schema
      .key("custom_import", &s.custom_import, KeyClass::frozen,
           "shared library that adds families (model.name), data sets (training.dataset) and losses (training.loss): docs/extensions.md")
      .alias("experimental.custom_import")
      .apart();
  schema.ignored("custom_config_module", "", "keys are added in C++; those of torchtitan's own modules are known").alias("experimental.custom_args_module");
}

void JobConfig::describe_to(Schema& schema) {
  schema.hold_in(held);
  describe(schema, job);
  describe(schema, model);
  describe(schema, float8);
  describe(schema, optimizer);
  describe(schema, lr_scheduler);
  describe(schema, training);
  describe(schema, data);
  describe(schema, parallelism);
  describe(schema, slots);
  describe(schema, runtime);
  describe(schema, checkpoint);
  describe(schema, metrics);
  describe(schema, trace);
  describe(schema, profiling);
  describe(schema, comm);
  describe(schema, elastic);
  describe(schema, live);
  describe(schema, faults);
  describe(schema, debug);
  describe_other_parallelism(schema);
  describe(schema, activation_checkpoint);
  describe(schema, validation);
  describe_unbuilt_sections(schema);
}

Result<JobConfig> JobConfig::load(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  if (file.empty()) return parse("", "", overrides);
  std::ifstream in(file, std::ios::binary);
  std::error_code ignored;
  if (!in || std::filesystem::is_directory(file, ignored)) {
    return Error{"cannot read the configuration file " + file.string() + ": " +
                 (std::filesystem::exists(file, ignored) ? "no permission, or not a file" : "no such file")};
  }
  std::ostringstream text;
  text << in.rdbuf();
  return parse(text.str(), file.string(), overrides);
}

Result<JobConfig> JobConfig::parse(const std::string& text, const std::string& name, const std::vector<std::string>& overrides) {
  JobConfig config;
  Schema schema;
  config.describe_to(schema);
  if (!text.empty()) apply_toml(schema, text, name);
  apply_command_line(schema, overrides);
  if (schema.problems().empty()) check_together(schema, config);
  if (!schema.problems().empty()) return Error{joined(schema.problems())};
  for (const auto& key : schema.keys()) {
    if (key.source != KeySource::builtin) config.origins[key.name] = Origin{key.source, key.where};
  }
  config.notes = schema.notes();
  // A library may have these names; load_extension refuses them otherwise.
  using Names = std::vector<std::string>;
  config.not_built = schema.refusals(config.job.custom_import.empty() ? Names{} : Names{"model.name", "training.dataset", "training.loss"});
  return config;
}

SnapshotPolicy JobConfig::snapshots() const noexcept {
  SnapshotPolicy policy;
  if (elastic.recovers() || training.guard.rolls_back()) policy.keep_every = static_cast<std::uint32_t>(elastic.memory_interval);
  if (training.guard.rolls_back()) policy.rollback_steps = static_cast<std::uint32_t>(training.guard.rollback_steps);
  return policy;
}

Result<void> JobConfig::can_run() const {
  if (not_built.empty()) return {};
  return Error{joined(not_built)};
}

std::string JobConfig::to_toml() const {
  JobConfig copy = *this;
  Schema schema;
  copy.describe_to(schema);
  std::string text;
  for (const auto& [section, doc] : schema.sections()) {
    std::string body;
    for (const auto& key : schema.keys()) {
      if (key.name.substr(0, key.name.rfind('.')) != section) continue;
      if (const auto value = key.toml(); !value.empty()) body += key.name.substr(section.size() + 1) + " = " + value + "\n";
    }
    if (!body.empty()) text += (text.empty() ? "[" : "\n[") + section + "]\n" + body;
  }
  return text;
}

std::string JobConfig::table() const {
  JobConfig copy = *this;
  Schema schema;
  copy.describe_to(schema);
  std::vector<std::array<std::string, 5>> rows{{"key", "value", "source", "class", "state"}};
  for (const auto& [section, doc] : schema.sections()) {
    for (const auto& key : schema.keys()) {
      if (key.name.substr(0, key.name.rfind('.')) != section) continue;
      const auto origin = origins.find(key.name);
      const std::string value = key.toml();
      rows.push_back({key.name, value.empty() ? "none" : value, origin == origins.end() ? "default" : origin->second.where,
                      std::string(key.effective() ? name_of(key.key_class) : "-"), std::string(name_of(key.built_value() ? key.state : KeyState::not_built))});
    }
  }
  std::array<std::size_t, 5> width{};
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += i + 1 < row.size() ? row[i] + std::string(width[i] + 2 - row[i].size(), ' ') : row[i];
    text += line + "\n";
  }
  return text;
}

std::uint64_t JobConfig::hash() const {
  JobConfig copy = *this;
  Schema schema;
  copy.describe_to(schema);
  std::string text;
  for (const auto& key : schema.keys()) {
    if (key.hashed()) text += key.name + "=" + key.toml() + "\n";
  }
  return XXH3_64bits(text.data(), text.size());
}

std::vector<std::string> JobConfig::changes_since(const std::string& earlier_toml) const {
  auto earlier = parse(earlier_toml, "checkpoint");
  if (earlier_toml.empty() || !earlier) return {};
  JobConfig copy = *this;
  Schema before, now;
  earlier->describe_to(before);
  copy.describe_to(now);
  const auto shown = [](const Key& key) { return key.toml().empty() ? std::string("none") : key.toml(); };
  std::vector<std::string> changes;
  for (std::size_t i = 0; i < now.keys().size(); ++i) {
    const Key &old_key = before.keys()[i], &key = now.keys()[i];
    if (key.hashed() && key.toml() != old_key.toml()) changes.push_back(key.name + ": " + shown(old_key) + " before, " + shown(key) + " now");
  }
  return changes;
}

Result<MeshDegrees> JobConfig::mesh(std::int64_t world) const {
  const auto& p = parallelism;
  // Degrees are at most 2^20 each: a product of five of them may be more than an integer holds, and is then no world.
  const auto times = [](std::int64_t a, std::int64_t b) { return std::min<std::int64_t>(a, 1LL << 40) * b; };
  const std::int64_t others = times(p.context_parallel_degree * p.tensor_parallel_degree, p.pipeline_parallel_degree);
  MeshDegrees mesh{p.data_parallel_replicate_degree, p.data_parallel_shard_degree};
  const auto factors = [&](const std::string& tail) {
    const auto degree = [](std::int64_t d) { return std::to_string(d); };
    return "parallelism: pipeline " + degree(p.pipeline_parallel_degree) + " x data_parallel_replicate " + degree(p.data_parallel_replicate_degree) +
           " x data_parallel_shard " + degree(p.data_parallel_shard_degree) + " x context " + degree(p.context_parallel_degree) + " x tensor " +
           degree(p.tensor_parallel_degree) + tail;
  };
  const std::string ranks = std::to_string(world) + (world == 1 ? " rank" : " ranks");
  if (world < 1) return Error{"the world has " + std::to_string(world) + " ranks; at least 1 is needed (--nproc, WORLD_SIZE)"};
  if (mesh.replicate == -1 && mesh.shard == -1) return Error{factors(": only one degree may be -1")};
  for (auto* open : {&mesh.replicate, &mesh.shard}) {
    if (*open != -1) continue;
    const std::int64_t known = times(others, open == &mesh.replicate ? mesh.shard : mesh.replicate);
    if (world % known != 0)
      return Error{factors(": the world of " + ranks + " is no multiple of " + std::to_string(known) + ", so the degree of -1 cannot be found")};
    *open = world / known;
  }
  const std::int64_t product = times(times(others, mesh.replicate), mesh.shard);
  if (product != world) return Error{factors(" = " + std::to_string(product) + ", but the world has " + ranks + "; change a degree or --nproc")};
  if (others != 1 || p.expert_parallel_degree != 1) {
    return Error{factors(", expert " + std::to_string(p.expert_parallel_degree) + ": in this version only the two data-parallel degrees may be above 1")};
  }
  return mesh;
}

std::int64_t JobConfig::global_rows(std::int64_t ranks) const noexcept {
  return training.global_batch_size < 0 ? training.local_batch_size * ranks : training.global_batch_size;
}

std::int64_t JobConfig::micro_batches(std::int64_t ranks) const noexcept {
  const std::int64_t at_once = training.local_batch_size * ranks;
  return (global_rows(ranks) + at_once - 1) / at_once;
}

}  // namespace troupe
