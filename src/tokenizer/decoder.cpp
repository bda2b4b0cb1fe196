#include "src/tokenizer/decoder.hpp"

#include <optional>

#include "src/tokenizer/code_points.hpp"
#include "src/tokenizer/pieces.hpp"

namespace troupe {
namespace {

using Texts = std::vector<TokenText>;

void fuse(Texts& texts) {
  std::string all;
  for (const auto& [text, added] : texts) all += text;
  texts = {{std::move(all), false}};
}

/// The bytes that all characters of a token stand for; else its own.
void byte_level(Texts& texts) {
  static const ByteAlphabet alphabet;
  for (auto& [text, added] : texts) {
    if (added) continue;
    std::string bytes;
    for (std::size_t at = 0; at < text.size();) {
      const int byte = alphabet.byte_of(next_code_point(text, at));
      if (byte < 0) {
        bytes = text;
        break;
      }
      bytes += static_cast<char>(static_cast<unsigned char>(byte));
    }
    text = std::move(bytes);
  }
  fuse(texts);
  std::string valid;
  append_lossy_utf8(valid, texts.front().text);
  texts.front().text = std::move(valid);
}

std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : token.substr(3, 2)) {
    value *= 16;
    if (c >= '0' && c <= '9')
      value += static_cast<unsigned>(c - '0');
    else if (c >= 'A' && c <= 'F')
      value += static_cast<unsigned>(c - 'A' + 10);
    else if (c >= 'a' && c <= 'f')
      value += static_cast<unsigned>(c - 'a' + 10);
    else
      return std::nullopt;
  }
  return static_cast<char>(static_cast<unsigned char>(value));
}

void byte_fallback(Texts& texts) {
  Texts out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (valid_utf8_prefix(bytes) == bytes.size()) {
      out.push_back({bytes, false});
    } else {
      for (std::size_t i = 0; i < bytes.size(); ++i) out.push_back({"\xef\xbf\xbd", false});
    }
    bytes.clear();
  };
  for (auto& token : texts) {
    if (const auto byte = byte_of(token.text)) {
      bytes += *byte;
      continue;
    }
    flush();
    out.push_back(std::move(token));
  }
  flush();
  texts = std::move(out);
}

void strip(const DecoderStep& step, std::string& text) {
  if (step.content.empty()) return;
  for (std::size_t i = 0; i < step.start && text.starts_with(step.content); ++i) text.erase(0, step.content.size());
  for (std::size_t i = 0; i < step.stop && text.ends_with(step.content); ++i) text.resize(text.size() - step.content.size());
}

void replace(std::string& text, std::string_view pattern, std::string_view content) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find(pattern); at != std::string::npos && !pattern.empty(); at = text.find(pattern, done)) {
    out.append(text, done, at - done).append(content);
    done = at + pattern.size();
  }
  text = out.append(text, done, std::string::npos);
}

}  // namespace

std::string decode_texts(const std::vector<DecoderStep>& steps, Texts texts) {
  for (const DecoderStep& step : steps) {
    if (texts.empty()) return {};
    switch (step.kind) {
      case DecoderStep::Kind::byte_level: byte_level(texts); break;
      case DecoderStep::Kind::byte_fallback: byte_fallback(texts); break;
      case DecoderStep::Kind::fuse: fuse(texts); break;
      case DecoderStep::Kind::strip:
        for (auto& token : texts)
          if (!token.added) strip(step, token.text);
        break;
      case DecoderStep::Kind::replace:
        for (auto& token : texts)
          if (!token.added) replace(token.text, step.pattern, step.content);
        break;
      case DecoderStep::Kind::metaspace:
        for (std::size_t i = 0; i < texts.size(); ++i)
          if (!texts[i].added) replace(texts[i].text, step.pattern, i == 0 && step.prepended ? "" : " ");
        break;
    }
  }
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0 && steps.empty()) all += ' ';  // as the original where a file names no decoder
    all += texts[i].text;
  }
  return all;
}

}  // namespace troupe
