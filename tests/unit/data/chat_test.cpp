#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/data/byte_tokenizer.hpp"
#include "src/data/loader.hpp"
#include "src/data/open_documents.hpp"
#include "src/data/record_encoder.hpp"
#include "src/data/token_shards.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;
using Tokens = std::vector<std::int32_t>;

std::string question(const std::string& asked, const std::string& answer) {
  return R"({"messages": [{"role": "user", "content": ")" + asked + R"("}, {"role": "assistant", "content": ")" + answer + "\"}]}\n";
}

/// Conversations, and prompts with completions, as tokens of a small tokenizer: a 0, b 1, u 2, s 3, ab 4, LF 5, and marks from 6 on. Other letters are no
/// tokens of it and are left out.
class ChatTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> tokenizer(const std::vector<std::string>& marks) {
    std::string added;
    for (std::size_t i = 0; i < marks.size(); ++i)
      added += (i > 0 ? "," : "") + std::string("{\"id\":") + std::to_string(6 + i) + ",\"content\":\"" + marks[i] + "\",\"special\":true}";
    const auto loaded = Tokenizer::load(folder_.write("tokenizer.json", "{\"added_tokens\":[" + added + R"(],
      "model":{"type":"BPE","vocab":{"a":0,"b":1,"u":2,"s":3,"ab":4,"\n":5},"merges":["a b"]}})"));
    if (!loaded) throw std::runtime_error(loaded.error().message);
    return *loaded;
  }
  std::shared_ptr<const Tokenizer> llama3() { return tokenizer({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>"}); }
  DataSettings settings(const std::string& lines, const std::string& records) {
    DataSettings data;
    data.dataset = "jsonl";
    data.dataset_path = {folder_.write("chat.jsonl", lines)};
    data.records = records;
    return data;
  }
  static Result<Corpora> open(const DataSettings& data, const std::shared_ptr<const Tokenizer>& with, std::string* warned = nullptr) {
    DocumentOptions how{.tokenizer = with, .encoding = {data.special_tokens_in_text, data.train_on_input, data.chat_template.value_or("")}};
    if (warned != nullptr) how.warn = [warned](const std::string& text) { *warned = text; };
    return open_corpora(sources_of(data), how);
  }
  static Tokens document(const Corpora& corpora, std::uint64_t i) {
    Tokens tokens(corpora.front()->tokens(i));
    corpora.front()->reader({})->read(i, 0, tokens);
    return tokens;
  }
  static std::string refusal(const Result<Corpora>& opened) { return opened ? "accepted" : opened.error().message; }
  TemporaryFolder folder_;
};

TEST_F(ChatTest, OnlyWhatTheAssistantSaysIsATarget) {
  const auto opened = open(settings(question("ab", " b "), "messages"), llama3());
  ASSERT_TRUE(opened) << opened.error().message;
  const auto n = not_a_target;
  EXPECT_EQ(document(*opened, 0), Tokens({n(6), n(2), n(3), n(7), n(5), n(5), n(4), n(8), n(6), n(0), n(3), n(3), n(3), n(0), n(7), n(5), n(5), 1, 8}));
  RowSampler rows(opened->front(), {.shuffle = false, .seq_len = 19});
  Tokens tokens(19), labels(19);
  EXPECT_EQ(rows.row(0, tokens, labels), 2U);
  EXPECT_EQ(tokens, Tokens({6, 2, 3, 7, 5, 5, 4, 8, 6, 0, 3, 3, 3, 0, 7, 5, 5, 1, 8}));
  Tokens expected(19, ignored_label);
  expected[16] = 1;
  expected[17] = 8;
  EXPECT_EQ(labels, expected) << "the turn's mark ends the document; no other end is put behind it";
}

TEST_F(ChatTest, AllOfItIsATargetWhereThatIsAskedFor) {
  DataSettings data = settings(question("ab", "b"), "messages");
  data.train_on_input = true;
  const auto opened = open(data, llama3());
  ASSERT_TRUE(opened) << opened.error().message;
  RowSampler rows(opened->front(), {.shuffle = false, .seq_len = 19});
  Tokens tokens(19), labels(19);
  EXPECT_EQ(rows.row(0, tokens, labels), 18U);
}

TEST_F(ChatTest, TheTemplateIsTheOneWhoseMarksTheTokenizerHas) {
  const auto opened = open(settings(question("a", "b"), "messages"), tokenizer({"<|im_start|>", "<|im_end|>"}));
  ASSERT_TRUE(opened) << opened.error().message;
  const auto n = not_a_target;
  EXPECT_EQ(document(*opened, 0), Tokens({n(6), n(2), n(3), n(5), n(0), n(7), n(5), n(6), n(0), n(3), n(3), n(3), n(0), n(5), 1, 7, n(5)}));
  EXPECT_THAT(refusal(open(settings(question("a", "b"), "messages"), tokenizer({"<s>"}))), HasSubstr("has the marks of no known chat template"));
  DataSettings named = settings(question("a", "b"), "messages");
  named.chat_template = "llama3";
  EXPECT_THAT(refusal(open(named, tokenizer({"<|im_start|>", "<|im_end|>"}))), HasSubstr("marks turns with <|start_header_id|>, which the tokenizer"));
  EXPECT_THAT(refusal(open(named, nullptr)), HasSubstr("set model.hf_assets_path"));
}

TEST_F(ChatTest, OfAPromptAndItsCompletionTheCompletionIsTrainedOn) {
  const auto opened =
      open(settings("{\"prompt\": \"b\", \"completion\": \"ab\"}\n{\"prompt\": \"a\", \"completion\": \"ba\"}\n", "prompt_completion"), llama3());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(document(*opened, 0), Tokens({not_a_target(1), 4}));
  EXPECT_EQ(document(*opened, 1), Tokens({not_a_target(4), 0})) << "a token over the boundary is the prompt's";
}

TEST_F(ChatTest, ATokenWithAnyPartOfThePromptIsNoTarget) {
  const auto shifted = Tokenizer::load(folder_.write("shifted.json", R"({"added_tokens":[],
      "model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"bc":4},"merges":["b c","a b"]}})"));
  ASSERT_TRUE(shifted) << shifted.error().message;
  const auto opened =
      open(settings("{\"prompt\": \"ab\", \"completion\": \"c\"}\n{\"prompt\": \"ab\", \"completion\": \"ca\"}\n", "prompt_completion"), *shifted);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(document(*opened, 0), Tokens({not_a_target(0), not_a_target(4)})) << "bc holds the prompt's b";
  EXPECT_EQ(document(*opened, 1), Tokens({not_a_target(0), not_a_target(4), 0}));
}

TEST_F(ChatTest, RecordsSayNothingOfAValidationSetOfPlainText) {
  ValidationSettings what;
  what.dataset = "text";
  what.dataset_path = {folder_.write("plain.txt", "ab\n%\nb\n")};
  const auto opened = open_corpora({corpus_options(settings(question("ab", "b"), "messages"), what)}, {.tokenizer = llama3()});
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(document(*opened, 0).at(0), 4);
}

TEST_F(ChatTest, ShardsKeepTheMasks) {
  const auto with = llama3();
  const DataSettings data = settings(question("a", "b") + question("bb", "ab"), "messages");
  const auto corpus = Corpus::open(corpus_options(data));
  ASSERT_TRUE(corpus) << corpus.error().message;
  ASSERT_TRUE(tokenize_corpus(*corpus, with, {.folder = folder_.path() / "t"}));
  const auto shards = open_token_shards(folder_.path() / "t", with->parts().hash);
  ASSERT_TRUE(shards) << shards.error().message;
  const auto direct = open(data, with);
  ASSERT_TRUE(direct) << direct.error().message;
  for (std::uint64_t i = 0; i < 2; ++i) EXPECT_EQ(document({*shards}, i), document(*direct, i));
}

TEST_F(ChatTest, WhatSpellsAMarkIsTextAndCounted) {
  std::string warned;
  const auto opened = open(settings(question("<|eot_id|>", "b</s>"), "messages"), llama3(), &warned);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(std::ranges::count(document(*opened, 0), not_a_target(8)), 1) << "the mark that ends the user's turn alone";
  EXPECT_THAT(warned, HasSubstr("the texts spell 2 special tokens, which are text like any other"));
}

TEST_F(ChatTest, BrokenRecordsAreNamed) {
  const auto problem = [&](const std::string& line, const std::string& records = "messages") {
    return refusal(open(settings(line + "\n", records), llama3()));
  };
  EXPECT_THAT(problem("{\"text\": \"a\"}"), HasSubstr("chat.jsonl:1: (byte 0) the object has no key \"messages\""));
  EXPECT_THAT(problem("{\"messages\": 5}"), HasSubstr("\"messages\" is number, expected an array"));
  EXPECT_THAT(problem("{\"messages\": [7]}"), HasSubstr("message 0 is number, expected an object"));
  EXPECT_THAT(problem("{\"messages\": [{\"role\": \"user\"}]}"), HasSubstr("message 0 has no key \"content\""));
  EXPECT_THAT(problem("{\"messages\": [{\"role\": \"user\", \"content\": null}]}"), HasSubstr("message 0: \"content\" is null, expected a string"));
  EXPECT_THAT(problem("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}"), HasSubstr("no message is of the role \"assistant\""));
  EXPECT_THAT(problem("{\"prompt\": \"a\"}", "prompt_completion"), HasSubstr("the object has no key \"completion\""));
  EXPECT_THAT(problem("{\"messages\": [", "messages"), HasSubstr("chat.jsonl:1: (byte 1"));
  EXPECT_THAT(problem("{\"messages\": [1e999]}"), HasSubstr("number overflow"));
  EXPECT_THROW((void)unpack_turns("\x05"), std::runtime_error);
}

TEST_F(ChatTest, ATextMayStandUnderAnotherKey) {
  DataSettings data = settings("{\"content\": \"ab\"}\n", "text");
  data.text_key = "content";
  const auto opened = open(data, llama3());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(document(*opened, 0), Tokens({4}));
  EXPECT_THAT(refusal(open(settings("{\"content\": \"ab\"}\n", "text"), llama3())), HasSubstr("the object has no key \"text\""));
}

}  // namespace
}  // namespace troupe
