#include "src/tokenizer/normalizer.hpp"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <array>
#include <stdexcept>

#include "src/tokenizer/code_points.hpp"

namespace troupe {
namespace {

/// Normal forms of Unicode 9.0: code points of later versions stay as they are.
class NormalForms {
 public:
  NormalForms() : known_(icu::UnicodeString("[:age=9.0:]"), status_) {
    const std::array<const icu::Normalizer2*, 4> newest{icu::Normalizer2::getNFCInstance(status_), icu::Normalizer2::getNFDInstance(status_),
                                                        icu::Normalizer2::getNFKCInstance(status_), icu::Normalizer2::getNFKDInstance(status_)};
    if (U_FAILURE(status_)) throw std::runtime_error(std::string("normal forms of Unicode: ") + u_errorName(status_));
    known_.freeze();
    for (std::size_t i = 0; i < newest.size(); ++i) forms_[i] = std::make_unique<icu::FilteredNormalizer2>(*newest[i], known_);
  }
  void run(NormalizerStep::Form form, std::string& text) const {
    const icu::Normalizer2& chosen = *forms_[static_cast<std::size_t>(form)];  // whose short overloads the filtered class hides
    UErrorCode status = U_ZERO_ERROR;
    const icu::UnicodeString wide = icu::UnicodeString::fromUTF8(text);
    if (chosen.isNormalized(wide, status) != 0 && U_SUCCESS(status)) return;
    const icu::UnicodeString normal = chosen.normalize(wide, status);
    if (U_FAILURE(status)) throw std::runtime_error(std::string("normalising a text: ") + u_errorName(status));
    text.clear();
    normal.toUTF8String(text);
  }

 private:
  UErrorCode status_ = U_ZERO_ERROR;
  icu::UnicodeSet known_;
  std::array<std::unique_ptr<icu::FilteredNormalizer2>, 4> forms_;
};

const NormalForms& normal_forms() {
  static const NormalForms forms;
  return forms;
}

bool ascii(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  return true;
}

void strip(const NormalizerStep& step, std::string& text) {
  static const CodePointSet blanks = CodePointSet::white_space();
  std::size_t begin = 0, end = text.size();
  for (std::size_t at = 0; step.left && at < text.size(); begin = at)
    if (!blanks.contains(next_code_point(text, at))) break;
  while (step.right && end > begin) {
    const std::size_t before = code_point_before(text, end);
    std::size_t at = before;
    if (!blanks.contains(next_code_point(text, at))) break;
    end = before;
  }
  text = text.substr(begin, end - begin);
}

void replace(const NormalizerStep& step, SplitMatcher& matcher, ClassifiedText& classified, std::string& text) {
  step.pattern->classify(text, classified);
  const std::size_t points = classified.classes.size();
  const auto byte_of = [&](std::size_t point) { return classified.offsets.empty() ? point : classified.offsets[point]; };
  std::string out;
  std::size_t done = 0, from = 0, begin = 0, end = 0;
  while (from < points && matcher.find(classified, 0, from, points, begin, end)) {
    from = end > begin ? end : end + 1;
    if (end == begin) continue;
    out.append(text, byte_of(done), byte_of(begin) - byte_of(done)).append(step.content);
    done = end;
  }
  if (done == 0) return;
  out.append(text, byte_of(done), std::string::npos);
  text = std::move(out);
}

}  // namespace

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps) : steps_(steps) {
  for (const auto& step : steps) matchers_.push_back(step.pattern ? std::make_unique<SplitMatcher>(step.pattern) : nullptr);
}

void Normalizer::run(std::string& text) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const NormalizerStep& step = steps_[i];
    switch (step.kind) {
      case NormalizerStep::Kind::form:
        if (!ascii(text)) normal_forms().run(step.form, text);
        break;
      case NormalizerStep::Kind::prepend:
        if (!text.empty()) text.insert(0, step.content);
        break;
      case NormalizerStep::Kind::replace: replace(step, *matchers_[i], classified_, text); break;
      case NormalizerStep::Kind::strip: strip(step, text); break;
    }
  }
}

}  // namespace troupe
