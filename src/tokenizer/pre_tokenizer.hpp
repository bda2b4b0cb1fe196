#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/pieces.hpp"
#include "src/tokenizer/split_pattern.hpp"

namespace troupe {

/// What becomes of the matches of a pattern, named as in tokenizer.json.
enum class SplitBehaviour : std::uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// One step of a pre-tokeniser, as data. Immutable: any thread.
struct PreTokenizerStep {
  enum class Kind : std::uint8_t {
    split,         ///< `pattern`, `behaviour`, `invert`
    prefix_space,  ///< a blank before each piece that has none
    byte_level,    ///< bytes to characters of the byte alphabet; only where it is not the last step: the last is the model's affair
    metaspace,     ///< blanks become `replacement`, which also goes in front; `split` cuts before each
  };
  enum class Prepend : std::uint8_t { always, first, never };
  Kind kind = Kind::split;
  std::shared_ptr<const SplitPattern> pattern = {};
  SplitBehaviour behaviour = SplitBehaviour::isolated;
  bool invert = false;
  std::string replacement = {};
  Prepend prepend = Prepend::always;
  bool cut = true;
};

/// Runs the steps on texts; one thread.
class PreTokenizer {
 public:
  explicit PreTokenizer(const std::vector<PreTokenizerStep>& steps);  ///< `steps` outlive it
  /// `list`: one piece, the whole text. Pieces that come out empty are left out.
  void run(PieceList& list);

 private:
  void split(const PreTokenizerStep& step, SplitMatcher& matcher, PieceList& list);
  void join_parts(SplitBehaviour behaviour, std::vector<Piece>& out) const;
  struct Part {
    Piece piece;
    bool match;
  };
  const std::vector<PreTokenizerStep>& steps_;
  std::vector<std::unique_ptr<SplitMatcher>> matchers_;  ///< one a step; null where it has no pattern
  ClassifiedText classified_;
  std::vector<Part> parts_;
};

}  // namespace troupe
