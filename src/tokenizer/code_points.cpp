#include "src/tokenizer/code_points.hpp"

#include <algorithm>
#include <map>

#include "src/tokenizer/unicode_table.hpp"

namespace troupe {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

/// Bytes of the sequence at the beginning that are as they should be, and how many there should be.
struct Sequence {
  std::size_t good = 1, wanted = 0;
};
Sequence sequence_at(std::string_view text) {
  const unsigned first = byte_at(text, 0);
  if (first < 0x80) return {1, 1};
  Sequence found;
  unsigned low = 0x80, high = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) found.wanted = 2;
  if (first >= 0xe0 && first <= 0xef) found.wanted = 3;
  if (first >= 0xf0 && first <= 0xf4) found.wanted = 4;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  for (; found.good < found.wanted && found.good < text.size(); ++found.good) {
    const unsigned byte = byte_at(text, found.good);
    if (byte < low || byte > high) break;
    low = 0x80;
    high = 0xbf;
  }
  return found;
}

template <class Keep>
std::vector<char32_t> merged(std::span<const char32_t> a, std::span<const char32_t> b, Keep keep) {
  std::vector<char32_t> out;
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const char32_t at = std::min(i < a.size() ? a[i] : code_point_end, j < b.size() ? b[j] : code_point_end);
    while (i < a.size() && a[i] == at) ++i;
    while (j < b.size() && b[j] == at) ++j;
    if (keep(i % 2 == 1, j % 2 == 1) != (out.size() % 2 == 1)) out.push_back(at);
  }
  return out;
}

}  // namespace

void append_code_point(std::string& text, char32_t point) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (point < 0x80) return add(point);
  if (point < 0x800) return add(0xc0U | point >> 6U), add(0x80U | (point & 0x3fU));
  if (point < 0x10000) return add(0xe0U | point >> 12U), add(0x80U | (point >> 6U & 0x3fU)), add(0x80U | (point & 0x3fU));
  add(0xf0U | point >> 18U), add(0x80U | (point >> 12U & 0x3fU)), add(0x80U | (point >> 6U & 0x3fU)), add(0x80U | (point & 0x3fU));
}

std::size_t valid_utf8_prefix(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    if (byte_at(text, at) < 0x80) {
      ++at;
      continue;
    }
    const auto sequence = sequence_at(text.substr(at));
    if (sequence.good != sequence.wanted) break;
    at += sequence.good;
  }
  return at;
}

std::size_t invalid_utf8_length(std::string_view text) noexcept { return sequence_at(text).good; }

void append_lossy_utf8(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += "\xef\xbf\xbd";
    text.remove_prefix(invalid_utf8_length(text));
  }
}

CodePointSet CodePointSet::category(std::string_view prefix) {
  const auto runs = unicode::categories();
  CodePointSet set;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const bool inside = unicode::category_names[runs[i].category].starts_with(prefix);
    if (inside != (set.bounds_.size() % 2 == 1)) set.bounds_.push_back(runs[i].first);
  }
  if (set.bounds_.size() % 2 == 1) set.bounds_.push_back(code_point_end);
  return set;
}

CodePointSet CodePointSet::white_space() { return category("Z").united(CodePointSet(U'\t', U'\r')).united(CodePointSet(U'\x85')); }

CodePointSet CodePointSet::word() { return CodePointSet(unicode::named_ranges("word")); }

CodePointSet CodePointSet::word_of_rust() {
  const CodePointSet joiners(0x200c, 0x200d);
  return CodePointSet(unicode::named_ranges("alphabetic")).united(category("M")).united(category("Nd")).united(category("Pc")).united(joiners);
}

Result<CodePointSet> CodePointSet::property(std::string_view name) {
  if (name == "Any") return CodePointSet(U'\0', code_point_end - 1);
  if (name == "White_Space" || name == "Space") return white_space();
  if (name == "Alphabetic" || name == "Alpha") return CodePointSet(unicode::named_ranges("alphabetic"));
  if (name == "x-word") return word_of_rust();
  if (name == "x-numeric" || name == "x-punctuation") return CodePointSet(unicode::named_ranges(name.substr(2)));  // what Rust and the original call so
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 9> long_names{{{"Letter", "L"},
                                                                                            {"Mark", "M"},
                                                                                            {"Number", "N"},
                                                                                            {"Punctuation", "P"},
                                                                                            {"Symbol", "S"},
                                                                                            {"Separator", "Z"},
                                                                                            {"Other", "C"},
                                                                                            {"Lowercase_Letter", "Ll"},
                                                                                            {"Uppercase_Letter", "Lu"}}};
  for (const auto& [longer, shorter] : long_names)
    if (name == longer) return category(shorter);
  if (!name.empty() && name.size() <= 2) {
    auto set = category(name);
    if (!set.empty()) return set;
  }
  if (const auto ranges = unicode::named_ranges(name); !ranges.empty() && name.front() >= 'A' && name.front() <= 'Z') return CodePointSet(ranges);
  return Error{"\\p{" + std::string(name) + "}: this property is not known here"};
}

CodePointSet CodePointSet::united(const CodePointSet& other) const {
  CodePointSet set;
  set.bounds_ = merged(bounds_, other.bounds_, [](bool a, bool b) { return a || b; });
  return set;
}

CodePointSet CodePointSet::common(const CodePointSet& other) const {
  CodePointSet set;
  set.bounds_ = merged(bounds_, other.bounds_, [](bool a, bool b) { return a && b; });
  return set;
}

CodePointSet CodePointSet::complement() const {
  CodePointSet set;
  set.bounds_ = bounds_;
  if (!bounds_.empty() && bounds_.front() == 0)
    set.bounds_.erase(set.bounds_.begin());
  else
    set.bounds_.insert(set.bounds_.begin(), 0);
  if (!set.bounds_.empty() && set.bounds_.back() == code_point_end)
    set.bounds_.pop_back();
  else
    set.bounds_.push_back(code_point_end);
  return set;
}

bool CodePointSet::contains(char32_t point) const noexcept { return (std::ranges::upper_bound(bounds_, point) - bounds_.begin()) % 2 == 1; }

Result<CodePointClasses> CodePointClasses::partition(const std::vector<CodePointSet>& sets) {
  std::map<char32_t, std::vector<std::size_t>> flips;  // at this code point membership in these sets changes
  for (std::size_t s = 0; s < sets.size(); ++s)
    for (const char32_t bound : sets[s].bounds()) flips[bound].push_back(s);
  flips.try_emplace(0);
  flips.erase(code_point_end);
  std::vector<std::uint8_t> of(code_point_end);
  std::map<std::vector<bool>, std::uint8_t> classes;
  std::vector<bool> inside(sets.size());
  CodePointClasses result;
  result.members_.resize(sets.size());
  for (auto flip = flips.begin(); flip != flips.end(); ++flip) {
    for (const std::size_t s : flip->second) inside[s] = !inside[s];
    const auto [known, fresh] = classes.try_emplace(inside, static_cast<std::uint8_t>(classes.size()));
    if (classes.size() > 255) return Error{"it tells more than 255 classes of characters apart"};
    for (std::size_t s = 0; fresh && s < sets.size(); ++s)
      if (inside[s]) result.members_[s].push_back(known->second);
    const char32_t end = std::next(flip) == flips.end() ? code_point_end : std::next(flip)->first;
    std::fill(of.begin() + flip->first, of.begin() + end, known->second);
  }
  result.count_ = classes.size();
  std::map<std::vector<std::uint8_t>, std::uint16_t> blocks;
  for (char32_t block = 0; block < code_point_end >> 8U; ++block) {
    std::vector<std::uint8_t> content(of.begin() + block * 256, of.begin() + (block + 1) * 256);
    const auto [known, fresh] = blocks.try_emplace(content, static_cast<std::uint16_t>(blocks.size()));
    if (fresh) result.blocks_.insert(result.blocks_.end(), content.begin(), content.end());
    result.block_of_.push_back(known->second);
  }
  return result;
}

}  // namespace troupe
