#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace troupe {

class CodePointClasses;

/// Whose regular expressions a pattern is written for: where they differ, `tokenizer.json` means Oniguruma's Ruby syntax, tiktoken Rust's fancy-regex.
enum class PatternSyntax : std::uint8_t { oniguruma, fancy_regex };

/// A text as a pattern sees it: for each code point the number of its class, and where it starts.
struct ClassifiedText {
  std::vector<std::uint8_t> classes;
  std::vector<std::uint32_t> offsets;  ///< byte of each code point, and the end; empty where all are ASCII: then they are the same
};

/// A regular expression over Unicode text, matched at the speed of one over bytes: the code points that its atoms do not tell apart are one class, a text
/// becomes one byte a code point, and the pattern is rewritten to sets of class numbers, which PCRE2 compiles without knowing of Unicode. So which code
/// point is a letter is said by src/tokenizer/unicode_table.cpp alone. Immutable: any thread; each matches with a SplitMatcher of its own.
class SplitPattern {
 public:
  /// Errors name what in the pattern is not understood.
  [[nodiscard]] static Result<std::shared_ptr<const SplitPattern>> compile(std::string_view pattern, PatternSyntax syntax);
  /// A pattern that matches this very text.
  [[nodiscard]] static Result<std::shared_ptr<const SplitPattern>> literal(std::string_view text);
  ~SplitPattern();
  SplitPattern(const SplitPattern&) = delete;
  SplitPattern& operator=(const SplitPattern&) = delete;
  /// `text`: valid UTF-8 of less than 4 GiB.
  void classify(std::string_view text, ClassifiedText& out) const;

 private:
  friend class SplitMatcher;
  SplitPattern() = default;
  std::unique_ptr<CodePointClasses> classes_;
  pcre2_real_code_8* code_ = nullptr;
};

/// Finds matches; one thread.
class SplitMatcher {
 public:
  explicit SplitMatcher(std::shared_ptr<const SplitPattern> pattern);
  ~SplitMatcher();
  SplitMatcher(const SplitMatcher&) = delete;
  SplitMatcher& operator=(const SplitMatcher&) = delete;
  /// The first match of code points [from, end) of `text`, the text being those of [begin, end) alone. False: there is none. Throws std::runtime_error when
  /// matching takes more memory or steps than allowed.
  [[nodiscard]] bool find(const ClassifiedText& text, std::size_t begin, std::size_t from, std::size_t end, std::size_t& match_begin, std::size_t& match_end);
  [[nodiscard]] const SplitPattern& pattern() const noexcept { return *pattern_; }

 private:
  std::shared_ptr<const SplitPattern> pattern_;
  pcre2_real_match_data_8* data_;
  pcre2_real_match_context_8* context_;
};

}  // namespace troupe
