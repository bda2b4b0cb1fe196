#include "src/checkpoint/tensor_names.hpp"

#include <algorithm>
#include <array>

namespace troupe {
namespace {

constexpr std::array llama_names = {
    NamePair{"tok_embeddings.weight", "model.embed_tokens.weight"},
    NamePair{"layers.{}.attention.wq.weight", "model.layers.{}.self_attn.q_proj.weight", RowOrder::rotary_halves},
    NamePair{"layers.{}.attention.wk.weight", "model.layers.{}.self_attn.k_proj.weight", RowOrder::rotary_halves},
    NamePair{"layers.{}.attention.wv.weight", "model.layers.{}.self_attn.v_proj.weight"},
    NamePair{"layers.{}.attention.wo.weight", "model.layers.{}.self_attn.o_proj.weight"},
    NamePair{"layers.{}.feed_forward.w1.weight", "model.layers.{}.mlp.gate_proj.weight"},
    NamePair{"layers.{}.feed_forward.w2.weight", "model.layers.{}.mlp.down_proj.weight"},
    NamePair{"layers.{}.feed_forward.w3.weight", "model.layers.{}.mlp.up_proj.weight"},
    NamePair{"layers.{}.attention_norm.weight", "model.layers.{}.input_layernorm.weight"},
    NamePair{"layers.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight"},
    NamePair{"norm.weight", "model.norm.weight"},
    NamePair{"output.weight", "lm_head.weight"},
};
// lm_head stands here for tied models, which hold it once; of others it is a parameter and so asked for before.
constexpr std::array<std::string_view, 3> llama_left_out = {"model.layers.{}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq", "lm_head.weight"};

constexpr std::array families = {
    ForeignNames{"llama3", "LlamaForCausalLM", "llama", llama_names, llama_left_out},
};

constexpr std::array torchtitan_pairs = {
    NamePair{"optimizer.exp_avg.{}", "optimizer.state.{}.exp_avg"},
    NamePair{"optimizer.exp_avg_sq.{}", "optimizer.state.{}.exp_avg_sq"},
    NamePair{"optimizer.step.{}", "optimizer.state.{}.step"},
    NamePair{"{}", "{}"},
};
constexpr std::array<std::string_view, 5> torchtitan_left_out = {"freqs_cis", "train_state.{}", "lr_scheduler.{}", "dataloader.{}",
                                                                 "optimizer.param_groups.{}"};
constexpr ForeignNames torchtitan{"", "", "", torchtitan_pairs, torchtitan_left_out};

}  // namespace

std::optional<std::string> fit_name(std::string_view pattern, std::string_view name) {
  const std::size_t hole = pattern.find("{}");
  if (hole == std::string_view::npos) return pattern == name ? std::optional<std::string>{""} : std::nullopt;
  const std::string_view before = pattern.substr(0, hole), after = pattern.substr(hole + 2);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) return std::nullopt;
  return std::string(name.substr(before.size(), name.size() - before.size() - after.size()));
}

std::optional<ForeignName> name_there(const ForeignNames& names, std::string_view ours) {
  for (const NamePair& pair : names.names) {
    const auto middle = fit_name(pair.ours, ours);
    if (!middle) continue;
    const std::size_t hole = pair.theirs.find("{}");
    if (hole == std::string_view::npos) return ForeignName{std::string(pair.theirs), pair.order};
    return ForeignName{std::string(pair.theirs.substr(0, hole)) + *middle + std::string(pair.theirs.substr(hole + 2)), pair.order};
  }
  return std::nullopt;
}

bool left_out(const ForeignNames& names, std::string_view theirs) {
  return std::ranges::any_of(names.left_out, [&](std::string_view pattern) { return fit_name(pattern, theirs).has_value(); });
}

const ForeignNames* hugging_face_names(std::string_view family) {
  const auto found = std::ranges::find(families, family, &ForeignNames::family);
  return found == families.end() ? nullptr : &*found;
}

const ForeignNames& torchtitan_names() { return torchtitan; }

std::int64_t row_there(RowOrder order, std::int64_t head_dim, std::int64_t row) noexcept {
  if (order == RowOrder::same) return row;
  const std::int64_t in_head = row % head_dim;
  return row - in_head + (in_head % 2) * (head_dim / 2) + in_head / 2;
}

}  // namespace troupe
