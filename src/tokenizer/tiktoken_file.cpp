#include <array>
#include <charconv>

#include "src/tokenizer/tokenizer_file.hpp"

namespace troupe {
namespace {

constexpr std::size_t largest_vocabulary = 4'000'000;

/// What a tiktoken file leaves to the program that reads it.
struct TiktokenKind {
  std::string_view name;
  std::size_t ranks;
  std::string_view pattern;
  PatternSyntax syntax;
  bool nfc;
  std::vector<std::pair<std::int32_t, std::string>> special;  ///< by their distance from the last rank
  std::int32_t bos = -1, eos = -1;                            ///< likewise
};

constexpr std::string_view r50k_pattern = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr std::string_view cl100k_pattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr std::string_view o200k_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen_pattern = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Llama's: some named ones, the rest reserved.
std::vector<std::pair<std::int32_t, std::string>> reserved(std::int32_t count, const std::vector<std::pair<std::int32_t, std::string>>& named) {
  auto all = named;
  std::int32_t number = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    bool taken = false;
    for (const auto& [place, token] : named) taken = taken || place == i;
    if (!taken) all.emplace_back(i, "<|reserved_special_token_" + std::to_string(number++) + "|>");
  }
  return all;
}

std::vector<TiktokenKind> known_kinds() {
  const auto fancy = PatternSyntax::fancy_regex;
  const std::vector<std::pair<std::int32_t, std::string>> llama{
      {0, "<|begin_of_text|>"}, {1, "<|end_of_text|>"}, {6, "<|start_header_id|>"}, {7, "<|end_header_id|>"}, {9, "<|eot_id|>"}};
  return {
      {"GPT-2", 50256, r50k_pattern, fancy, false, {{0, "<|endoftext|>"}}, 0, 0},
      {"cl100k",
       100256,
       cl100k_pattern,
       fancy,
       false,
       {{1, "<|endoftext|>"}, {2, "<|fim_prefix|>"}, {3, "<|fim_middle|>"}, {4, "<|fim_suffix|>"}, {20, "<|endofprompt|>"}},
       -1,
       1},
      {"o200k", 199998, o200k_pattern, fancy, false, {{0, "<|startoftext|>"}, {1, "<|endoftext|>"}, {20, "<|endofprompt|>"}}, 0, 1},
      {"Qwen", 151643, qwen_pattern, fancy, true, {{0, "<|endoftext|>"}, {1, "<|im_start|>"}, {2, "<|im_end|>"}}, -1, 0},
      {"Llama 4", 200000, o200k_pattern, fancy, false, reserved(2048, {{0, "<|begin_of_text|>"}, {1, "<|end_of_text|>"}}), 0, 1},
      {"Llama 3", 128000, llama3_pattern, fancy, false, reserved(256, llama), 0, 1},
  };
}

Result<std::string> base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0, held = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    static constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const auto digit = digits.find(c);
    if (digit == std::string_view::npos) return Error{"\"" + std::string(text) + "\" is no base64"};
    bits = bits << 6U | static_cast<std::uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(static_cast<unsigned char>(bits >> held & 0xffU));
  }
  return bytes;
}

Result<std::vector<std::string>> read_ranks(std::string_view text, const std::string& name) {
  std::vector<std::string> tokens;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto wrong = [&](const std::string& why) { return Error{name + ":" + std::to_string(number) + ": " + why}; };
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const auto blank = line.find(' ');
    std::size_t rank = 0;
    const char* const end = line.data() + line.size();
    if (blank == std::string_view::npos || std::from_chars(line.data() + blank + 1, end, rank).ptr != end)
      return wrong("expected \"base64 rank\", found \"" + std::string(line.substr(0, 80)) + "\"");
    if (rank != tokens.size()) return wrong("rank " + std::to_string(rank) + " follows on " + std::to_string(tokens.size()) + " ranks; they must be in order");
    if (tokens.size() == largest_vocabulary) return wrong("more than " + std::to_string(largest_vocabulary) + " ranks");
    auto token = base64(line.substr(0, blank));
    if (!token) return wrong(token.error().message);
    if (token->empty()) return wrong("an empty token");
    tokens.push_back(std::move(*token));
  }
  return tokens;
}

std::string spelt(const std::string& bytes, const ByteAlphabet& alphabet) {
  std::string text;
  for (const char c : bytes) {
    const char32_t character = alphabet.character_of(static_cast<unsigned char>(c));
    if (character < 0x80) {
      text += static_cast<char>(character);
    } else {
      text += static_cast<char>(static_cast<unsigned char>(0xc0U | character >> 6U));
      text += static_cast<char>(static_cast<unsigned char>(0x80U | (character & 0x3fU)));
    }
  }
  return text;
}

}  // namespace

Result<TokenizerParts> read_tiktoken(std::string_view text, const std::string& name) {
  auto tokens = read_ranks(text, name);
  if (!tokens) return tokens.error();
  const auto kinds = known_kinds();
  const TiktokenKind* kind = name.ends_with(".model") ? &kinds.back() : nullptr;  // *.model are Llama's
  std::string counts;
  for (const auto& known : kinds) {
    if (known.ranks == tokens->size()) kind = &known;
    counts += (counts.empty() ? "" : ", ") + std::string(known.name) + " " + std::to_string(known.ranks);
  }
  if (kind == nullptr) return Error{name + ": has " + std::to_string(tokens->size()) + " ranks, but a tiktoken file is told by their number: " + counts};
  auto model = BpeModel::from_ranks(*tokens);
  if (!model) return Error{name + ": " + model.error().message};
  auto pattern = SplitPattern::compile(kind->pattern, kind->syntax);
  if (!pattern) return Error{name + ": " + pattern.error().message};
  TokenizerParts parts{.name = name};
  parts.model = std::move(*model);
  if (kind->nfc) parts.normalizer.push_back({.kind = NormalizerStep::Kind::form, .form = NormalizerStep::Form::nfc});
  parts.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::split, .pattern = std::move(*pattern)});
  parts.decoder.push_back({.kind = DecoderStep::Kind::byte_level});
  const ByteAlphabet alphabet;
  for (const std::string& token : *tokens) parts.texts.push_back({spelt(token, alphabet), false});
  const auto ranks = static_cast<std::int32_t>(tokens->size());
  for (const auto& [place, content] : kind->special) {
    const std::int32_t id = ranks + place;
    if (static_cast<std::size_t>(id) >= parts.texts.size()) parts.texts.resize(static_cast<std::size_t>(id) + 1);
    parts.texts[static_cast<std::size_t>(id)] = {content, true};
    parts.added.push_back({.id = id, .content = content, .special = true});
  }
  if (kind->bos >= 0) parts.bos = ranks + kind->bos;
  if (kind->eos >= 0) parts.eos = ranks + kind->eos;
  return parts;
}

}  // namespace troupe
