#include "src/tokenizer/added_tokens.hpp"

#include <algorithm>

#include "src/tokenizer/code_points.hpp"

namespace troupe {
namespace {

const CodePointSet& blanks() {
  static const CodePointSet set = CodePointSet::white_space();
  return set;
}
const CodePointSet& word_characters() {
  static const CodePointSet set = CodePointSet::word_of_rust();
  return set;
}

bool ends_in_word(std::string_view text) {
  if (text.empty()) return false;
  std::size_t at = code_point_before(text, text.size());
  return word_characters().contains(next_code_point(text, at));
}

bool begins_word(std::string_view text) {
  std::size_t at = 0;
  return !text.empty() && word_characters().contains(next_code_point(text, at));
}

/// Where the blanks at the end of `text` begin.
std::size_t blanks_before(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t before = code_point_before(text, end);
    std::size_t at = before;
    if (!blanks().contains(next_code_point(text, at))) break;
    end = before;
  }
  return end;
}

/// Where the blanks at the beginning of `text` end.
std::size_t blanks_after(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size(); end = at)
    if (!blanks().contains(next_code_point(text, at))) break;
  return end;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& spellings) : tokens_(std::move(tokens)), nodes_(1) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (spellings[i].empty()) continue;
    begins_[static_cast<unsigned char>(spellings[i].front())] = true;
    std::uint32_t node = 0;
    for (const char c : spellings[i]) {
      const auto byte = static_cast<unsigned char>(c);
      auto& children = nodes_[node].children;
      const auto place = std::ranges::lower_bound(children, byte, {}, [](const auto& child) { return child.first; });
      if (place != children.end() && place->first == byte) {
        node = place->second;
      } else {
        const auto fresh = static_cast<std::uint32_t>(nodes_.size());
        children.insert(place, {byte, fresh});
        nodes_.emplace_back();
        node = fresh;
      }
    }
    if (nodes_[node].token < 0) nodes_[node].token = static_cast<std::int32_t>(i);
  }
}

std::int32_t AddedTokenFinder::longest_at(std::string_view text, std::size_t at, std::size_t& end) const noexcept {
  std::int32_t found = -1;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto& children = nodes_[node].children;
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto child = std::ranges::lower_bound(children, byte, {}, [](const auto& c) { return c.first; });
    if (child == children.end() || child->first != byte) break;
    node = child->second;
    if (nodes_[node].token < 0) continue;
    found = nodes_[node].token;
    end = i + 1;
  }
  return found;
}

void AddedTokenFinder::cut(std::string_view text, bool leave_special, std::vector<TextPart>& out) const {
  std::size_t done = 0;
  const auto plain = [&](std::size_t end) {
    if (done < end) out.push_back({static_cast<std::uint32_t>(done), static_cast<std::uint32_t>(end), -1});
  };
  for (std::size_t at = 0; at < text.size() && !empty();) {
    if (!begins_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    std::size_t end = 0;
    const std::int32_t index = longest_at(text, at, end);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    std::size_t begin = std::exchange(at, end);
    if (leave_special && token.special) continue;
    if (token.single_word && (ends_in_word(text.substr(0, begin)) || begins_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(blanks_before(text.substr(0, begin)), done);
    if (token.rstrip) end += blanks_after(text.substr(end));
    plain(begin);
    out.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end), token.id});
    done = end;
  }
  plain(text.size());
}

}  // namespace troupe
