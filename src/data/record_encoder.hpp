#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/data/record.hpp"
#include "src/tokenizer/tokenizer.hpp"

namespace troupe {

/// How records become tokens.
struct RecordEncoding {
  bool special_in_text = false;    ///< text that spells a special token becomes it
  bool train_on_input = false;     ///< what is no answer is a target too
  std::string chat_template = {};  ///< llama3 or chatml; empty: the one whose marks the tokenizer has
};

/// The marks around a turn: begin, role, middle, text, content, end, text. `begin`, `middle` and `end` are special tokens; an empty one is left out.
struct ChatTemplate {
  std::string_view name, begin, middle, before_content, end, after;
  bool trims = false;  ///< blanks around a content go
};

/// That of this name, or with an empty one that which the tokenizer has the marks of. Errors name the template, the mark that is missing, and what is known.
[[nodiscard]] Result<ChatTemplate> find_chat_template(const std::string& name, const Tokenizer& tokenizer);

/// Turns the texts of a Corpus to tokens; one thread. Of turns, what the model is to answer is a target and all else is not (not_a_target): of a conversation
/// the content of assistant turns and the mark that ends them, of a prompt and its completion the completion. A token over the boundary is none.
class RecordEncoder {
 public:
  /// Throws std::invalid_argument where find_chat_template does not find one.
  RecordEncoder(const std::shared_ptr<const Tokenizer>& tokenizer, RecordRules record, RecordEncoding how);
  void encode(std::string_view text, std::vector<std::int32_t>& out);
  /// Special tokens that the texts so far spell.
  [[nodiscard]] std::uint64_t special() const noexcept { return encoder_.special_spelled(); }

 private:
  void put_text(std::string_view text, std::vector<std::int32_t>& out);
  void put_mark(std::string_view mark, bool target, std::vector<std::int32_t>& out) const;
  void put_turn(const Turn& turn, std::vector<std::int32_t>& out);
  void put_answer(std::string_view before, std::string_view answer, std::vector<std::int32_t>& out);

  RecordRules record_;
  RecordEncoding how_;
  TokenEncoder encoder_;
  std::optional<ChatTemplate> chat_;
  std::vector<std::int32_t> whole_, head_;
};

}  // namespace troupe
