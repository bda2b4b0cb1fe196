#pragma once
#include <memory>
#include <string>

#include "src/base/result.hpp"
#include "src/data/token_documents.hpp"

namespace troupe {

/// Marks and vocabulary of data that does not carry them.
struct TokenMarks {
  std::int64_t vocabulary = 0;  ///< 0: one more than the largest id that the element type can hold is assumed
  std::optional<std::int32_t> bos = {}, eos = {};
};

/// Megatron's indexed data set: PREFIX.idx and PREFIX.bin (`path` names either, or the prefix). Ids of 1, 2, 4 or 8 bytes; documents as the index
/// parts them. Every length, pointer and document is checked against the files before anything is read.
[[nodiscard]] Result<std::shared_ptr<const TokenDocuments>> open_megatron(const std::string& path, const TokenMarks& marks);

}  // namespace troupe
