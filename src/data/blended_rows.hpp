#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "src/data/blend.hpp"
#include "src/data/open_documents.hpp"
#include "src/data/row_sampler.hpp"

namespace troupe {

/// Global row k of one corpus, or of several as a Blend: then it is the next row of the source that the blend draws. Each source begins anew when it is
/// used up. A pure function of (corpora, weights, options, k). One thread; reads files.
class BlendedRows {
 public:
  /// `weights`: one a corpus; may be empty where there is one. `reads`: how each corpus's files are read; may be empty. Throws std::invalid_argument.
  BlendedRows(const Corpora& corpora, const std::vector<double>& weights, const SamplerOptions& options,
              const std::function<ReadFile(const std::shared_ptr<const TokenDocuments>&)>& reads = {});
  /// As RowSampler::row.
  std::uint64_t row(std::uint64_t k, std::span<std::int32_t> tokens, std::span<std::int32_t> labels, std::span<std::int32_t> starts = {});

  struct Origin {
    std::uint32_t source = 0;
    std::uint64_t row = 0;  ///< of that source
    std::vector<RowPiece> pieces;
  };
  [[nodiscard]] Origin origin(std::uint64_t k);

 private:
  [[nodiscard]] Blend::Draw draw(std::uint64_t k);

  std::vector<std::unique_ptr<RowSampler>> samplers_;  ///< by source
  std::optional<Blend> blend_;
};

}  // namespace troupe
