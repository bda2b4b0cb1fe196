#include "src/data/record_encoder.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "src/data/token_documents.hpp"

namespace troupe {
namespace {

/// Sources: the chat_template of Meta-Llama-3-8B-Instruct and that of Qwen1.5 (OpenAI's ChatML).
constexpr std::array<ChatTemplate, 2> chat_templates{
    ChatTemplate{.name = "llama3",
                 .begin = "<|start_header_id|>",
                 .middle = "<|end_header_id|>",
                 .before_content = "\n\n",
                 .end = "<|eot_id|>",
                 .after = "",
                 .trims = true},
    ChatTemplate{.name = "chatml", .begin = "<|im_start|>", .middle = "", .before_content = "\n", .end = "<|im_end|>", .after = "\n"}};

/// A mark of the template that the tokenizer does not have; empty: none.
std::string_view missing_mark(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  for (const std::string_view mark : {chat.begin, chat.middle, chat.end})
    if (!mark.empty() && !tokenizer.id_of(mark)) return mark;
  return {};
}

/// What Python's str.strip takes off, which the templates' `trim` is: whitespace of the separators and bidirectional classes B, S and WS.
constexpr std::array<std::string_view, 29> blanks{" ",      "\t",     "\r",     "\n",     "\v",     "\f",     "\x1c",   "\x1d",   "\x1e",   "\x1f",
                                                  "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
                                                  "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};

std::string_view trimmed(std::string_view text) {
  const auto is_at = [&text](bool end) {
    return std::ranges::find_if(blanks, [&](std::string_view blank) { return end ? text.ends_with(blank) : text.starts_with(blank); });
  };
  for (auto blank = is_at(false); blank != blanks.end(); blank = is_at(false)) text.remove_prefix(blank->size());
  for (auto blank = is_at(true); blank != blanks.end(); blank = is_at(true)) text.remove_suffix(blank->size());
  return text;
}

}  // namespace

Result<ChatTemplate> find_chat_template(const std::string& name, const Tokenizer& tokenizer) {
  for (const ChatTemplate& chat : chat_templates) {
    if (!name.empty() && chat.name != name) continue;
    const std::string_view missing = missing_mark(chat, tokenizer);
    if (missing.empty()) return chat;
    if (!name.empty())
      return Error{"data.chat_template = \"" + name + "\" marks turns with " + std::string(missing) + ", which the tokenizer " + tokenizer.parts().name +
                   " does not have"};
  }
  return Error{"data.records = \"messages\": the tokenizer " + tokenizer.parts().name +
               " has the marks of no known chat template (llama3: <|start_header_id|>, chatml: <|im_start|>); use the tokenizer of a chat model, or write "
               "the data as prompt and completion (data.records = \"prompt_completion\")"};
}

RecordEncoder::RecordEncoder(const std::shared_ptr<const Tokenizer>& tokenizer, RecordRules record, RecordEncoding how)
    : record_(std::move(record)), how_(std::move(how)), encoder_(tokenizer) {
  if (record_.form != RecordForm::messages) return;
  const auto chat = find_chat_template(how_.chat_template, *tokenizer);
  if (!chat) throw std::invalid_argument(chat.error().message);
  chat_ = *chat;
}

void RecordEncoder::put_text(std::string_view text, std::vector<std::int32_t>& out) {
  encoder_.encode(text, {.around = false, .special_in_text = how_.special_in_text, .count_special = true}, out);
}

void RecordEncoder::put_mark(std::string_view mark, bool target, std::vector<std::int32_t>& out) const {
  if (mark.empty()) return;
  const std::int32_t id = encoder_.tokenizer().id_of(mark).value();
  out.push_back(target || how_.train_on_input ? id : not_a_target(id));
}

/// Both are encoded as one text, so that the ids are those of the whole; targets are what comes after the tokens of `before`.
void RecordEncoder::put_answer(std::string_view before, std::string_view answer, std::vector<std::int32_t>& out) {
  whole_.clear();
  head_.clear();
  put_text(std::string(before) + std::string(answer), whole_);
  const std::uint64_t spelled = encoder_.special_spelled();
  put_text(before, head_);
  const auto differ = std::mismatch(head_.begin(), head_.end(), whole_.begin(), whole_.end());
  auto first = static_cast<std::size_t>(differ.second - whole_.begin());
  if (differ.first != head_.end()) {  // the answer has changed tokens of `before`: targets are what the answer alone ends with too
    head_.clear();
    put_text(answer, head_);
    const auto same = std::mismatch(head_.rbegin(), head_.rend(), whole_.rbegin(), whole_.rend());
    first = std::max(std::min(first + 1, whole_.size()), static_cast<std::size_t>(whole_.rend() - same.second));
  }
  encoder_.set_special_spelled(spelled);  // they are in the whole
  for (std::size_t i = 0; i < whole_.size(); ++i) out.push_back(i < first && !how_.train_on_input ? not_a_target(whole_[i]) : whole_[i]);
}

void RecordEncoder::put_turn(const Turn& turn, std::vector<std::int32_t>& out) {
  const std::string_view content = chat_->trims ? trimmed(turn.content) : std::string_view(turn.content);
  put_mark(chat_->begin, false, out);
  std::string before = turn.role;
  if (!chat_->middle.empty()) {
    put_answer(turn.role, "", out);
    put_mark(chat_->middle, false, out);
    before.clear();
  }
  before += chat_->before_content;
  if (turn.is_answer())
    put_answer(before, content, out);
  else
    put_answer(before + std::string(content), "", out);
  put_mark(chat_->end, turn.is_answer(), out);
  if (!chat_->after.empty()) put_answer(chat_->after, "", out);
}

void RecordEncoder::encode(std::string_view text, std::vector<std::int32_t>& out) {
  if (record_.form == RecordForm::text) return put_text(text, out);
  const std::vector<Turn> turns = unpack_turns(text);
  if (record_.form == RecordForm::prompt_completion) return put_answer(turns.at(0).content, turns.at(1).content, out);
  for (const Turn& turn : turns) put_turn(turn, out);
}

}  // namespace troupe
