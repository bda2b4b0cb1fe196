#include "src/data/blended_rows.hpp"

#include <stdexcept>
#include <string>

namespace troupe {

BlendedRows::BlendedRows(const Corpora& corpora, const std::vector<double>& weights, const SamplerOptions& options,
                         const std::function<ReadFile(const std::shared_ptr<const TokenDocuments>&)>& reads) {
  if (corpora.empty() || (weights.size() != corpora.size() && (corpora.size() > 1 || !weights.empty())))
    throw std::invalid_argument("a blend of " + std::to_string(corpora.size()) + " sources with " + std::to_string(weights.size()) + " weights");
  if (corpora.size() > 1) blend_.emplace(weights);
  SamplerOptions own = options;
  for (const auto& corpus : corpora) {
    samplers_.push_back(std::make_unique<RowSampler>(corpus, own, reads ? reads(corpus) : ReadFile{}));
    own.seed += 0x9e3779b97f4a7c15U;  // sources of equal size are not to be in the same order
  }
}

Blend::Draw BlendedRows::draw(std::uint64_t k) { return blend_ ? blend_->at(k) : Blend::Draw{0, k}; }

std::uint64_t BlendedRows::row(std::uint64_t k, std::span<std::int32_t> tokens, std::span<std::int32_t> labels, std::span<std::int32_t> starts) {
  const Blend::Draw from = draw(k);
  return samplers_[from.source]->row(from.row, tokens, labels, starts);
}

BlendedRows::Origin BlendedRows::origin(std::uint64_t k) {
  const Blend::Draw from = draw(k);
  return {from.source, from.row, samplers_[from.source]->pieces(from.row)};
}

}  // namespace troupe
