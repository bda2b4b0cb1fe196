#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "src/data/corpus.hpp"
#include "src/data/document_order.hpp"
#include "src/data/token_documents.hpp"

namespace troupe {

struct SamplerOptions {
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool add_bos = true, add_eos = true;
  bool mask_document_boundaries = true;
  std::uint32_t seq_len = 1;
};

/// Positions of one pass over the documents.
[[nodiscard]] std::uint64_t positions_of_pass(const TokenDocuments& documents, const SamplerOptions& options) noexcept;

/// A document's share of a row: its positions [first, first + count) in this pass over the corpus.
struct RowPiece {
  std::uint64_t pass = 0, document = 0, first = 0, count = 0;
};

/// Global row k: positions [k·seq_len, (k+1)·seq_len) of an endless sequence, all documents in the order of epoch 0, then of epoch
/// 1, and so on. A position is a token and the token after it, its target. A pure function of (documents, options, k).
///
/// With masked boundaries a document gives one position for each of its tokens but a closing eos, which is only a target; where a
/// document ends without eos, its last position has no target (label ignored_label). Without masking every token is a position
/// and the target of a document's last one is the first token of the next.
/// One thread: it holds a reader, and for the epochs in use the positions at which every 1024th document begins.
class RowSampler {
 public:
  /// Marks that the documents' tokenizer does not have are left out.
  RowSampler(std::shared_ptr<const TokenDocuments> documents, const SamplerOptions& options, ReadFile read_file = {});
  /// Of a corpus whose bytes are its tokens.
  RowSampler(std::shared_ptr<const Corpus> corpus, const SamplerOptions& options, ReadFile read_file = {});
  /// Writes seq_len tokens and labels; returns the count of labels that are not ignored. Throws std::runtime_error as DocumentReader.
  /// `starts`, if not empty: for each token, where in the row its document begins.
  std::uint64_t row(std::uint64_t k, std::span<std::int32_t> tokens, std::span<std::int32_t> labels, std::span<std::int32_t> starts = {});
  /// The documents of row k, in the order of its tokens.
  [[nodiscard]] std::vector<RowPiece> pieces(std::uint64_t k);
  /// Positions of one epoch; epoch of row k = k · seq_len / this.
  [[nodiscard]] std::uint64_t positions_per_epoch() const noexcept { return positions_; }

 private:
  struct Epoch {
    DocumentOrder order;
    std::vector<std::uint64_t> begins;  ///< position of document 0, 1024, 2048, … of the order
  };
  struct Cursor {
    std::uint64_t epoch = 0, index = 0, within = 0;  ///< document number `index` of the epoch's order, position in it
  };
  [[nodiscard]] std::uint64_t positions_of(std::uint64_t document) const noexcept;
  Epoch& epoch(std::uint64_t number);
  Cursor find(std::uint64_t position);
  std::int32_t first_token(const Cursor& after);
  void tokens_of(std::uint64_t document, std::uint64_t first, std::span<std::int32_t> out);
  void next_document(Cursor& cursor);

  std::shared_ptr<const TokenDocuments> documents_;
  SamplerOptions options_;
  std::unique_ptr<TokenReader> reader_;
  std::uint64_t marks_ = 0;  ///< positions of a document beside those of its own tokens
  std::uint64_t positions_ = 0;
  std::map<std::uint64_t, Epoch> epochs_;
};

}  // namespace troupe
