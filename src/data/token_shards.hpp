#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/data/record_encoder.hpp"
#include "src/data/token_documents.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace troupe {

/// Token shards: a folder with `manifest.json` and files `shard-00000.tokens`, … . A shard holds the documents of one part of the text, in its order: a
/// header (TokenShardHeader), where each document ends in tokens (8 bytes each), and the ids (2 bytes each where the vocabulary has at most 65,536 and all are
/// targets, else 4; where `masked` is 1, an id that is no target is stored as its complement). Little endian.
struct TokenShardHeader {
  char magic[8] = {'T', 'R', 'P', 'T', 'O', 'K', '0', '2'};
  std::uint64_t key = 0;  ///< of tokenizer, options, files and part
  std::uint64_t documents = 0, tokens = 0;
  std::uint64_t special = 0;  ///< special tokens that the texts spell
  std::uint64_t hash = 0;     ///< XXH3-64 of all that follows the header
  std::uint32_t width = 4, masked = 0;
  /// Bytes of the whole file. Counts must have been found to fit in one.
  [[nodiscard]] std::uint64_t file_bytes() const noexcept { return sizeof(TokenShardHeader) + documents * sizeof(std::uint64_t) + tokens * width; }
};

struct TokenizeOptions {
  std::filesystem::path folder;
  unsigned threads = 1;
  RecordEncoding encoding = {};                         ///< how records become tokens
  bool check_kept = true;                               ///< read all of shards that are there, not their lengths alone; what is damaged is made again
  std::uint64_t part_bytes = std::uint64_t{32} << 20U;  ///< text of one shard, about: what is lost of work that is interrupted
  /// Called now and then, from one thread at a time, with bytes of text done and in all. May be empty.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::function<bool()> stop = {};  ///< asked between documents; true: end, and keep whole shards. May be empty
};
struct TokenizeFacts {
  std::uint64_t documents = 0, tokens = 0, text_bytes = 0;
  std::uint64_t shards = 0, kept = 0;  ///< `kept`: shards that an earlier call had made
  std::uint64_t special = 0;           ///< special tokens that the texts spell
};

/// Makes the shards of a corpus, each a file that appears when it is whole; what lies in the folder of the same text and tokenizer stays. Where
/// processes share the folder one works and the others wait. Blocks. Errors name the file; a folder of another text or tokenizer is refused.
[[nodiscard]] Result<TokenizeFacts> tokenize_corpus(const std::shared_ptr<const Corpus>& corpus, const std::shared_ptr<const Tokenizer>& tokenizer,
                                                    const TokenizeOptions& options);

/// Opens a folder of shards: maps its files and checks every length and end against the manifest. `tokenizer`: whose shards are expected, 0 for any.
[[nodiscard]] Result<std::shared_ptr<const TokenDocuments>> open_token_shards(const std::filesystem::path& folder, std::uint64_t tokenizer);

/// Key of a corpus: its files, their sizes and times, and how they are read.
[[nodiscard]] std::uint64_t corpus_key(const Corpus& corpus);

}  // namespace troupe
