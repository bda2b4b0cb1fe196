#include "src/model/sample.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>

#include "src/model/device_rotary_table.hpp"
#include "src/model/tape_program.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t length_step = 32;  // contexts are padded to multiples of this; what comes after a token does not reach it

/// Forward of one context length, with its own arena.
class Inference {
 public:
  Inference(TrainingModel& model, Device& device, std::uint32_t length)
      : device_(device),
        layout_(model.estimate().layout),
        plan_(plan_tapes(model.description(), layout_, {1, static_cast<std::int64_t>(length), model.options().compute}, {.inference = true})),
        arena_(device.allocate(plan_.arena_bytes, Placement::device)),
        batch_(device.allocate(std::size_t{2} * length * sizeof(std::int32_t), Placement::device)),
        row_(device.allocate(static_cast<std::size_t>(model.description().vocab_size) * sizeof(double), Placement::device)) {
    const DType type = plan_.sizes.compute == DType::f64 ? DType::f64 : DType::f32;
    const Shape shape{plan_.sizes.seq_len, model.description().head_dim / 2, 2};
    rotary_ = device.allocate(static_cast<std::size_t>(shape.elements()) * size_of(type), Placement::device);
    const TensorView rotary = TensorView::contiguous(rotary_->bytes().data(), type, shape, device.info().id);
    fill_rotary_table(device, model.description().rotary, rotary);
    program_ =
        std::make_unique<TapeProgram>(TapeProgram::Inputs{plan_, layout_, device.kernels(), arena_->bytes(), rotary, model.float8_scales(), nullptr, 1.0});
  }

  /// Logits that follow the last of `tokens`, on the host.
  std::vector<double> next(std::span<const std::int32_t> tokens, const std::vector<std::unique_ptr<Buffer>>& weights) {
    std::vector<std::int32_t> padded(static_cast<std::size_t>(plan_.sizes.seq_len), 0);
    std::copy(tokens.begin(), tokens.end(), padded.begin());
    const auto from = std::as_bytes(std::span(padded));
    device_.upload_now(from, batch_->bytes().first(from.size()));
    Stream& stream = device_.setup_stream();
    for (std::uint32_t u = 0; u < weights.size(); ++u) program_->forward(stream, Step{0}, Micro{0}, Unit{u}, batch_->bytes(), weights[u]->bytes());
    const TensorView logits = program_->logits();
    std::vector<double> row(static_cast<std::size_t>(logits.shape[1]));
    TensorView last = logits.rows(static_cast<std::int64_t>(tokens.size()) - 1, 1);
    last = TensorView::contiguous(last.data, last.dtype, {logits.shape[1]}, last.device);
    const TensorView wide = TensorView::contiguous(row_->bytes().data(), DType::f64, last.shape, last.device);
    device_.kernels().cast(stream, last, wide);
    device_.download_now(bytes_of(wide), std::as_writable_bytes(std::span(row)));
    return row;
  }
  [[nodiscard]] std::int64_t length() const noexcept { return plan_.sizes.seq_len; }

 private:
  Device& device_;
  const WeightLayout& layout_;
  TapePlan plan_;
  std::unique_ptr<Buffer> arena_, batch_, rotary_, row_;  // row_: one row of logits in fp64
  std::unique_ptr<TapeProgram> program_;
};

/// Draws from softmax(logits / temperature) with one uniform number in [0, 1).
std::int32_t draw(const std::vector<double>& logits, double temperature, double uniform) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0) return static_cast<std::int32_t>(best - logits.begin());
  double total = 0;
  std::vector<double> up_to;
  up_to.reserve(logits.size());
  for (const double logit : logits) up_to.push_back(total += std::exp((logit - *best) / temperature));
  const auto chosen = std::upper_bound(up_to.begin(), up_to.end(), uniform * total);
  return static_cast<std::int32_t>(std::min(chosen - up_to.begin(), static_cast<std::ptrdiff_t>(logits.size()) - 1));
}

void check(const TrainingModel& model, std::span<const std::int32_t> prompt) {
  if (prompt.empty()) throw std::invalid_argument("sample: an empty prompt; give at least one token");
  for (const std::int32_t token : prompt) {
    if (token < 0 || token >= model.description().vocab_size) {
      throw std::invalid_argument("sample: token " + std::to_string(token) + " is outside the vocabulary of " + std::to_string(model.description().vocab_size));
    }
  }
}

}  // namespace

std::vector<std::int32_t> sample(TrainingModel& model, Device& device, std::span<const std::int32_t> prompt, const SampleOptions& options) {
  check(model, prompt);
  std::vector<std::unique_ptr<Buffer>> weights;
  for (std::uint32_t u = 0; u < model.units(); ++u) {
    weights.push_back(device.allocate(model.shards().weights_bytes(Unit{u}), Placement::device));
    model.place_weights(device.setup_stream(), Unit{u}, weights.back()->bytes());
  }
  std::mt19937_64 random(options.seed);
  std::vector<std::int32_t> text(prompt.begin(), prompt.end());
  std::unique_ptr<Inference> inference;
  while (text.size() < prompt.size() + options.count) {
    const auto context = static_cast<std::uint32_t>(std::min<std::size_t>(text.size(), options.context));
    const std::uint32_t length = (context + length_step - 1) / length_step * length_step;
    if (!inference || inference->length() != length) inference = std::make_unique<Inference>(model, device, length);
    const std::vector<double> logits = inference->next(std::span(text).last(context), weights);
    text.push_back(draw(logits, options.temperature, static_cast<double>(random() >> 11) * 0x1p-53));
    if (text.back() == options.stop_token) break;
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

}  // namespace troupe
