#include "src/tokenizer/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using Ids = std::vector<std::int32_t>;

std::string escaped(char32_t point) {
  char text[16];
  std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(point));
  return text;
}

/// 256 byte tokens, spelt in the byte alphabet; then what a test adds.
std::string byte_vocabulary(const std::string& more = "") {
  const ByteAlphabet alphabet;
  std::string text;
  for (int byte = 0; byte < 256; ++byte)
    text += (byte > 0 ? ",\"" : "\"") + escaped(alphabet.character_of(static_cast<unsigned char>(byte))) + "\":" + std::to_string(byte);
  return "{" + text + more + "}";
}

struct File {
  std::string vocab = byte_vocabulary(), merges = "[]", added = "[]", normalizer = "null", post = "null", extra = {};
  std::string pre = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})", decoder = R"({"type":"ByteLevel"})";
  [[nodiscard]] std::string json() const {
    return R"({"added_tokens":)" + added + R"(,"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" + pre + R"(,"post_processor":)" + post + R"(,"decoder":)" +
           decoder + R"(,"model":{"type":"BPE","vocab":)" + vocab + R"(,"merges":)" + merges + extra + "}}";
  }
};
std::string added(int id, const std::string& content, const std::string& more = "") {
  return R"({"id":)" + std::to_string(id) + R"(,"content":")" + content + R"(","special":true)" + more + "}";
}

class TokenizerTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> load(const File& file) {
    auto loaded = Tokenizer::load(folder_.write("tokenizer.json", file.json()));
    if (!loaded) throw std::runtime_error(loaded.error().message);
    return *loaded;
  }
  std::string problem_of(const std::string& json) {
    const auto loaded = Tokenizer::load(folder_.write("tokenizer.json", json));
    return loaded ? "none" : loaded.error().message;
  }
  static Ids ids(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text, EncodeOptions options = {}) {
    Ids out;
    TokenEncoder(tokenizer).encode(text, options, out);
    return out;
  }
  std::vector<std::string> pieces(std::string_view pattern, const std::string& text) {
    const auto compiled = SplitPattern::compile(pattern, PatternSyntax::oniguruma);
    if (!compiled) throw std::runtime_error(compiled.error().message);
    const std::vector<PreTokenizerStep> steps{{.pattern = *compiled}};
    PieceList list;
    list.text = text;
    list.pieces = {{0, static_cast<std::uint32_t>(text.size())}};
    PreTokenizer(steps).run(list);
    std::vector<std::string> found;
    for (const auto piece : list.pieces) found.push_back(text.substr(piece.begin, piece.end - piece.begin));
    return found;
  }
  TemporaryFolder folder_;
};
constexpr std::string_view gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view llama3 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

TEST_F(TokenizerTest, OneTokenMayBeginAndEndTexts) {  // B027
  folder_.write("tokenizer_config.json", R"({"bos_token":"<|endoftext|>","eos_token":{"content":"<|endoftext|>"}})");
  const auto tokenizer = load({.added = "[" + added(256, "<|endoftext|>") + "]"});
  EXPECT_EQ(tokenizer->parts().bos, 256);
  EXPECT_EQ(tokenizer->parts().eos, 256);
}

TEST_F(TokenizerTest, TheBeginningIsMarkedOnlyWhereItIsAskedFor) {  // B029
  const std::string post =
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<b>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<b>":{"id":"<b>","ids":[256]}}})";
  for (const bool around : {true, false}) {
    EXPECT_EQ(ids(load({.added = "[" + added(256, "<b>") + "]", .post = post}), "a", {.around = around}), around ? Ids({256, 97}) : Ids({97}));
    EXPECT_EQ(ids(load({.added = "[" + added(256, "<b>") + "]"}), "a", {.around = around}), Ids({97}));
  }
}

TEST_F(TokenizerTest, TextsAreSplitByTheRuleInTheFile) {  // B031
  EXPECT_THAT(pieces(gpt2, "1234567 12"), ElementsAre("1234567", " 12"));
  EXPECT_THAT(pieces(llama3, "1234567 12"), ElementsAre("123", "456", "7", " ", "12"));
  EXPECT_THAT(pieces(gpt2, "I'M"), ElementsAre("I", "'", "M"));
  EXPECT_THAT(pieces(llama3, "I'M"), ElementsAre("I", "'M"));
  EXPECT_THAT(pieces(gpt2, "tab\there"), ElementsAre("tab", "\t", "here"));
  EXPECT_THAT(pieces(llama3, "tab\there"), ElementsAre("tab", "\there"));
  EXPECT_THAT(pieces(gpt2, "_hi(x);\n"), ElementsAre("_", "hi", "(", "x", ");", "\n"));
  EXPECT_THAT(pieces(llama3, "_hi(x);\n"), ElementsAre("_hi", "(x", ");\n"));
  EXPECT_THAT(pieces(gpt2, "x\n\n  y"), ElementsAre("x", "\n\n ", " y"));
  EXPECT_THAT(pieces(llama3, "x\n\n  y"), ElementsAre("x", "\n\n", " ", " y"));
}

TEST_F(TokenizerTest, TheLastBlankOfARunGoesWithTheText) {  // B032
  EXPECT_THAT(pieces(llama3, "a  b"), ElementsAre("a", " ", " b"));
  EXPECT_THAT(pieces(llama3, "a   "), ElementsAre("a", "   "));
  EXPECT_THAT(pieces(llama3, "def f():\n    return  x"), ElementsAre("def", " f", "():\n", "   ", " return", " ", " x"));
}

TEST_F(TokenizerTest, APieceThatIsATokenIsTakenWholeWhereTheFileSaysSo) {  // B034
  const std::string vocab = R"({"a":0,"b":1,"c":2,"ab":3,"bc":4,"abc":5,"x":6})";
  EXPECT_EQ(ids(load({.vocab = vocab, .merges = R"([["b","c"]])", .extra = R"(,"ignore_merges":true)"}), "abc"), Ids({5}));
  EXPECT_EQ(ids(load({.vocab = vocab, .merges = R"([["b","c"]])"}), "abc"), Ids({0, 4}));
  EXPECT_EQ(ids(load({.vocab = vocab, .merges = R"([["b","c"]])", .extra = R"(,"ignore_merges":true)"}), "xabc"), Ids({6, 0, 4}));
  EXPECT_THAT(problem_of(File{.vocab = vocab, .merges = R"([["b","x"]])"}.json()), HasSubstr("model.merges[0]: \"b\" and \"x\": \"bx\" is not in model.vocab"));
}

TEST_F(TokenizerTest, MergesArePairsOrStringsAndNothingElse) {  // B035
  const std::string vocab = R"({"a":0,"b":1,"c":2,"ab":3,"bc":4})";
  const auto pairs = load({.vocab = vocab, .merges = R"([["a","b"],["b","c"]])"}), strings = load({.vocab = vocab, .merges = R"(["a b","b c"])"});
  for (const std::string text : {"abc", "bcab", "cabbca", "aabbcc"}) EXPECT_EQ(ids(pairs, text), ids(strings, text));
  EXPECT_THAT(problem_of(File{.vocab = vocab, .merges = R"(["ab"])"}.json()),
              HasSubstr("model.merges[0]: expected two tokens with a blank between, found \"ab\""));
  EXPECT_THAT(load({.vocab = byte_vocabulary(R"(,"hello":256)")})->parts().warnings, ElementsAre(HasSubstr("model.merges is empty")));
}

TEST_F(TokenizerTest, AddedTokensDecodeToTheirOwnText) {  // B038
  const auto tokenizer = load({.added = "[" + added(256, "<a>") + "," + added(257, "<b>") + "," + added(258, "ilÖve") + "]"});
  EXPECT_EQ(ids(tokenizer, "ilÖve", {.special_in_text = true}), Ids({258}));
  EXPECT_EQ(tokenizer->decode(Ids{258, 33}, false), "ilÖve!");
}

TEST_F(TokenizerTest, TheOrderOfMergesIsTheirPlaceInTheList) {  // B039
  EXPECT_EQ(ids(load({.vocab = R"({"a":0,"b":1,"c":2,"bc":3,"ab":4})", .merges = R"(["a b","b c"])"}), "abc"), Ids({4, 2}));
}

TEST_F(TokenizerTest, AddedTokensSwallowBlanksAsTheySay) {  // B039
  const std::string before = added(256, "<a>") + "," + added(257, "<b>") + ",";
  EXPECT_EQ(ids(load({.added = "[" + before + added(258, "[M]", R"(,"lstrip":true)") + "]"}), "a  [M] b", {.special_in_text = true}), Ids({97, 258, 32, 98}));
  EXPECT_EQ(ids(load({.added = "[" + before + added(258, "[M]", R"(,"rstrip":true)") + "]"}), "a  [M] b", {.special_in_text = true}),
            Ids({97, 32, 32, 258, 98}));
  EXPECT_EQ(ids(load({.pre = R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true})"}), "a"), Ids({32, 97}));
}

TEST_F(TokenizerTest, UnknownCharactersFallBackToTheirBytes) {  // B041
  const std::string rest = R"(,"byte_fallback":true,"unk_token":"<unk>")",
                    decoder = R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]})";
  const auto tokenizer = load({.vocab = R"({"<unk>":0,"a":1,"<0xE2>":2,"<0x82>":3,"<0xAC>":4})", .extra = rest, .pre = "null", .decoder = decoder});
  EXPECT_EQ(ids(tokenizer, "€"), Ids({2, 3, 4}));
  EXPECT_EQ(tokenizer->decode(Ids{2, 3, 4}), "€");
  EXPECT_EQ(tokenizer->decode(Ids{2, 3}), "\ufffd\ufffd");
  EXPECT_EQ(ids(load({.vocab = R"({"<unk>":0,"a":1,"<0xE2>":2,"<0x82>":3})", .extra = rest, .pre = "null"}), "€"), Ids({0}));
}

TEST_F(TokenizerTest, AStreamGivesWholeCharacters) {  // B042
  const auto tokenizer = load({});
  EXPECT_EQ(tokenizer->decode(Ids{230, 157, 165}), "来");
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.next(230), "");
  EXPECT_EQ(stream.next(157), "");
  EXPECT_EQ(stream.next(165), "来");
  EXPECT_EQ(stream.next(230), "");
  EXPECT_EQ(stream.next(157), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  std::string all;
  for (const auto id : ids(tokenizer, "Straße 来来来 and on and on")) all += stream.next(id);
  EXPECT_EQ(all + stream.finish(), "Straße 来来来 and on and on");
}

TEST_F(TokenizerTest, TextThatSpellsASpecialTokenIsTextUnlessAskedFor) {  // B043
  const auto tokenizer = load({.added = "[" + added(256, "<bos>") + "," + added(257, "<eos>") + "]"});
  EXPECT_EQ(ids(tokenizer, "a<eos>b"), Ids({97, 60, 101, 111, 115, 62, 98}));
  EXPECT_EQ(ids(tokenizer, "a<eos>b", {.special_in_text = true}), Ids({97, 257, 98}));
}

TEST_F(TokenizerTest, LongRunsTakeLinearTimeAndGiveTheSameIds) {  // B045
  std::string merges, vocab, run = "a";
  for (int i = 0; i < 6; ++i) {
    merges += (i > 0 ? ",\"" : "\"") + run + " " + run + "\"";
    run += run;
    vocab += ",\"" + run + "\":" + std::to_string(300 + i);
  }
  const auto tokenizer = load({.vocab = byte_vocabulary(vocab), .merges = "[" + merges + "]"});
  const Ids many = ids(tokenizer, std::string(200'000, 'a'));
  EXPECT_EQ(many, Ids(200'000 / 64, 305));
  EXPECT_EQ(ids(tokenizer, std::string(40, 'a')), Ids({304, 302}));  // by the other way of merging
  EXPECT_EQ(ids(tokenizer, std::string(104, 'a')), Ids({305, 304, 302}));
  EXPECT_EQ(ids(tokenizer, std::string(200'000, ' ')).size(), 200'000U);
}

TEST_F(TokenizerTest, WhatIsNotSupportedIsNamedWithItsPlace) {
  EXPECT_THAT(problem_of("{\"model\": "), HasSubstr("tokenizer.json: "));
  EXPECT_THAT(problem_of(R"({"model":{"type":"BPE","vocab":{"a":0}}})"), HasSubstr("model.merges: is missing"));
  EXPECT_THAT(problem_of(R"({"model":{"type":"WordPiece","vocab":{"a":0},"merges":[]}})"), HasSubstr("model.type: \"WordPiece\" is not supported; BPE is"));
  EXPECT_THAT(problem_of(File{.normalizer = R"({"type":"Sequence","normalizers":[{"type":"Lowercase"}]})"}.json()),
              HasSubstr("normalizer.normalizers[0].type: \"Lowercase\" is not supported"));
  EXPECT_THAT(problem_of(File{.vocab = R"({"a":-1})"}.json()), HasSubstr("expected an id"));
  EXPECT_THAT(problem_of(File{.vocab = R"({"a":2000000000})"}.json()), HasSubstr("id 2000000000 in a vocabulary of 1 tokens"));
  EXPECT_THAT(problem_of(File{.added = "[" + added(4, "<x>") + "]"}.json()), HasSubstr("added_tokens[0].id: 4 is \"<x>\" here and"));
  EXPECT_THAT(problem_of(File{.pre = R"json({"type":"Split","pattern":{"Regex":"(?<name>a)"},"behavior":"Isolated"
})json"}
                             .json()),
              HasSubstr("pattern.Regex: the pattern (?<name>a): this kind of group"));
  EXPECT_THAT(Tokenizer::load((folder_.path() / "absent").string()).error().message, HasSubstr("there is no such file or folder"));
  EXPECT_THAT(Tokenizer::load(folder_.write("tokenizer.model", "\n\x07\n\x05<unk>")).error().message, HasSubstr("is a SentencePiece model"));
  EXPECT_THAT(Tokenizer::load(folder_.write("tokenizer.model", "YQ== 0\nY!== 1\n")).error().message, HasSubstr("tokenizer.model:2: \"Y!\" is no base64"));
}

TEST_F(TokenizerTest, BytesThatAreNoTextReadAsReplacementCharacters) {
  const auto tokenizer = load({});
  EXPECT_EQ(tokenizer->decode(ids(tokenizer,
                                  "a\xff\xe2\x82"
                                  "b\xed\xa0\x80")),
            "a\ufffd\ufffd"
            "b\ufffd\ufffd\ufffd");
}

}  // namespace
}  // namespace troupe
