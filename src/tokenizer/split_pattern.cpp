#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/tokenizer/split_pattern.hpp"

#include <pcre2.h>

#include <array>
#include <stdexcept>

#include "src/tokenizer/code_points.hpp"
#include "src/tokenizer/pattern_reader.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t most_steps = 50'000'000;

std::string reason(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

std::string set_text(const std::vector<std::uint8_t>& members, std::size_t classes) {
  if (members.empty()) return "(?!)";
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t member : members) text += std::string("\\x") + digits[member >> 4U] + digits[member & 15U];
  if (members.size() == 1) return text;
  return members.size() == classes ? "[\\x00-\\xff]" : "[" + text + "]";
}

}  // namespace

Result<std::shared_ptr<const SplitPattern>> SplitPattern::compile(std::string_view pattern, PatternSyntax syntax) {
  const auto wrong = [&](const std::string& why) { return Error{"the pattern " + std::string(pattern) + ": " + why}; };
  auto read = read_pattern(pattern, syntax);
  if (!read) return wrong(read.error().message);
  auto classes = CodePointClasses::partition(read->sets);
  if (!classes) return wrong(classes.error().message);
  std::string text;
  for (const PatternPart& part : read->parts) text += part.set == PatternPart::no_set ? part.text : set_text(classes->members(part.set), classes->count());
  std::shared_ptr<SplitPattern> made(new SplitPattern);
  made->classes_ = std::make_unique<CodePointClasses>(std::move(*classes));
  int code = 0;
  PCRE2_SIZE where = 0;
  made->code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_DOTALL | PCRE2_NEVER_UTF, &code, &where, nullptr);
  if (made->code_ == nullptr) return wrong(reason(code));
  pcre2_jit_compile(made->code_, PCRE2_JIT_COMPLETE);  // where there is no JIT, the interpreter does the same
  return std::shared_ptr<const SplitPattern>(std::move(made));
}

Result<std::shared_ptr<const SplitPattern>> SplitPattern::literal(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}-&").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return compile(pattern, PatternSyntax::oniguruma);
}

SplitPattern::~SplitPattern() { pcre2_code_free(code_); }

void SplitPattern::classify(std::string_view text, ClassifiedText& out) const {
  out.offsets.clear();
  out.classes.resize(text.size());
  std::array<std::uint8_t, 128> ascii{};
  for (char32_t c = 0; c < 128; ++c) ascii[c] = classes_->of(c);
  std::size_t at = 0;
  for (; at < text.size() && static_cast<unsigned char>(text[at]) < 0x80; ++at) out.classes[at] = ascii[static_cast<unsigned char>(text[at])];
  if (at == text.size()) return;
  out.offsets.resize(text.size() + 1);
  for (std::size_t i = 0; i < at; ++i) out.offsets[i] = static_cast<std::uint32_t>(i);
  std::size_t count = at;
  for (; at < text.size(); ++count) {
    out.offsets[count] = static_cast<std::uint32_t>(at);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      out.classes[count] = ascii[byte];
      ++at;
    } else {
      out.classes[count] = classes_->of(next_code_point(text, at));
    }
  }
  out.offsets[count] = static_cast<std::uint32_t>(at);
  out.classes.resize(count);
  out.offsets.resize(count + 1);
}

SplitMatcher::SplitMatcher(std::shared_ptr<const SplitPattern> pattern)
    : pattern_(std::move(pattern)), data_(pcre2_match_data_create_from_pattern(pattern_->code_, nullptr)), context_(pcre2_match_context_create(nullptr)) {
  if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit(context_, most_steps);
}

SplitMatcher::~SplitMatcher() {
  pcre2_match_data_free(data_);
  pcre2_match_context_free(context_);
}

bool SplitMatcher::find(const ClassifiedText& text, std::size_t begin, std::size_t from, std::size_t end, std::size_t& match_begin, std::size_t& match_end) {
  const int found = pcre2_match(pattern_->code_, text.classes.data() + begin, end - begin, from - begin, 0, data_, context_);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) throw std::runtime_error("splitting a text of " + std::to_string(end - begin) + " characters failed: " + reason(found));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_);
  match_begin = begin + bounds[0];
  match_end = begin + bounds[1];
  return true;
}

}  // namespace troupe
