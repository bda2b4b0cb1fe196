#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"

namespace troupe {

/// What a record of JSONL, Parquet or Arrow holds: a text, a conversation (`messages`: objects of role and content), or a prompt and its completion.
enum class RecordForm : std::uint8_t { text, messages, prompt_completion };

struct RecordRules {
  RecordForm form = RecordForm::text;
  std::string text_key = "text";  ///< key or column of a text
  /// Keys of the object, columns of the table.
  [[nodiscard]] std::vector<std::string> columns() const {
    if (form == RecordForm::messages) return {"messages"};
    if (form == RecordForm::prompt_completion) return {"prompt", "completion"};
    return {text_key};
  }
  /// Differs where records are read in another way; empty for the usual one.
  [[nodiscard]] std::string key() const {
    if (form != RecordForm::text) return form == RecordForm::messages ? "messages" : "prompt+completion";
    return text_key == "text" ? "" : "text=" + text_key;
  }
};

/// A part of a record that is no plain text. Roles are those of the record; of a prompt and its completion "prompt" and "completion".
struct Turn {
  std::string role, content;
  [[nodiscard]] bool is_answer() const noexcept { return role == "assistant" || role == "completion"; }
  [[nodiscard]] bool operator==(const Turn&) const = default;
};

/// Turns as one string, which a Corpus holds as the text of such a record.
[[nodiscard]] std::string pack_turns(const std::vector<Turn>& turns);
/// Throws std::runtime_error where it is none of pack_turns.
[[nodiscard]] std::vector<Turn> unpack_turns(std::string_view packed);

}  // namespace troupe
