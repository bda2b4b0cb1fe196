#include "src/tokenizer/pattern_reader.hpp"

#include <algorithm>
#include <stdexcept>

namespace troupe {
namespace {

constexpr std::size_t deepest_class = 16, most_groups = 64;

struct NotUnderstood : std::runtime_error {
  using std::runtime_error::runtime_error;
};

CodePointSet without_line_feed() { return CodePointSet(U'\n').complement(); }

class PatternReader {
 public:
  PatternReader(std::string_view pattern, PatternSyntax syntax) : pattern_(pattern), syntax_(syntax) {}

  ReadPattern read() {
    groups_.push_back({});
    while (at_ < pattern_.size()) item();
    if (groups_.size() != 1) fail("a group is not closed");
    return std::move(out_);
  }

 private:
  struct Group {
    bool ignore_case = false;
    std::size_t begin = 0;  ///< its first part
  };

  [[noreturn]] void fail(const std::string& why) const { throw NotUnderstood(why + " (at byte " + std::to_string(at_) + " of the pattern)"); }
  [[nodiscard]] bool looking_at(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool skip(std::string_view text) {
    if (!looking_at(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t take() {
    if (at_ >= pattern_.size()) fail("the pattern ends too early");
    return next_code_point(pattern_, at_);
  }

  void raw(std::string text) { out_.parts.push_back({std::move(text), PatternPart::no_set}); }
  void atom(CodePointSet set) {
    last_atom_ = out_.parts.size();
    if (groups_.back().ignore_case) set = either_case(std::move(set));
    out_.parts.push_back({{}, out_.sets.size()});
    out_.sets.push_back(std::move(set));
    quantifiable_ = true;
  }

  void item() {
    const char32_t previous = std::exchange(previous_literal_, 0);
    if (looking_at("(")) return open_group();
    if (skip(")")) {
      if (groups_.size() == 1) fail("there is a ) too many");
      last_atom_ = groups_.back().begin;
      groups_.pop_back();
      raw(")");
      quantifiable_ = true;
      return;
    }
    if (skip("|")) {
      raw("|");
      quantifiable_ = false;
      return;
    }
    if (looking_at("*") || looking_at("+") || looking_at("?") || repetition()) return quantifier();
    if (skip("[")) return atom(character_class(1));
    if (skip(".")) return atom(without_line_feed());
    if (skip("^")) fail("^ is not supported");
    if (skip("$")) {
      if (syntax_ == PatternSyntax::fancy_regex) return raw("\\z");
      raw("(?=\\z|");
      atom(CodePointSet(U'\n'));
      raw(")");
      quantifiable_ = false;
      return;
    }
    if (skip("\\")) return escape();
    const char32_t point = take();
    if (groups_.back().ignore_case) pair_of_letters(previous, point);
    previous_literal_ = point;
    atom(CodePointSet(point));
  }

  /// Pairs that a single character equals when case is ignored (ß, the ligatures): not known here.
  void pair_of_letters(char32_t a, char32_t b) const {
    const auto lower = [](char32_t c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; };
    for (const std::string_view pair : {"ss", "st", "ff", "fi", "fl"})
      if (lower(a) == static_cast<char32_t>(pair[0]) && lower(b) == static_cast<char32_t>(pair[1]))
        fail("\"" + std::string(pair) + "\" without regard to case is not supported");
  }

  void open_group() {
    Group inner{groups_.back().ignore_case, out_.parts.size()};
    skip("(");
    std::string opened = "(?:";
    if (skip("?")) {
      if (skip("i)")) {
        if (at_ != 4) fail("(?i) elsewhere than at the beginning is not supported");
        groups_.back().ignore_case = true;
        return;
      }
      if (skip("i:"))
        inner.ignore_case = true;
      else if (skip("-i:"))
        inner.ignore_case = false;
      else if (skip(":")) {
      } else if (skip("="))
        opened = "(?=";
      else if (skip("!"))
        opened = "(?!";
      else if (skip("<="))
        opened = "(?<=";
      else if (skip("<!"))
        opened = "(?<!";
      else if (skip(">"))
        opened = "(?>";
      else
        fail("this kind of group is not supported");
    }
    if (groups_.size() == most_groups) fail("groups are nested too deep");
    groups_.push_back(inner);
    raw(opened);
    quantifiable_ = false;
  }

  /// Whether {n}, {n,}, {n,m} or {,m} stands here; else { is a character.
  [[nodiscard]] bool repetition() const {
    if (!looking_at("{")) return false;
    std::size_t i = at_ + 1, digits = 0, commas = 0;
    for (; i < pattern_.size() && pattern_[i] != '}'; ++i) {
      if (pattern_[i] == ',')
        ++commas;
      else if (pattern_[i] >= '0' && pattern_[i] <= '9')
        ++digits;
      else
        return false;
    }
    return i < pattern_.size() && digits > 0 && commas <= 1;
  }

  void quantifier() {
    if (!quantifiable_) fail("nothing stands before this quantifier");
    const bool counted = looking_at("{");
    const std::size_t end = counted ? pattern_.find('}', at_) + 1 : at_ + 1;
    std::string text(pattern_.substr(at_, end - at_));
    if (text.starts_with("{,")) text.insert(1, "0");
    at_ = end;
    if (counted && syntax_ == PatternSyntax::oniguruma && looking_at("?")) fail("{n}? is not supported");
    if (counted && syntax_ == PatternSyntax::oniguruma && skip("+")) {  // there the + is one more quantifier
      out_.parts.insert(out_.parts.begin() + static_cast<std::ptrdiff_t>(last_atom_), PatternPart{"(?:", PatternPart::no_set});
      return raw(text + ")+");
    }
    if (skip("+"))
      text += '+';
    else if (skip("?"))
      text += '?';
    raw(text);
    if (looking_at("*") || looking_at("+") || looking_at("?")) fail("a quantifier of a quantifier is not supported");
    quantifiable_ = false;
  }

  void escape() {
    if (skip("z")) return raw("\\z");
    if (skip("A")) return raw("\\A");
    for (const std::string_view anchor : {"Z", "b", "B", "G", "R", "X", "K", "k", "g", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"})
      if (looking_at(anchor)) fail("\\" + std::string(anchor) + " is not supported");
    atom(escaped());
  }

  /// What stands after a backslash, in a class or outside.
  CodePointSet escaped() {
    const char32_t letter = take();
    switch (letter) {
      case 'r': return CodePointSet(U'\r');
      case 'n': return CodePointSet(U'\n');
      case 't': return CodePointSet(U'\t');
      case 'f': return CodePointSet(U'\f');
      case 'v': return CodePointSet(U'\v');
      case 'a': return CodePointSet(U'\a');
      case 'e': return CodePointSet(U'\x1b');
      case 's': return CodePointSet::white_space();
      case 'S': return CodePointSet::white_space().complement();
      case 'd': return CodePointSet::category("Nd");
      case 'D': return CodePointSet::category("Nd").complement();
      case 'w': return CodePointSet::word();
      case 'W': return CodePointSet::word().complement();
      case 'h': return CodePointSet(U'0', U'9').united(CodePointSet(U'a', U'f')).united(CodePointSet(U'A', U'F'));
      case 'p': return property(false);
      case 'P': return property(true);
      case 'x': return hexadecimal(skip("{") ? 0 : 2);
      case 'u': return hexadecimal(4);
      default: break;
    }
    if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9'))
      fail("\\" + std::string(1, static_cast<char>(letter)) + " is not supported");
    return CodePointSet(letter);
  }

  CodePointSet property(bool negated) {
    std::string name;
    if (skip("{")) {
      if (skip("^")) negated = !negated;
      const auto end = pattern_.find('}', at_);
      if (end == std::string_view::npos) fail("\\p{ is not closed");
      name = pattern_.substr(at_, end - at_);
      at_ = end + 1;
    } else {
      append_code_point(name, take());
    }
    auto set = CodePointSet::property(name);
    if (!set) fail(set.error().message);
    return negated ? set->complement() : std::move(*set);
  }

  CodePointSet hexadecimal(std::size_t digits) {
    char32_t value = 0;
    std::size_t read = 0;
    for (; at_ < pattern_.size() && (digits == 0 ? read < 6 : read < digits); ++read, ++at_) {
      const char c = pattern_[at_];
      if (c >= '0' && c <= '9')
        value = value * 16 + static_cast<char32_t>(c - '0');
      else if (c >= 'a' && c <= 'f')
        value = value * 16 + static_cast<char32_t>(c - 'a' + 10);
      else if (c >= 'A' && c <= 'F')
        value = value * 16 + static_cast<char32_t>(c - 'A' + 10);
      else
        break;
    }
    if (read == 0 || value >= code_point_end || (digits == 0 && !skip("}"))) fail("a code point in hexadecimal digits is expected");
    return CodePointSet(value);
  }

  /// After the opening bracket.
  CodePointSet character_class(std::size_t depth) {
    if (depth > deepest_class) fail("classes are nested too deep");
    const bool negated = skip("^");
    CodePointSet all, part;
    bool intersected = false;
    for (bool first = true; first || !looking_at("]"); first = false) {
      if (at_ >= pattern_.size()) fail("a class [ is not closed");
      if (skip("&&")) {
        all = intersected ? all.common(part) : part;
        intersected = true;
        part = {};
        continue;
      }
      if (looking_at("[:")) fail("[:name:] is not supported");
      part = part.united(skip("[") ? character_class(depth + 1) : class_range());
    }
    skip("]");
    if (intersected) part = all.common(part);
    return negated ? part.complement() : part;
  }

  CodePointSet class_range() {
    const CodePointSet low = class_item();
    const bool range = looking_at("-") && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
    if (!range || low.bounds().size() != 2 || low.bounds()[1] != low.bounds()[0] + 1) return low;
    skip("-");
    const CodePointSet high = class_item();
    if (high.bounds().size() != 2 || high.bounds()[1] != high.bounds()[0] + 1 || high.bounds()[0] < low.bounds()[0])
      fail("this range has no end or runs backwards");
    return CodePointSet(low.bounds()[0], high.bounds()[0]);
  }
  CodePointSet class_item() { return skip("\\") ? escaped() : CodePointSet(take()); }

  [[nodiscard]] CodePointSet either_case(CodePointSet set) const {
    const CodePointSet cased = CodePointSet::category("Lu").united(CodePointSet::category("Ll")).united(CodePointSet::category("Lt"));
    const CodePointSet beyond = set.common(CodePointSet(0x80, code_point_end - 1)).common(cased);
    if (!beyond.empty() && !set.complement().common(cased).empty()) fail("letters beyond ASCII without regard to case are not supported");
    for (char32_t upper = 'A'; upper <= 'Z'; ++upper) {
      if (!set.contains(upper) && !set.contains(upper + 32)) continue;
      set = set.united(CodePointSet(upper)).united(CodePointSet(upper + 32));
      if (upper == 'K') set = set.united(CodePointSet(0x212a));  // the Kelvin sign
      if (upper == 'S') set = set.united(CodePointSet(0x017f));  // the long s
    }
    return set;
  }

  std::string_view pattern_;
  PatternSyntax syntax_;
  std::size_t at_ = 0, last_atom_ = 0;
  char32_t previous_literal_ = 0;
  bool quantifiable_ = false;
  std::vector<Group> groups_;
  ReadPattern out_;
};

}  // namespace

Result<ReadPattern> read_pattern(std::string_view pattern, PatternSyntax syntax) {
  if (valid_utf8_prefix(pattern) != pattern.size()) return Error{"the pattern is not UTF-8"};
  try {
    return PatternReader(pattern, syntax).read();
  } catch (const NotUnderstood& error) {
    return Error{error.what()};
  }
}

}  // namespace troupe
