#include "src/model/generate.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>

#include "src/device/cached_attention.hpp"
#include "src/model/device_rotary_table.hpp"
#include "src/model/tape_program.hpp"

namespace troupe {
namespace {

/// What stays from token to token: weights, keys and values, the rotary table.
class Kept {
 public:
  Kept(TrainingModel& model, Device& device, CachedAttention& attention, std::int64_t capacity) : model_(model), device_(device) {
    const ModelDescription& description = model.description();
    const DType compute = model.options().compute;
    cache_.attention = &attention;
    for (std::uint32_t u = 0; u < model.units(); ++u) {
      weights_.push_back(device.allocate(model.shards().weights_bytes(Unit{u}), Placement::device));
      model.place_weights(device.setup_stream(), Unit{u}, weights_.back()->bytes());
      cache_.units.push_back(unit_of(description.units[u].tape, compute, capacity));
    }
    const DType type = compute == DType::f64 ? DType::f64 : DType::f32;
    const Shape shape{capacity, description.head_dim / 2, 2};
    rotary_ = TensorView::contiguous(memory(static_cast<std::size_t>(shape.elements()) * size_of(type)), type, shape, device.info().id);
    fill_rotary_table(device, description.rotary, rotary_);
  }
  [[nodiscard]] std::byte* memory(std::size_t bytes) { return buffers_.emplace_back(device_.allocate(bytes, Placement::device))->bytes().data(); }

  TrainingModel& model_;
  Device& device_;
  std::vector<std::unique_ptr<Buffer>> weights_, buffers_;
  KeyValueCache cache_;
  TensorView rotary_;

 private:
  KeyValueCache::Unit unit_of(const Tape& tape, DType compute, std::int64_t capacity) {
    const auto attention = std::ranges::find(tape.steps, OperationType::attention, &TapeStep::type);
    if (attention == tape.steps.end()) return {};
    const Shape shape{capacity, attention->kv_heads * attention->head_dim};
    const auto cached = [&] {
      return TensorView::contiguous(memory(static_cast<std::size_t>(shape.elements()) * size_of(compute)), compute, shape, device_.info().id);
    };
    return {cached(), cached()};
  }
};

/// Forward of a fixed number of tokens behind those that are kept.
class Pass {
 public:
  Pass(Kept& kept, std::int64_t tokens)
      : kept_(kept),
        plan_(plan_tapes(kept.model_.description(), kept.model_.estimate().layout, {1, tokens, kept.model_.options().compute}, {.inference = true})),
        arena_(kept.device_.allocate(plan_.arena_bytes, Placement::device)),
        batch_(kept.device_.allocate(2 * static_cast<std::size_t>(tokens) * sizeof(std::int32_t), Placement::device)),
        row_(kept.device_.allocate(static_cast<std::size_t>(kept.model_.description().vocab_size) * sizeof(double), Placement::device)),
        program_(TapeProgram::Inputs{.plan = plan_,
                                     .layout = kept.model_.estimate().layout,
                                     .kernels = kept.device_.kernels(),
                                     .arena = arena_->bytes(),
                                     .rotary = kept.rotary_,
                                     .scales = kept.model_.float8_scales(),
                                     .totals = nullptr,
                                     .gradient_scale = 1,
                                     .loss = {},
                                     .cache = &kept.cache_}) {}

  /// Logits behind the last of `tokens`, on the host.
  std::vector<double> run(std::span<const std::int32_t> tokens) {
    kept_.device_.upload_now(std::as_bytes(tokens), batch_->bytes().first(tokens.size_bytes()));
    Stream& stream = kept_.device_.setup_stream();
    for (std::uint32_t u = 0; u < kept_.weights_.size(); ++u) program_.forward(stream, Step{0}, Micro{0}, Unit{u}, batch_->bytes(), kept_.weights_[u]->bytes());
    kept_.cache_.length += static_cast<std::int64_t>(tokens.size());
    const TensorView logits = program_.logits();
    std::vector<double> row(static_cast<std::size_t>(logits.shape[1]));
    TensorView last = logits.rows(static_cast<std::int64_t>(tokens.size()) - 1, 1);
    last = TensorView::contiguous(last.data, last.dtype, {logits.shape[1]}, last.device);
    const TensorView wide = TensorView::contiguous(row_->bytes().data(), DType::f64, last.shape, last.device);
    kept_.device_.kernels().cast(stream, last, wide);
    kept_.device_.download_now(bytes_of(wide), std::as_writable_bytes(std::span(row)));
    return row;
  }

 private:
  Kept& kept_;
  TapePlan plan_;
  std::unique_ptr<Buffer> arena_, batch_, row_;  // row_: one row of logits in fp64
  TapeProgram program_;
};

void check(const TrainingModel& model, std::span<const std::int32_t> prompt, const GenerateOptions& options) {
  if (prompt.empty()) throw std::invalid_argument("generate: an empty prompt; give at least one token");
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw std::invalid_argument("generate: top_p is " + std::to_string(options.top_p) + ", expected above 0 and at most 1");
  for (const std::int32_t token : prompt) {
    if (token < 0 || token >= model.description().vocab_size)
      throw std::invalid_argument("generate: token " + std::to_string(token) + " is outside the vocabulary of " +
                                  std::to_string(model.description().vocab_size));
  }
}

}  // namespace

std::int32_t draw_token(std::span<const double> logits, double temperature, double top_p, double uniform) {
  const auto best = std::ranges::max_element(logits);
  if (temperature <= 0) return static_cast<std::int32_t>(best - logits.begin());
  std::vector<std::pair<double, std::int32_t>> weights;
  for (std::size_t i = 0; i < logits.size(); ++i) weights.emplace_back(std::exp((logits[i] - *best) / temperature), static_cast<std::int32_t>(i));
  if (top_p < 1) {
    std::ranges::stable_sort(weights, std::greater<>{}, [](const auto& w) { return w.first; });
    const double enough = top_p * std::accumulate(weights.begin(), weights.end(), 0.0, [](double sum, const auto& w) { return sum + w.first; });
    double sum = 0;
    std::size_t kept = 0;
    while (kept < weights.size() && sum < enough) sum += weights[kept++].first;
    weights.resize(std::max<std::size_t>(kept, 1));
  }
  double total = 0;
  for (const auto& weight : weights) total += weight.first;
  double rest = uniform * total;
  for (const auto& [weight, token] : weights) {
    rest -= weight;
    if (rest < 0) return token;
  }
  return weights.back().second;
}

std::vector<double> next_logits(TrainingModel& model, Device& device, CachedAttention& attention, std::span<const std::int32_t> tokens) {
  check(model, tokens, {});
  Kept kept(model, device, attention, static_cast<std::int64_t>(tokens.size()));
  return Pass(kept, static_cast<std::int64_t>(tokens.size())).run(tokens);
}

std::vector<std::int32_t> generate(TrainingModel& model, Device& device, CachedAttention& attention, std::span<const std::int32_t> prompt,
                                   const GenerateOptions& options) {
  check(model, prompt, options);
  std::vector<std::int32_t> text;
  if (options.count == 0) return text;
  Kept kept(model, device, attention, static_cast<std::int64_t>(prompt.size() + options.count));
  std::mt19937_64 random(options.seed);
  std::vector<double> logits = Pass(kept, static_cast<std::int64_t>(prompt.size())).run(prompt);
  std::optional<Pass> one;
  while (true) {
    const std::int32_t token = draw_token(logits, options.temperature, options.top_p, static_cast<double>(random() >> 11U) * 0x1p-53);
    text.push_back(token);
    if (options.told) options.told(token);
    if (text.size() == options.count || std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end()) return text;
    if (!one) one.emplace(kept, 1);
    logits = one->run(std::span(&token, 1));
  }
}

}  // namespace troupe
