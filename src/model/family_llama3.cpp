#include "src/model/family_llama3.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace troupe {
namespace {

constexpr Initialisation ones{.kind = Initialisation::Kind::ones, .std = 0, .cut = 0};

ParameterDescription matrix(std::string name, std::int64_t rows, std::int64_t cols, double std, double cut) {
  return {.name = std::move(name), .rows = rows, .cols = cols, .vector = false, .linear = true, .tied_to = {}, .initialisation = {.std = std, .cut = cut}};
}

ParameterDescription norm(std::string name, std::int64_t dim) {
  return {.name = std::move(name), .rows = dim, .cols = 1, .vector = true, .linear = false, .tied_to = {}, .initialisation = ones};
}

UnitDescription embedding_unit(const Llama3Flavour& f) {
  TapeBuilder tape;
  const ValueIndex x = tape.embedding("x", 0, f.dim);
  ParameterDescription table = matrix("tok_embeddings.weight", f.vocab_size, f.dim, 1.0, 0.0);
  table.linear = false;
  return {.name = "embedding", .parameters = {std::move(table)}, .tape = tape.finish(x)};
}

/// Pre-norm attention and SwiGLU, each added to the residual stream.
Tape block_tape(const Llama3Flavour& f) {
  const std::int64_t head_dim = f.dim / f.heads, kv_dim = f.kv_heads * head_dim, ffn = llama3_ffn_width(f);
  enum { wq, wk, wv, wo, w1, w2, w3, attention_norm, ffn_norm };
  TapeBuilder t;
  const ValueIndex x = t.input("x", f.dim);
  const ValueIndex h = t.rms_norm("attention_norm", x, attention_norm, f.norm_eps);
  const ValueIndex q = t.rotary("q.rotated", t.linear("q", h, wq, f.dim), f.heads, head_dim);
  const ValueIndex k = t.rotary("k.rotated", t.linear("k", h, wk, kv_dim), f.kv_heads, head_dim);
  const ValueIndex v = t.linear("v", h, wv, kv_dim);
  const ValueIndex a = t.attention("attention", q, k, v, f.heads, f.kv_heads, head_dim);
  const ValueIndex r = t.add("residual", x, t.linear("o", a, wo, f.dim));
  const ValueIndex g = t.rms_norm("ffn_norm", r, ffn_norm, f.norm_eps);
  const ValueIndex gate = t.linear("gate", g, w1, ffn);
  const ValueIndex up = t.linear("up", g, w3, ffn);
  const ValueIndex down = t.linear("down", t.swiglu("swiglu", gate, up), w2, f.dim);
  return t.finish(t.add("y", r, down));
}

UnitDescription block_unit(const Llama3Flavour& f, std::int64_t layer, bool depth_init) {
  const std::int64_t kv_dim = f.kv_heads * (f.dim / f.heads), ffn = llama3_ffn_width(f);
  const double depth = 0.02 / std::sqrt(2.0 * static_cast<double>(depth_init ? layer + 1 : f.layers));
  const std::string p = "layers." + std::to_string(layer) + ".";
  // The cut at ±2 is absolute, a hundred standard deviations away. w3 takes the depth's std, w1 does not.
  return {
      .name = "layer " + std::to_string(layer),
      .parameters = {matrix(p + "attention.wq.weight", f.dim, f.dim, 0.02, 2), matrix(p + "attention.wk.weight", kv_dim, f.dim, 0.02, 2),
                     matrix(p + "attention.wv.weight", kv_dim, f.dim, 0.02, 2), matrix(p + "attention.wo.weight", f.dim, f.dim, depth, 2),
                     matrix(p + "feed_forward.w1.weight", ffn, f.dim, 0.02, 2), matrix(p + "feed_forward.w2.weight", f.dim, ffn, depth, 2),
                     matrix(p + "feed_forward.w3.weight", ffn, f.dim, depth, 2), norm(p + "attention_norm.weight", f.dim), norm(p + "ffn_norm.weight", f.dim)},
      .tape = block_tape(f)};
}

UnitDescription head_unit(const Llama3Flavour& f) {
  TapeBuilder t;
  const ValueIndex x = t.input("x", f.dim);
  const ValueIndex h = t.rms_norm("norm", x, 0, f.norm_eps);
  t.cross_entropy(t.linear("logits", h, 1, f.vocab_size));
  const double std = 1.0 / std::sqrt(static_cast<double>(f.dim));
  ParameterDescription output = matrix("output.weight", f.vocab_size, f.dim, std, 3 * std);
  if (f.tied) output.tied_to = "tok_embeddings.weight";
  return {.name = "head", .parameters = {norm("norm.weight", f.dim), std::move(output)}, .tape = t.finish(-1)};
}

}  // namespace

const std::vector<Llama3Flavour>& llama3_flavours() {
  static const std::vector<Llama3Flavour> flavours = {
      // name        dim  layers heads kv  mult  multiple_of vocab
      {"tiny", 32, 2, 4, 2, 1.0, 32, 64},
      {"tiny_tied", 32, 2, 4, 2, 1.0, 32, 64, 0, true},
      {"quickstart", 256, 4, 8, 4, 1.0, 256, 258},
      {"debugmodel", 256, 6, 16, 16, 1.0, 256, 2048},
      {"1B", 2048, 16, 32, 8, 1.5, 1024, 128256, 0, true},
      {"3B", 3072, 28, 24, 8, 1.0, 1024, 128256, 0, true},
      {"8B", 4096, 32, 32, 8, 1.3, 1024, 128256},
      {"70B", 8192, 80, 64, 8, 1.3, 4096, 128256},
      {"405B", 16384, 126, 128, 8, 1.2, 4096, 128256},
  };
  return flavours;
}

Result<Llama3Flavour> llama3_flavour(std::string_view name) {
  std::string known;
  for (const Llama3Flavour& f : llama3_flavours()) {
    if (f.name == name) return f;
    known += (known.empty() ? "" : ", ") + std::string(f.name);
  }
  return Error{"model.flavor is \"" + std::string(name) + "\"; llama3 has " + known};
}

std::int64_t llama3_ffn_width(const Llama3Flavour& flavour) {
  if (flavour.ffn_hidden > 0) return flavour.ffn_hidden;
  auto width = static_cast<std::int64_t>(2.0 * static_cast<double>(4 * flavour.dim) / 3.0);
  width = static_cast<std::int64_t>(flavour.ffn_multiplier * static_cast<double>(width));
  return (width + flavour.multiple_of - 1) / flavour.multiple_of * flavour.multiple_of;
}

ModelDescription describe_llama3(const Llama3Flavour& flavour, const Llama3Options& options) {
  const std::string sizes =
      "dim " + std::to_string(flavour.dim) + ", n_heads " + std::to_string(flavour.heads) + ", n_kv_heads " + std::to_string(flavour.kv_heads);
  if (flavour.dim % flavour.heads != 0 || flavour.heads % flavour.kv_heads != 0 || flavour.dim / flavour.heads % 2 != 0) {
    throw std::invalid_argument("llama3 cannot have " + sizes + ": n_heads must divide dim into heads of even width, n_kv_heads must divide n_heads");
  }
  ModelDescription model{.name = "llama3 " + std::string(flavour.name),
                         .vocab_size = flavour.vocab_size,
                         .dim = flavour.dim,
                         .layers = flavour.layers,
                         .heads = flavour.heads,
                         .head_dim = flavour.dim / flavour.heads,
                         .rotary = {.theta = flavour.rope_theta,
                                    .head_dim = flavour.dim / flavour.heads,
                                    .scaled = options.rope_scaling.has_value(),
                                    .scaling = options.rope_scaling.value_or(RotaryScaling{})},
                         .units = {}};
  model.units.push_back(embedding_unit(flavour));
  for (std::int64_t layer = 0; layer < flavour.layers; ++layer) model.units.push_back(block_unit(flavour, layer, options.depth_init));
  model.units.push_back(head_unit(flavour));
  return model;
}

}  // namespace troupe
