#pragma once
#include <string>
#include <string_view>

#include "src/base/result.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace troupe {

/// The parts of a Hugging Face tokenizer.json; `name` stands in messages. Its truncation and padding are not used.
[[nodiscard]] Result<TokenizerParts> read_tokenizer_json(std::string_view text, const std::string& name);
/// bos_token and eos_token of a tokenizer_config.json, by the tokens that `parts` has.
[[nodiscard]] Result<void> read_tokenizer_config(std::string_view text, const std::string& name, TokenizerParts& parts);
/// The parts of a tiktoken file: "base64 rank" a line. The file names neither pattern nor special tokens: both follow from the number of ranks, for the
/// models known here (GPT-2, cl100k, o200k, Llama 3, Llama 4, Qwen).
[[nodiscard]] Result<TokenizerParts> read_tiktoken(std::string_view text, const std::string& name);

}  // namespace troupe
