#include "src/tokenizer/tokenizer.hpp"

#include <stdexcept>
#include <utility>

#include "src/tokenizer/code_points.hpp"

namespace troupe {
namespace {

constexpr std::size_t longest_text = 0xffffffff;
constexpr std::size_t longest_character = 4;  ///< bytes, so at most as many tokens
constexpr std::size_t stream_context = 8;     ///< tokens that are decoded together with the next one: a decoder may look at those before

AddedTokenFinder finder_of(const TokenizerParts& parts, bool normalized) {
  std::vector<AddedToken> tokens;
  std::vector<std::string> spellings;
  Normalizer normalizer(parts.normalizer);
  for (const AddedToken& token : parts.added) {
    if (token.normalized != normalized) continue;
    std::string spelling = token.content;
    if (normalized) normalizer.run(spelling);
    tokens.push_back(token);
    spellings.push_back(std::move(spelling));
  }
  return {std::move(tokens), spellings};
}

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts) : parts_(std::move(parts)), raw_(finder_of(parts_, false)), normalized_(finder_of(parts_, true)) {
  special_.resize(parts_.texts.size());
  for (const AddedToken& token : parts_.added)
    if (token.special) special_[static_cast<std::size_t>(token.id)] = true;
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  for (const AddedToken& added : parts_.added)
    if (added.content == token) return added.id;
  for (std::size_t id = 0; id < parts_.texts.size(); ++id)
    if (parts_.texts[id].text == token && !token.empty()) return static_cast<std::int32_t>(id);
  return std::nullopt;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::vector<TokenText> texts;
  texts.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= parts_.texts.size()) continue;
    if (skip_special && special_[static_cast<std::size_t>(id)]) continue;
    texts.push_back(parts_.texts[static_cast<std::size_t>(id)]);
  }
  return decode_texts(parts_.decoder, std::move(texts));
}

TokenEncoder::TokenEncoder(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)),
      normalizer_(tokenizer_->parts_.normalizer),
      pre_tokenizer_(tokenizer_->parts_.pre_tokenizer),
      bpe_(tokenizer_->parts_.model) {}

void TokenEncoder::encode(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& out) {
  if (text.size() >= longest_text / 4) throw std::runtime_error("a text of " + std::to_string(text.size()) + " bytes is too long to encode; split it");
  const TokenizerParts& parts = tokenizer_->parts_;
  if (options.around) out.insert(out.end(), parts.before.begin(), parts.before.end());
  if (valid_utf8_prefix(text) != text.size()) {
    valid_.clear();
    append_lossy_utf8(valid_, text);
    text = valid_;
  }
  if (options.count_special) count_special(text);
  parts_.clear();
  tokenizer_->raw_.cut(text, !options.special_in_text, parts_);
  for (const TextPart& part : parts_) {
    if (part.token >= 0) {
      out.push_back(part.token);
      continue;
    }
    std::string_view plain = text.substr(part.begin, part.end - part.begin);
    if (!normalizer_.empty()) {
      normal_ = plain;
      normalizer_.run(normal_);
      plain = normal_;
    }
    inner_.clear();
    tokenizer_->normalized_.cut(plain, !options.special_in_text, inner_);
    for (const TextPart& inside : inner_) {
      if (inside.token >= 0)
        out.push_back(inside.token);
      else
        encode_part(plain.substr(inside.begin, inside.end - inside.begin), part.begin == 0 && inside.begin == 0, out);
    }
  }
  if (options.around) out.insert(out.end(), parts.after.begin(), parts.after.end());
}

void TokenEncoder::count_special(std::string_view text) {
  for (const AddedTokenFinder* finder : {&tokenizer_->raw_, &tokenizer_->normalized_}) {
    parts_.clear();
    finder->cut(text, false, parts_);
    for (const TextPart& part : parts_) special_spelled_ += part.token >= 0 && tokenizer_->special_[static_cast<std::size_t>(part.token)] ? 1 : 0;
  }
}

void TokenEncoder::encode_part(std::string_view text, bool at_start, std::vector<std::int32_t>& out) {
  list_.text = text;
  list_.at_start = at_start;
  list_.pieces.assign(1, {0, static_cast<std::uint32_t>(text.size())});
  pre_tokenizer_.run(list_);
  for (const Piece piece : list_.pieces) bpe_.encode(list_.text.substr(piece.begin, piece.end - piece.begin), out);
}

std::string StreamDecoder::next(std::int32_t id) {
  ids_.push_back(id);
  const std::string text = tokenizer_->decode(ids_, skip_special_);
  // An unfinished character reads as U+FFFD at the end: hold back until it is whole, or cannot be any more.
  if (text.ends_with("\xef\xbf\xbd") && ++held_ < longest_character) return {};
  held_ = 0;
  std::string fresh = text.size() > told_ ? text.substr(told_) : std::string();
  told_ = text.size();
  if (ids_.size() >= 2 * stream_context) {
    ids_.erase(ids_.begin(), ids_.end() - static_cast<std::ptrdiff_t>(stream_context));
    told_ = tokenizer_->decode(ids_, skip_special_).size();
  }
  return fresh;
}

std::string StreamDecoder::finish() {
  const std::string text = tokenizer_->decode(ids_, skip_special_);
  ids_.clear();
  const std::size_t told = std::exchange(told_, 0);
  return text.size() > told ? text.substr(told) : std::string();
}

}  // namespace troupe
