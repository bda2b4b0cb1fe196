#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/split_pattern.hpp"

namespace troupe {

/// One step of a normaliser, as data. Immutable: any thread.
struct NormalizerStep {
  enum class Kind : std::uint8_t {
    form,     ///< Unicode normal form `form`, of Unicode 9.0: what the original's library knows
    prepend,  ///< `content` in front of a text that is not empty
    replace,  ///< each match of `pattern` by `content`
    strip,    ///< blanks at the ends: `left`, `right`
  };
  enum class Form : std::uint8_t { nfc, nfd, nfkc, nfkd };
  Kind kind = Kind::form;
  Form form = Form::nfc;
  std::string content = {};
  std::shared_ptr<const SplitPattern> pattern = {};
  bool left = true, right = true;
};

/// Runs the steps; one thread.
class Normalizer {
 public:
  explicit Normalizer(const std::vector<NormalizerStep>& steps);  ///< `steps` outlive it
  [[nodiscard]] bool empty() const noexcept { return steps_.empty(); }
  /// `text`: valid UTF-8, changed in place.
  void run(std::string& text);

 private:
  const std::vector<NormalizerStep>& steps_;
  std::vector<std::unique_ptr<SplitMatcher>> matchers_;
  ClassifiedText classified_;
};

}  // namespace troupe
