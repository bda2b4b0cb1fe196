#pragma once
#include <cstdint>

namespace troupe {

/// Tokens are bytes: ids 0…255, and two marks. Any file is valid text, UTF-8 or not.
struct ByteTokenizer {
  static constexpr std::int32_t bos = 256;  ///< before a document
  static constexpr std::int32_t eos = 257;  ///< after a document
  static constexpr std::int32_t vocab_size = 258;
};

/// The label of a position that is not trained on.
inline constexpr std::int32_t ignored_label = -100;

}  // namespace troupe
