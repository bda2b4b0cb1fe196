#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "src/base/clock.hpp"
#include "src/data/loader.hpp"
#include "src/data/megatron_documents.hpp"
#include "src/data/open_documents.hpp"
#include "src/data/token_shards.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;
using Tokens = std::vector<std::int32_t>;

class TokenDocumentsTest : public ::testing::Test {
 protected:
  /// Ids: a 0, b 1, ab 2, <s> 3, </s> 4.
  std::shared_ptr<const Tokenizer> tokenizer(const std::string& more = "") {
    folder_.write("tokenizer_config.json", R"({"bos_token":"<s>","eos_token":"</s>"})");
    return load(folder_.write("tokenizer.json", R"({"added_tokens":[{"id":3,"content":"<s>","special":true},{"id":4,"content":"</s>","special":true}],
      "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})" +
                                                    more));
  }
  static std::shared_ptr<const Tokenizer> load(const std::string& path) {
    auto loaded = Tokenizer::load(path);
    if (!loaded) throw std::runtime_error(loaded.error().message);
    return *loaded;
  }
  std::shared_ptr<const Corpus> corpus(const std::string& lines, bool skip = false) {
    auto opened = Corpus::open({.format = DataFormat::jsonl, .paths = {folder_.write("docs.jsonl", lines)}, .skip_broken = skip});
    if (!opened) throw std::runtime_error(opened.error().message);
    return *opened;
  }
  static Tokens document(const TokenDocuments& documents, std::uint64_t i) {
    Tokens tokens(documents.tokens(i));
    documents.reader({})->read(i, 0, tokens);
    return tokens;
  }
  std::shared_ptr<const TokenDocuments> shards(const TokenizeOptions& options, const std::string& lines) {
    if (auto made = tokenize_corpus(corpus(lines), tokenizer(), options); !made) throw std::runtime_error(made.error().message);
    auto opened = open_token_shards(options.folder, 0);
    if (!opened) throw std::runtime_error(opened.error().message);
    return *opened;
  }
  /// PREFIX.idx and PREFIX.bin as Megatron writes them, ids of 2 bytes.
  std::string megatron(const std::vector<std::vector<std::uint16_t>>& sequences, const std::vector<std::int64_t>& documents) {
    std::string idx("MMIDIDX\0\0", 9), bin, pointers;
    const auto put = [](std::string& out, auto value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
    put(idx, std::uint64_t{1});
    put(idx, std::uint8_t{8});
    put(idx, static_cast<std::uint64_t>(sequences.size()));
    put(idx, static_cast<std::uint64_t>(documents.size()));
    for (const auto& sequence : sequences) {
      put(idx, static_cast<std::int32_t>(sequence.size()));
      put(pointers, static_cast<std::int64_t>(bin.size()));
      for (const auto id : sequence) put(bin, id);
    }
    idx += pointers;
    for (const auto document : documents) put(idx, document);
    folder_.write("data.bin", bin);
    return folder_.write("data.idx", idx);
  }
  TemporaryFolder folder_;
};
constexpr const char* three = "{\"text\": \"ab\"}\n{\"text\": \"bab\"}\n{\"text\": \"aab</s>\"}\n";

TEST_F(TokenDocumentsTest, ShardsHoldTheTokensOfEachDocument) {  // B011
  const auto documents = shards({.folder = folder_.path() / "t", .threads = 2, .part_bytes = 3}, three);
  ASSERT_EQ(documents->documents(), 3U);
  EXPECT_EQ(document(*documents, 0), Tokens({2}));
  EXPECT_EQ(document(*documents, 1), Tokens({1, 2}));
  EXPECT_EQ(document(*documents, 2), Tokens({0, 2})) << "what is no token of this small vocabulary is left out";
  EXPECT_EQ(documents->total_tokens(), 5U);
  EXPECT_EQ(documents->vocabulary(), 5);
  EXPECT_EQ(documents->bos(), 3);
}

TEST_F(TokenDocumentsTest, SpelledOutMarksAreTextAndDocumentsStayWhole) {  // B043
  const auto plain = shards({.folder = folder_.path() / "plain"}, "{\"text\": \"a</s>b\"}\n");
  const auto parsed = shards({.folder = folder_.path() / "parsed", .encoding = {.special_in_text = true}}, "{\"text\": \"a</s>b\"}\n");
  EXPECT_EQ(plain->documents(), 1U);
  EXPECT_EQ(document(*plain, 0), Tokens({2})) << "the letters a and b, and five characters that are no tokens";
  EXPECT_EQ(document(*parsed, 0), Tokens({0, 4, 1}));
}

TEST_F(TokenDocumentsTest, InterruptedWorkGoesOnWithTheShardThatItStoodIn) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"text\": \"" + std::string(static_cast<std::size_t>(10 + i), 'a') + "\"}\n";
  const auto text = corpus(lines);
  const auto with = tokenizer();
  int asked = 0;
  TokenizeOptions options{.folder = folder_.path() / "t", .part_bytes = 40, .stop = [&] { return ++asked > 9; }};
  EXPECT_THAT(tokenize_corpus(text, with, options).error().message, HasSubstr("call this again to go on"));
  EXPECT_THAT(open_token_shards(options.folder, 0).error().message, HasSubstr("there is no manifest.json"));
  options.stop = {};
  const auto facts = tokenize_corpus(text, with, options);
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_GT(facts->kept, 1U);
  EXPECT_LT(facts->kept, facts->shards);
  const auto whole = open_token_shards(options.folder, 0), anew = [&] {
    TokenizeOptions other{.folder = folder_.path() / "other", .threads = 3, .part_bytes = 70};
    (void)tokenize_corpus(text, with, other).ok();
    return open_token_shards(other.folder, with->parts().hash);
  }();
  ASSERT_TRUE(whole && anew);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(document(**whole, i), document(**anew, i));
}

TEST_F(TokenDocumentsTest, AShardThatIsCutOffOrDamagedIsMadeAgain) {
  const auto text = corpus(three);
  const auto with = tokenizer();
  const TokenizeOptions options{.folder = folder_.path() / "t"};
  ASSERT_TRUE(tokenize_corpus(text, with, options));
  const auto file = options.folder / "shard-00000.tokens";
  const std::string good = testing::read_file(file);
  std::string changed = good;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  for (const std::string& bytes : {good.substr(0, good.size() - 1), good.substr(0, 3), std::string(), changed}) {
    std::ofstream(file, std::ios::binary) << bytes;
    const auto again = tokenize_corpus(text, with, options);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->kept, 0U) << bytes.size() << " bytes";
    EXPECT_EQ(testing::read_file(file), good);
  }
  EXPECT_EQ(tokenize_corpus(text, with, options)->kept, 1U);
}

TEST_F(TokenDocumentsTest, AFileThatChangesUnderARunIsToldAndOneThatIsCutOffEndsIt) {
  const auto clock = make_system_clock();
  std::vector<std::string> warnings;
  LoaderOptions options{.layout = {1, 4}, .sampler = {.shuffle = false}};
  options.clock = clock.get();
  options.warn = [&](const std::string& text) { warnings.push_back(text); };
  std::vector<std::byte> batch(options.layout.bytes());
  struct NoStream final : Stream {
  } stream;
  const auto look_at = [&](const std::shared_ptr<const TokenDocuments>& documents, const std::filesystem::path& file) {
    const auto loader = make_loader(Corpora{documents}, options);
    warnings.clear();
    loader->load(stream, Step{1}, Micro{0}, batch);
    EXPECT_TRUE(warnings.empty()) << warnings.front();
    std::filesystem::last_write_time(file, std::filesystem::last_write_time(file) + std::chrono::hours(1));
    loader->load(stream, Step{2}, Micro{0}, batch);
    loader->load(stream, Step{3}, Micro{0}, batch);
    EXPECT_THAT(warnings, ::testing::ElementsAre(HasSubstr(file.string() + " was changed while the run reads it")));
    std::filesystem::resize_file(file, std::filesystem::file_size(file) * 3 / 4);
    EXPECT_THROW(loader->load(stream, Step{2200}, Micro{0}, batch), std::runtime_error);
  };
  std::string lines;  // several pages, so that what was cut off cannot be touched
  for (int i = 0; i < 3000; ++i) lines += "{\"text\": \"ababab\"}\n";
  look_at(shards({.folder = folder_.path() / "t"}, lines), folder_.path() / "t" / "shard-00000.tokens");
  const auto opened = open_megatron(megatron({std::vector<std::uint16_t>(9000, 7)}, {0, 1}), {.vocabulary = 100});
  ASSERT_TRUE(opened) << opened.error().message;
  look_at(*opened, folder_.path() / "data.bin");
}

/// Between the look at its size and the read of its tokens a file is cut off: no byte of it is left, and a page that is gone would end the process.
TEST_F(TokenDocumentsTest, AFileThatIsCutOffWhileItIsReadIsAnErrorThatNamesIt) {
  const auto cut = [](const std::shared_ptr<const TokenDocuments>& documents, const std::filesystem::path& file) {
    bool looked = false;
    const auto reader = documents->reader([&](std::uint32_t, int descriptor, std::span<char> out, std::uint64_t offset) {
      const ssize_t got = pread(descriptor, out.data(), out.size(), static_cast<off_t>(offset));
      std::filesystem::resize_file(file, 0);
      looked = true;
      return got;
    });
    Tokens tokens(1);
    std::string problem;
    try {
      reader->read(0, 0, tokens);
    } catch (const std::runtime_error& error) {
      problem = error.what();
    }
    EXPECT_TRUE(looked);
    EXPECT_THAT(problem, HasSubstr(file.string() + ": the file is shorter than when it was opened"));
    EXPECT_GT(documents->tokens(documents->documents() - 1), 0U) << "where documents end is still known";
    (void)documents->place(documents->documents() - 1);
  };
  cut(shards({.folder = folder_.path() / "t"}, three), folder_.path() / "t" / "shard-00000.tokens");
  const auto opened = open_megatron(megatron({{7, 8, 9}, {10}}, {0, 1, 2}), {.vocabulary = 100});
  ASSERT_TRUE(opened) << opened.error().message;
  cut(*opened, folder_.path() / "data.bin");
}

TEST_F(TokenDocumentsTest, ShardsOfAnotherTokenizerAreRefused) {
  (void)shards({.folder = folder_.path() / "t"}, three);
  EXPECT_THAT(open_token_shards(folder_.path() / "t", tokenizer("\n")->parts().hash).error().message, HasSubstr("made with another tokenizer"));
}

TEST_F(TokenDocumentsTest, DamagedShardsAreRefusedByName) {
  (void)shards({.folder = folder_.path() / "t"}, three);
  const auto file = folder_.path() / "t" / "shard-00000.tokens";
  const std::string good = testing::read_file(file);
  const auto problem = [&](const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
    const auto opened = open_token_shards(folder_.path() / "t", 0);
    if (!opened) return opened.error().message;
    try {
      for (std::uint64_t i = 0; i < (*opened)->documents(); ++i) (void)document(**opened, i);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(problem(good), "none");
  EXPECT_THAT(problem(good.substr(0, good.size() - 1)), HasSubstr("shard-00000.tokens: is no whole token shard: its counts do not fit"));
  EXPECT_THAT(problem("x"), HasSubstr("it has 1 bytes"));
  std::string changed = good;
  for (std::size_t at = 0; at < good.size(); ++at) {  // no flipped bit makes it read outside
    changed[at] = static_cast<char>(good[at] ^ 0x55);
    (void)problem(changed);
    changed[at] = good[at];
  }
  changed[good.size() - 1] = 0x7f;  // of the last id
  EXPECT_THAT(problem(changed), HasSubstr("in a vocabulary of 5: the shard is damaged"));
}

TEST_F(TokenDocumentsTest, RowsPutTheTokenizersMarksAroundDocuments) {  // B029
  RowSampler sampler(shards({.folder = folder_.path() / "t"}, three), {.shuffle = false, .seq_len = 5});
  Tokens tokens(5), labels(5);
  EXPECT_EQ(sampler.row(0, tokens, labels), 5U);
  EXPECT_EQ(tokens, Tokens({3, 2, 3, 1, 2}));
  EXPECT_EQ(labels, Tokens({2, 4, 1, 2, 4}));
}

TEST_F(TokenDocumentsTest, TextAndShardsOfItGiveTheSameRows) {
  (void)tokenizer();
  DataSettings settings;
  settings.dataset = "jsonl";
  settings.dataset_path = {folder_.write("docs.jsonl", three)};
  const auto with = open_tokenizer(folder_.path().string());
  ASSERT_TRUE(with) << with.error().message;
  auto sources = sources_of(settings);
  const auto passing = open_corpora(sources, {.tokenizer = *with});
  ASSERT_TRUE(passing) << passing.error().message;
  sources.front().index_folder = (folder_.path() / "index").string();
  const auto text = open_corpora(sources, {.tokenizer = *with});
  ASSERT_TRUE(text) << text.error().message;
  ASSERT_TRUE(tokenize_corpus(corpus(three), *with, {.folder = folder_.path() / "t"}));
  settings.dataset = "tokens";
  settings.dataset_path = {(folder_.path() / "t").string()};
  const auto ready = open_corpora(sources_of(settings), {.tokenizer = *with});
  ASSERT_TRUE(ready) << ready.error().message;
  const LoaderOptions options{.layout = {2, 7}, .sampler = {.seed = 5}};
  const auto a = make_loader(*text, options), b = make_loader(*ready, options);
  std::vector<std::byte> batch(options.layout.bytes());
  struct NoStream final : Stream {
  } stream;
  const auto c = make_loader(*passing, options);
  for (std::uint64_t step = 1; step < 20; ++step) {
    const std::uint64_t digest = a->load(stream, Step{step}, Micro{0}, batch).digest;
    EXPECT_EQ(digest, b->load(stream, Step{step}, Micro{0}, batch).digest) << "step " << step;
    EXPECT_EQ(digest, c->load(stream, Step{step}, Micro{0}, batch).digest) << "step " << step;
  }
  EXPECT_EQ(vocabulary_of(settings, std::nullopt)->value(), 5);
}

TEST_F(TokenDocumentsTest, MegatronsFilesAreRead) {
  const auto opened = open_megatron(megatron({{7, 8, 9}, {10}, {11, 12}}, {0, 2, 3}), {.vocabulary = 100, .eos = 99});
  ASSERT_TRUE(opened) << opened.error().message;
  ASSERT_EQ((*opened)->documents(), 2U);
  EXPECT_EQ(document(**opened, 0), Tokens({7, 8, 9, 10}));
  EXPECT_EQ(document(**opened, 1), Tokens({11, 12}));
  EXPECT_THROW((void)document(**open_megatron((folder_.path() / "data").string(), {.vocabulary = 10}), 1), std::runtime_error);
}

TEST_F(TokenDocumentsTest, DamagedMegatronFilesAreRefused) {
  const std::string path = megatron({{7, 8, 9}, {10}, {11, 12}}, {0, 2, 3}), good = testing::read_file(path);
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char flip : {'\x01', '\x40', '\xff'}) {
      std::string changed = good;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      folder_.write("data.idx", changed);
      const auto opened = open_megatron(path, {.vocabulary = 100});
      for (std::uint64_t i = 0; opened && i < (*opened)->documents(); ++i) (void)document(**opened, i);
    }
  }
  folder_.write("data.idx", good.substr(0, 40));
  EXPECT_THAT(open_megatron(path, {}).error().message, HasSubstr("data.idx: its counts are larger than the file"));
  folder_.write("data.idx", good);
  folder_.write("data.bin", "12345678");
  EXPECT_THAT(open_megatron(path, {}).error().message, HasSubstr("is beyond the 8 bytes of the .bin"));
}

TEST_F(TokenDocumentsTest, BrokenRecordsAreNamedOrSkippedAndCounted) {
  const std::string lines = "{\"text\": \"ab\"}\n{\"text\": \n{\"text\": 5}\n{\"text\": \"b\"}\n";
  EXPECT_THROW(corpus(lines), std::runtime_error);
  const auto skipped = corpus(lines, true);
  EXPECT_EQ(skipped->facts().documents, 2U);
  EXPECT_EQ(skipped->facts().broken_records, 2U);
  EXPECT_THAT(skipped->facts().first_broken, HasSubstr("docs.jsonl:2:"));
}

TEST_F(TokenDocumentsTest, DocumentsWithoutTokensArePassedOver) {
  const std::string lines = "{\"text\": \"x\"}\n{\"text\": \"ab\"}\n{\"text\": \"x\"}\n{\"text\": \"b\"}\n{\"text\": \"x\"}\n";
  const auto documents = shards({.folder = folder_.path() / "t"}, lines);
  ASSERT_EQ(documents->tokens(0), 0U) << "x is no token of this small vocabulary";
  RowSampler sampler(documents, {.shuffle = false, .add_bos = false, .add_eos = false, .mask_document_boundaries = false, .seq_len = 3});
  Tokens tokens(3), labels(3);
  EXPECT_EQ(sampler.row(0, tokens, labels), 3U);
  EXPECT_EQ(tokens, Tokens({2, 1, 2}));
  EXPECT_EQ(labels, Tokens({1, 2, 1}));
}

TEST_F(TokenDocumentsTest, TokensOfOneSourceAreOnePath) {
  const auto opened = open_documents({.format = DataFormat::tokens, .paths = {"a", "b", "!c"}}, {});
  EXPECT_THAT(opened.error().message, HasSubstr("are read from one path, found 2; several are a blend (data.blend_weights)"));
}

}  // namespace
}  // namespace troupe
