#include "src/model/families.hpp"

#include <stdexcept>

#include "src/model/extension.hpp"
#include "src/model/family_llama3.hpp"

namespace troupe {

Result<ModelDescription> describe_model(const ModelSettings& settings, std::optional<std::int64_t> tokenizer_vocab) {
  if (settings.extensions) {
    if (const auto family = settings.extensions->families.find(settings.name); family != settings.extensions->families.end())
      return family->second(settings, tokenizer_vocab);
  }
  if (settings.name != "llama3") return Error{"model.name is \"" + settings.name + "\"; this version has llama3"};
  Result<Llama3Flavour> found = llama3_flavour(settings.flavor);
  if (!found) return found.error();
  Llama3Flavour& f = *found;
  f.dim = settings.dim.value_or(f.dim);
  f.layers = settings.n_layers.value_or(f.layers);
  f.heads = settings.n_heads.value_or(f.heads);
  f.kv_heads = settings.n_kv_heads.value_or(f.kv_heads);
  f.ffn_hidden = settings.ffn_hidden.value_or(f.ffn_hidden);
  f.multiple_of = settings.multiple_of.value_or(f.multiple_of);
  f.ffn_multiplier = settings.ffn_dim_multiplier.value_or(f.ffn_multiplier);
  f.norm_eps = settings.norm_eps.value_or(f.norm_eps);
  f.rope_theta = settings.rope_theta.value_or(f.rope_theta);
  f.tied = settings.tied_embeddings.value_or(f.tied);
  f.vocab_size = settings.vocab_size.value_or(tokenizer_vocab.value_or(f.vocab_size));
  if (tokenizer_vocab && f.vocab_size < *tokenizer_vocab) {
    return Error{"model.vocab_size is " + std::to_string(f.vocab_size) + " but the tokenizer has " + std::to_string(*tokenizer_vocab) +
                 " ids; set at least that, or leave the key out"};
  }
  Llama3Options options;
  if (settings.rope_scaling_factor) {
    if (settings.rope_scaling_high_freq_factor <= settings.rope_scaling_low_freq_factor)
      return Error{"model.rope_scaling_high_freq_factor must be above model.rope_scaling_low_freq_factor"};
    options.rope_scaling = RotaryScaling{*settings.rope_scaling_factor, settings.rope_scaling_low_freq_factor, settings.rope_scaling_high_freq_factor,
                                         settings.rope_scaling_original_length};
  }
  try {
    return describe_llama3(f, options);
  } catch (const std::invalid_argument& refused) {
    return Error{std::string("[model]: ") + refused.what()};
  }
}

}  // namespace troupe
