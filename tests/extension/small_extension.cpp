#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/model/extension.hpp"

/// A family, a loss and a data set of one's own: what docs/extensions.md shows.
namespace {

using namespace troupe;

ParameterDescription matrix(std::string name, std::int64_t rows, std::int64_t cols, double deviation) {
  return {.name = std::move(name),
          .rows = rows,
          .cols = cols,
          .vector = false,
          .linear = true,
          .tied_to = {},
          .initialisation = {.kind = Initialisation::Kind::normal, .std = deviation, .cut = 2}};
}

ParameterDescription scale(std::string name, std::int64_t width) {
  return {.name = std::move(name),
          .rows = width,
          .cols = 1,
          .vector = true,
          .linear = false,
          .tied_to = {},
          .initialisation = {.kind = Initialisation::Kind::ones, .std = 0, .cut = 0}};
}

/// Attention and feed-forward read the same normalised input, and are added together.
UnitDescription parallel_block(const std::string& name, std::int64_t dim, std::int64_t heads, std::int64_t ffn) {
  enum { wq, wk, wv, wo, gate, up, down, norm };
  TapeBuilder t;
  const ValueIndex x = t.input("x", dim);
  const ValueIndex h = t.rms_norm("norm", x, norm, 1e-5);
  const ValueIndex q = t.rotary("q.rotated", t.linear("q", h, wq, dim), heads, dim / heads);
  const ValueIndex k = t.rotary("k.rotated", t.linear("k", h, wk, dim), heads, dim / heads);
  const ValueIndex a = t.attention("attention", q, k, t.linear("v", h, wv, dim), heads, heads, dim / heads);
  const ValueIndex f = t.linear("down", t.swiglu("swiglu", t.linear("gate", h, gate, ffn), t.linear("up", h, up, ffn)), down, dim);
  const ValueIndex both = t.add("both", t.linear("o", a, wo, dim), f);
  const std::string p = name + ".";
  return {.name = name,
          .parameters = {matrix(p + "wq", dim, dim, 0.02), matrix(p + "wk", dim, dim, 0.02), matrix(p + "wv", dim, dim, 0.02), matrix(p + "wo", dim, dim, 0.01),
                         matrix(p + "gate", ffn, dim, 0.02), matrix(p + "up", ffn, dim, 0.02), matrix(p + "down", dim, ffn, 0.01), scale(p + "norm", dim)},
          .tape = t.finish(t.add("y", x, both))};
}

Result<ModelDescription> parallel_family(const ModelSettings& settings, std::optional<std::int64_t> tokenizer_vocab) {
  if (settings.flavor != "small") return Error{"model.flavor is \"" + settings.flavor + "\"; parallel has small"};
  const std::int64_t dim = settings.dim.value_or(32), layers = settings.n_layers.value_or(2), heads = 4, vocabulary = tokenizer_vocab.value_or(258);
  ModelDescription model{
      .name = "parallel small", .vocab_size = vocabulary, .dim = dim, .layers = layers, .heads = heads, .head_dim = dim / heads, .rotary = {}, .units = {}};
  model.rotary.head_dim = dim / heads;
  TapeBuilder first, last;
  ParameterDescription table = matrix("table", vocabulary, dim, 1.0);
  table.linear = false;
  const ValueIndex embedded = first.embedding("x", 0, dim);
  model.units.push_back({.name = "embedding", .parameters = {table}, .tape = first.finish(embedded)});
  for (std::int64_t layer = 0; layer < layers; ++layer) model.units.push_back(parallel_block("block " + std::to_string(layer), dim, heads, 64));
  const ValueIndex x = last.input("x", dim);
  last.cross_entropy(last.linear("logits", last.rms_norm("norm", x, 0, 1e-5), 1, vocabulary));
  model.units.push_back({.name = "head", .parameters = {scale("norm", dim), matrix("output", vocabulary, dim, 0.1)}, .tape = last.finish(-1)});
  return model;
}

/// Cross entropy with a tenth of the target spread over all tokens; fp32 logits in host memory.
void smoothed(Stream&, TensorView logits, TensorView labels, double grad_scale, VerdictSums* sums) {
  const std::int64_t rows = logits.shape[0], width = logits.shape[1];
  const double spread = 0.1 / static_cast<double>(width);
  for (std::int64_t row = 0; row < rows; ++row) {
    auto* const values = reinterpret_cast<float*>(logits.data) + row * width;
    std::int32_t label = 0;
    std::memcpy(&label, labels.data + static_cast<std::size_t>(row) * sizeof label, sizeof label);
    double most = values[0], total = 0, sum = 0;
    for (std::int64_t i = 0; i < width; ++i) most = std::max(most, static_cast<double>(values[i]));
    for (std::int64_t i = 0; i < width; ++i) {
      total += std::exp(values[i] - most);
      sum += values[i];
    }
    const double log_total = most + std::log(total);
    if (label >= 0) {
      const double loss = log_total - 0.9 * values[label] - spread * sum;
      sums->loss += loss;
      sums->tokens += 1;
      sums->bad += std::isfinite(loss) ? 0 : 1;
    }
    for (std::int64_t i = 0; i < width; ++i) {
      const double target = spread + (i == label ? 0.9 : 0.0);
      values[i] = label < 0 ? 0.0F : static_cast<float>((std::exp(values[i] - log_total) - target) * grad_scale);
    }
  }
}

void add_small(Extensions& to) {
  to.families["parallel"] = parallel_family;
  to.losses["smoothed"] = smoothed;
  to.data_sets["counting"] = {.form = "jsonl", .paths = {EXTENSION_DATA}};
}

}  // namespace

TROUPE_EXTENSION(add_small);
