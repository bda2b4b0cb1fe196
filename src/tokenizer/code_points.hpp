#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/result.hpp"

/// UTF-8 and sets of code points. Pure functions: any thread.
namespace troupe {

inline constexpr char32_t code_point_end = 0x110000;

/// The code point that starts at `at` of valid UTF-8, and moves `at` behind it.
[[nodiscard]] inline char32_t next_code_point(std::string_view text, std::size_t& at) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t first = byte(at);
  if (first < 0x80) return ++at, first;
  if (first < 0xe0) return at += 2, (first & 0x1fU) << 6U | (byte(at - 1) & 0x3fU);
  if (first < 0xf0) return at += 3, (first & 0x0fU) << 12U | (byte(at - 2) & 0x3fU) << 6U | (byte(at - 1) & 0x3fU);
  return at += 4, (first & 0x07U) << 18U | (byte(at - 3) & 0x3fU) << 12U | (byte(at - 2) & 0x3fU) << 6U | (byte(at - 1) & 0x3fU);
}

/// Where the code point before `at` starts; at > 0.
[[nodiscard]] inline std::size_t code_point_before(std::string_view text, std::size_t at) noexcept {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80);
  return at;
}

void append_code_point(std::string& text, char32_t point);

/// Bytes of the longest prefix that is valid UTF-8 (Unicode 3.9, table 3-7).
[[nodiscard]] std::size_t valid_utf8_prefix(std::string_view text) noexcept;
/// Bytes at the beginning of invalid text that one U+FFFD stands for: a maximal subpart (Unicode 3.9, U+FFFD substitution), at least 1.
[[nodiscard]] std::size_t invalid_utf8_length(std::string_view text) noexcept;
/// Appends `text` with U+FFFD for what is no UTF-8, as Python's errors="replace" and Rust's from_utf8_lossy.
void append_lossy_utf8(std::string& out, std::string_view text);

/// A set of code points: sorted begins and ends (exclusive) in turn.
class CodePointSet {
 public:
  CodePointSet() = default;
  explicit CodePointSet(char32_t point) : bounds_{point, point + 1} {}
  CodePointSet(char32_t first, char32_t last) : bounds_{first, last + 1} {}
  explicit CodePointSet(std::span<const char32_t> bounds) : bounds_(bounds.begin(), bounds.end()) {}
  /// A property as regular expressions name it: a general category (L, Lu), one of its groups, a script, Alphabetic, White_Space, Any;
  /// x-numeric, x-punctuation and x-word are what the steps Digits, Punctuation and Whitespace mean.
  [[nodiscard]] static Result<CodePointSet> property(std::string_view name);
  [[nodiscard]] static CodePointSet category(std::string_view prefix);  ///< "Lu", "L"; empty where there is none
  [[nodiscard]] static CodePointSet white_space();
  [[nodiscard]] static CodePointSet word();          ///< \w of Oniguruma
  [[nodiscard]] static CodePointSet word_of_rust();  ///< \w of Rust's regex (Unicode TR 18): without numbers that are no digits

  [[nodiscard]] CodePointSet united(const CodePointSet& other) const;
  [[nodiscard]] CodePointSet common(const CodePointSet& other) const;
  [[nodiscard]] CodePointSet complement() const;
  [[nodiscard]] bool contains(char32_t point) const noexcept;
  [[nodiscard]] bool empty() const noexcept { return bounds_.empty(); }
  [[nodiscard]] std::span<const char32_t> bounds() const noexcept { return bounds_; }

 private:
  std::vector<char32_t> bounds_;
};

/// The numbers of equivalence classes of code points under some sets, found in two look-ups.
class CodePointClasses {
 public:
  /// `sets` in order; more than 255 classes are an error.
  [[nodiscard]] static Result<CodePointClasses> partition(const std::vector<CodePointSet>& sets);
  [[nodiscard]] std::uint8_t of(char32_t point) const noexcept { return blocks_[static_cast<std::size_t>(block_of_[point >> 8U]) * 256 + (point & 0xffU)]; }
  /// Classes that lie inside set number `set`.
  [[nodiscard]] const std::vector<std::uint8_t>& members(std::size_t set) const noexcept { return members_[set]; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  std::vector<std::uint16_t> block_of_;
  std::vector<std::uint8_t> blocks_;
  std::vector<std::vector<std::uint8_t>> members_;
  std::size_t count_ = 0;
};

}  // namespace troupe
