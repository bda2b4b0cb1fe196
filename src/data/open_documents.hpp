#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/record_encoder.hpp"
#include "src/data/settings.hpp"
#include "src/data/token_documents.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace troupe {

/// The tokenizer that `model.hf_assets_path` names; null where it is unset: tokens are bytes. The one in `kept` is used again while its files stay; null:
/// none is kept. Any thread.
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const std::optional<std::string>& hf_assets_path, KeptTokenizer* kept = nullptr);

/// Its hash, for checkpoints; 0: bytes.
[[nodiscard]] inline std::uint64_t hash_of(const std::shared_ptr<const Tokenizer>& tokenizer) { return tokenizer ? tokenizer->parts().hash : 0; }

/// How many ids the data has: the tokenizer's, or 258 where tokens are bytes. Token shards without a tokenizer say it themselves; Megatron's files cannot,
/// then nothing is known. Blocks to read the tokenizer.
[[nodiscard]] Result<std::optional<std::int64_t>> vocabulary_of(const DataSettings& settings, const std::optional<std::string>& hf_assets_path);

/// How texts become tokens.
struct DocumentOptions {
  std::shared_ptr<const Tokenizer> tokenizer = {};  ///< null: tokens are bytes
  RecordEncoding encoding = {};                     ///< how records become tokens
  unsigned threads = 0;                             ///< that tokenize; 0: as many as the machine has
  /// Called now and then, with bytes of text tokenized and in all. May be empty.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::function<void(const std::string&)> warn = {};  ///< of what was left out. May be empty
};
[[nodiscard]] Result<DocumentOptions> document_options(const DataSettings& settings, const std::optional<std::string>& hf_assets_path);

/// Opens a source as tokens. Blocks: texts are read once and, with a tokenizer, made to token shards in the source's index folder unless they lie there
/// (without such a folder, in a temporary one that is gone from view when this returns). Errors name file and place.
[[nodiscard]] Result<std::shared_ptr<const TokenDocuments>> open_documents(const CorpusOptions& source, const DocumentOptions& options);

/// The sources of a run's data: one, or those of a blend.
using Corpora = std::vector<std::shared_ptr<const TokenDocuments>>;
/// Opens each; the error is that of the first that cannot be.
[[nodiscard]] Result<Corpora> open_corpora(const std::vector<CorpusOptions>& sources, const DocumentOptions& options = {});

}  // namespace troupe
