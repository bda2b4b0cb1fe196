#include "src/checkpoint/hugging_face_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/checkpoint/tensor_names.hpp"

namespace troupe {
namespace {

using nlohmann::json;
constexpr std::uint64_t most = 0x7fffffff;  ///< of a count or an id: products of two do not overflow

const ParameterDescription* parameter(const UnitDescription& unit, std::string_view ending) {
  const auto found = std::ranges::find_if(unit.parameters, [&](const auto& p) { return p.name.ends_with(ending); });
  return found == unit.parameters.end() ? nullptr : &*found;
}

std::string text_of(double value) { return json(value).dump(); }
std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(std::int64_t value) { return std::to_string(value); }

bool same(double a, double b) { return a == b || std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b)); }

/// Members of config.json, with what is wrong collected.
class Members {
 public:
  Members(const json& object, std::string file) : object_(object), file_(std::move(file)) {}
  std::int64_t count(const char* key, std::optional<std::int64_t> otherwise = std::nullopt) {
    const json* value = find(key);
    if (value == nullptr && otherwise) return *otherwise;
    if (value == nullptr || !value->is_number_integer() || value->get<std::int64_t>() < 1 || value->get<std::uint64_t>() > most) {
      fail(std::string(key) + (value == nullptr ? " is missing" : " is " + value->dump() + ", expected a positive whole number"));
      return 1;
    }
    return value->get<std::int64_t>();
  }
  double number(const char* key, double otherwise) {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number() || !(value->get<double>() > 0)) fail(std::string(key) + " is " + value->dump() + ", expected a positive number");
    return value->is_number() ? value->get<double>() : otherwise;
  }
  bool flag(const char* key, bool otherwise) {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) fail(std::string(key) + " is " + value->dump() + ", expected true or false");
    return value->is_boolean() ? value->get<bool>() : otherwise;
  }
  std::string text(const char* key, const std::string& otherwise) {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    return value->is_string() ? value->get<std::string>() : value->dump();
  }
  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  void fail(const std::string& what) { problems_ += (problems_.empty() ? "" : "; ") + what; }
  [[nodiscard]] std::optional<Error> problem() const { return problems_.empty() ? std::nullopt : std::optional(Error{file_ + ": " + problems_}); }

 private:
  const json& object_;
  std::string file_, problems_;
};

/// The ids of bos_token_id or eos_token_id, which may be a list; what cannot be an id is left out.
std::vector<std::int64_t> token_ids(const json* value) {
  std::vector<std::int64_t> ids;
  const auto add = [&ids](const json& id) {
    if (id.is_number_unsigned() && id.get<std::uint64_t>() <= most) ids.push_back(id.get<std::int64_t>());
  };
  if (value != nullptr && value->is_array())
    std::ranges::for_each(*value, add);
  else if (value != nullptr)
    add(*value);
  return ids;
}

/// rope_scaling, or rope_parameters of newer files, where the base stands too.
void read_rope(Members& members, ModelFacts& facts, const std::string& file) {
  const json* block = members.find("rope_scaling");
  if (block == nullptr) block = members.find("rope_parameters");
  if (block == nullptr) return;
  if (!block->is_object()) return members.fail("rope_scaling is " + block->dump() + ", expected an object");
  Members rope(*block, file + ": rope_scaling");
  facts.rope_theta = rope.number("rope_theta", facts.rope_theta);
  const std::string kind = rope.text("rope_type", rope.text("type", "default"));
  if (kind == "llama3") {
    RotaryScaling scaling;
    scaling.factor = rope.number("factor", 0);
    scaling.low_freq_factor = rope.number("low_freq_factor", 1);
    scaling.high_freq_factor = rope.number("high_freq_factor", 4);
    scaling.original_length = rope.count("original_max_position_embeddings");
    if (scaling.factor < 1) members.fail("rope_scaling: factor is missing or below 1");
    if (scaling.high_freq_factor <= scaling.low_freq_factor) members.fail("rope_scaling: high_freq_factor must be above low_freq_factor");
    facts.scaling = scaling;
  } else if (kind != "default") {
    members.fail("rope_scaling is of the kind '" + kind + "'; known are llama3 and default");
  }
  if (const auto problem = rope.problem()) members.fail(problem->message);
}

}  // namespace

Result<ModelFacts> facts_of(const ModelDescription& model) {
  const Error none{model.name + ": is not built of the blocks of llama3, so Hugging Face's config.json cannot describe it"};
  if (model.units.size() < 3 || model.head_dim <= 0) return none;
  const UnitDescription &block = model.units[1], &head = model.units.back();
  const ParameterDescription *k = parameter(block, ".attention.wk.weight"), *gate = parameter(block, ".feed_forward.w1.weight"),
                             *output = parameter(head, "output.weight");
  const auto norm = std::ranges::find(block.tape.steps, OperationType::rms_norm, &TapeStep::type);
  if (k == nullptr || gate == nullptr || output == nullptr || norm == block.tape.steps.end()) return none;
  ModelFacts facts;
  facts.vocab_size = model.vocab_size;
  facts.hidden_size = model.dim;
  facts.layers = model.layers;
  facts.heads = model.heads;
  facts.kv_heads = k->rows / model.head_dim;
  facts.head_dim = model.head_dim;
  facts.ffn_size = gate->rows;
  facts.norm_eps = norm->eps;
  facts.rope_theta = model.rotary.theta;
  facts.tied = !output->tied_to.empty();
  if (model.rotary.scaled) facts.scaling = model.rotary.scaling;
  return facts;
}

Result<ModelFacts> read_model_facts(const std::string& text, const std::string& family, const std::string& file) {
  const json parsed = json::parse(text, nullptr, false);
  if (parsed.is_discarded() || !parsed.is_object()) return Error{file + ": is no JSON object"};
  const ForeignNames* const names = hugging_face_names(family);
  if (names == nullptr) return Error{"model.name = \"" + family + "\": there is no table of its names in Hugging Face's files"};
  Members members(parsed, file);
  if (const std::string type = members.text("model_type", std::string(names->model_type)); type != names->model_type)
    return Error{file + ": model_type is '" + type + "', but model.name = \"" + family + "\" is '" + std::string(names->model_type) + "'"};
  ModelFacts facts;
  facts.vocab_size = members.count("vocab_size");
  facts.hidden_size = members.count("hidden_size");
  facts.layers = members.count("num_hidden_layers");
  facts.heads = members.count("num_attention_heads");
  facts.kv_heads = members.count("num_key_value_heads", facts.heads);
  facts.ffn_size = members.count("intermediate_size");
  facts.head_dim = members.count("head_dim", std::max<std::int64_t>(1, facts.hidden_size / facts.heads));
  facts.norm_eps = members.number("rms_norm_eps", 1e-6);
  facts.rope_theta = members.number("rope_theta", 10000);
  facts.tied = members.flag("tie_word_embeddings", false);
  facts.max_positions = members.count("max_position_embeddings", 2048);
  if (const auto bos = token_ids(members.find("bos_token_id")); !bos.empty()) facts.bos = bos.front();
  facts.eos = token_ids(members.find("eos_token_id"));
  read_rope(members, facts, file);
  for (const char* bias : {"attention_bias", "mlp_bias"})
    if (members.flag(bias, false)) members.fail(std::string(bias) + " is true; this family has no biases");
  if (const std::string activation = members.text("hidden_act", "silu"); activation != "silu")
    members.fail("hidden_act is '" + activation + "', expected 'silu'");
  if (facts.heads % facts.kv_heads != 0)
    members.fail("num_attention_heads = " + std::to_string(facts.heads) + " is no multiple of num_key_value_heads = " + std::to_string(facts.kv_heads));
  if (facts.head_dim * facts.heads != facts.hidden_size)
    members.fail("num_attention_heads = " + std::to_string(facts.heads) + " heads of " + std::to_string(facts.head_dim) +
                 " are not hidden_size = " + std::to_string(facts.hidden_size));
  if (const auto problem = members.problem()) return *problem;
  return facts;
}

std::vector<std::int64_t> stop_tokens_of_generation_config(const std::string& text) {
  const json parsed = json::parse(text, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("eos_token_id")) return {};
  return token_ids(&parsed["eos_token_id"]);
}

std::vector<std::string> differences(const ModelFacts& ours, const ModelFacts& theirs) {
  std::vector<std::string> lines;
  const auto compare = [&](const char* key, const char* name, auto here, auto there) {
    bool equal = here == there;
    if constexpr (std::is_same_v<decltype(here), double>) equal = same(here, there);
    if (!equal) lines.push_back(std::string("model.") + key + " is " + text_of(here) + " here, " + name + " is " + text_of(there) + " there");
  };
  compare("vocab_size", "vocab_size", ours.vocab_size, theirs.vocab_size);
  compare("dim", "hidden_size", ours.hidden_size, theirs.hidden_size);
  compare("n_layers", "num_hidden_layers", ours.layers, theirs.layers);
  compare("n_heads", "num_attention_heads", ours.heads, theirs.heads);
  compare("n_kv_heads", "num_key_value_heads", ours.kv_heads, theirs.kv_heads);
  compare("ffn_hidden", "intermediate_size", ours.ffn_size, theirs.ffn_size);
  compare("norm_eps", "rms_norm_eps", ours.norm_eps, theirs.norm_eps);
  compare("rope_theta", "rope_theta", ours.rope_theta, theirs.rope_theta);
  compare("tied_embeddings", "tie_word_embeddings", ours.tied, theirs.tied);
  const RotaryScaling none{.factor = 1};
  const RotaryScaling a = ours.scaling.value_or(none), b = theirs.scaling.value_or(none);
  compare("rope_scaling_factor", "rope_scaling.factor", a.factor, b.factor);
  if (ours.scaling && theirs.scaling) {
    compare("rope_scaling_low_freq_factor", "rope_scaling.low_freq_factor", a.low_freq_factor, b.low_freq_factor);
    compare("rope_scaling_high_freq_factor", "rope_scaling.high_freq_factor", a.high_freq_factor, b.high_freq_factor);
    compare("rope_scaling_original_length", "rope_scaling.original_max_position_embeddings", a.original_length, b.original_length);
  }
  return lines;
}

std::string model_section(const ModelFacts& f, const std::string& family) {
  std::string text = "[model]\nname = \"" + family + "\"\ndim = " + text_of(f.hidden_size) + "\nn_layers = " + text_of(f.layers) +
                     "\nn_heads = " + text_of(f.heads) + "\nn_kv_heads = " + text_of(f.kv_heads) + "\nffn_hidden = " + text_of(f.ffn_size) +
                     "\nvocab_size = " + text_of(f.vocab_size) + "\nnorm_eps = " + text_of(f.norm_eps) + "\nrope_theta = " + text_of(f.rope_theta) +
                     "\ntied_embeddings = " + text_of(f.tied) + "\n";
  if (f.scaling)
    text += "rope_scaling_factor = " + text_of(f.scaling->factor) + "\nrope_scaling_low_freq_factor = " + text_of(f.scaling->low_freq_factor) +
            "\nrope_scaling_high_freq_factor = " + text_of(f.scaling->high_freq_factor) +
            "\nrope_scaling_original_length = " + text_of(f.scaling->original_length) + "\n";
  return text;
}

std::string write_model_facts(const ModelFacts& f, const std::string& family, StoredType dtype) {
  const ForeignNames* const names = hugging_face_names(family);
  nlohmann::ordered_json config{{"architectures", {names != nullptr ? names->architecture : ""}},
                                {"model_type", names != nullptr ? names->model_type : ""},
                                {"vocab_size", f.vocab_size},
                                {"hidden_size", f.hidden_size},
                                {"intermediate_size", f.ffn_size},
                                {"num_hidden_layers", f.layers},
                                {"num_attention_heads", f.heads},
                                {"num_key_value_heads", f.kv_heads},
                                {"head_dim", f.head_dim},
                                {"hidden_act", "silu"},
                                {"rms_norm_eps", f.norm_eps},
                                {"rope_theta", f.rope_theta},
                                {"tie_word_embeddings", f.tied},
                                {"attention_bias", false},
                                {"mlp_bias", false},
                                {"torch_dtype", dtype == StoredType::bf16  ? "bfloat16"
                                                : dtype == StoredType::f16 ? "float16"
                                                                           : "float32"}};
  if (f.max_positions > 0) config["max_position_embeddings"] = f.max_positions;
  config["rope_scaling"] = nullptr;
  if (f.scaling)
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", f.scaling->factor},
                              {"low_freq_factor", f.scaling->low_freq_factor},
                              {"high_freq_factor", f.scaling->high_freq_factor},
                              {"original_max_position_embeddings", f.scaling->original_length}};
  config["bos_token_id"] = f.bos ? nlohmann::ordered_json(*f.bos) : nlohmann::ordered_json();
  config["eos_token_id"] = f.eos.empty() ? nlohmann::ordered_json() : f.eos.size() == 1 ? nlohmann::ordered_json(f.eos.front()) : nlohmann::ordered_json(f.eos);
  return config.dump(2) + "\n";
}

}  // namespace troupe
