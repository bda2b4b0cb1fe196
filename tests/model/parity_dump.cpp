// Writes weights, batch, loss and gradients of one small model as a safetensors file for parity_transformers.py:
//   model_parity_dump plain|tied|scaled FILE
#include <iostream>

#include "tests/model/ranks.hpp"
#include "tests/model/safetensors_writer.hpp"

namespace troupe::test {
namespace {

Llama3Flavour parity_flavour(bool tied) {
  Llama3Flavour flavour = llama3_flavour("tiny").value();
  flavour.dim = 64;
  flavour.layers = 3;
  flavour.heads = 4;
  flavour.kv_heads = 2;
  flavour.ffn_hidden = 160;
  flavour.vocab_size = 96;
  flavour.tied = tied;
  return flavour;
}

std::vector<std::int64_t> sizes(const Shape& shape) { return {shape.size.begin(), shape.size.begin() + shape.rank}; }

void dump(const std::string& which, const std::string& file) {
  Llama3Options family;
  if (which == "scaled") family.rope_scaling = RotaryScaling{8, 1, 4, 64};
  TrainingOptions options;
  options.batch = {2, 48};
  const FillRow rows = [fill = markov_rows(96)](Step step, std::uint64_t row, std::span<std::int32_t> tokens, std::span<std::int32_t> labels) {
    fill(step, row, tokens, labels);
    for (std::size_t i = row; i < labels.size(); i += 7) labels[i] = -100;
  };
  on_ranks(describe_llama3(parity_flavour(which == "tied"), family), options, [&](RankContext& rank) {
    SafetensorsWriter out;
    std::vector<std::byte> batch(options.batch.bytes());
    const PlainStep::Load load = deal(options, rows);
    load(Step{1}, Micro{0}, batch);
    const std::vector<std::int64_t> shape{options.batch.rows, options.batch.seq_len};
    out.add("tokens", "I32", shape, batch.data(), batch.size() / 2);
    out.add("labels", "I32", shape, batch.data() + batch.size() / 2, batch.size() / 2);
    for (const StateTensor& w : rank.model.state()) {
      if (w.model) out.add("weight." + w.name, "F32", sizes(w.global_shape), w.view.data, w.view.bytes());
    }
    PlainStep plain(rank.model, rank.device, rank.communicator, load);
    const Verdict verdict = plain.run(EpochId{1}, Step{1}, 0.0).verdict;
    const double to_mean = static_cast<double>(options.batch.tokens()) / verdict.tokens;
    for (const StateTensor& g : rank.model.gradients()) {
      for (std::int64_t i = 0; i < g.view.shape.elements(); ++i) g.view.as<float>()[i] = static_cast<float>(g.view.as<float>()[i] * to_mean);
      out.add("gradient." + g.name, "F32", sizes(g.global_shape), g.view.data, g.view.bytes());
    }
    out.add("loss", "F64", {1}, &verdict.mean_loss, sizeof(double));
    out.add("grad_norm", "F64", {1}, &verdict.grad_norm, sizeof(double));
    out.write(file);
  });
}

}  // namespace
}  // namespace troupe::test

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr << "usage: model_parity_dump plain|tied|scaled FILE\n";
    return 2;
  }
  try {
    troupe::test::dump(arguments[1], arguments[2]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
