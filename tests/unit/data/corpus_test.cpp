#include "src/data/corpus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::vector<std::string> documents_of(const std::shared_ptr<const Corpus>& corpus) {
  DocumentReader reader(corpus);
  std::vector<std::string> documents;
  for (std::uint64_t i = 0; i < corpus->facts().documents; ++i) {
    std::string text(corpus->text_bytes(i), '\0');
    reader.read(i, 0, text);
    documents.push_back(text);
  }
  return documents;
}

class CorpusTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const Corpus>> open(DataFormat format, const std::vector<std::string>& paths, const std::string& cache = "") {
    return Corpus::open({.format = format, .paths = paths, .index_folder = cache, .progress = {}});
  }
  std::vector<std::string> read(DataFormat format, std::string_view content) {
    auto corpus = open(format, {folder_.write("data", content)});
    if (!corpus) return {"error: " + corpus.error().message};
    facts_ = (*corpus)->facts();
    return documents_of(*corpus);
  }
  std::string refusal(DataFormat format, std::string_view content) {
    auto corpus = open(format, {folder_.write("data", content)});
    return corpus ? "accepted" : corpus.error().message;
  }
  TemporaryFolder folder_;
  CorpusFacts facts_;
};

// B012
TEST_F(CorpusTest, BlankLinesCrLfAndAMissingFinalNewlineAreFine) {
  EXPECT_THAT(read(DataFormat::jsonl, "{\"text\":\"a\"}\r\n\r\n   \n{\"text\":\"b\"}"), ElementsAre("a", "b"));
  EXPECT_EQ(facts_.blank_lines, 2U);
}

// B013
TEST_F(CorpusTest, RecordsEndAtLineFeedsOnly) {
  EXPECT_THAT(read(DataFormat::jsonl,
                   "{\"text\":\"a\xe2\x80\xa8"
                   "b\xc2\x85"
                   "c\xe2\x80\xa9"
                   "d\\u000be\"}\n"),
              ElementsAre("a\xe2\x80\xa8"
                          "b\xc2\x85"
                          "c\xe2\x80\xa9"
                          "d\x0b"
                          "e"));
}

// B010
TEST_F(CorpusTest, EmptyTextsAreSkippedAndCounted) {
  EXPECT_THAT(read(DataFormat::jsonl, "{\"text\":\"\"}\n{\"text\":\"ab\"}\n{\"text\":\"\"}\n{\"text\":\"cd\"}\n{\"text\":\"\"}\n"), ElementsAre("ab", "cd"));
  EXPECT_EQ(facts_.empty_documents, 3U);
}

// B010
TEST_F(CorpusTest, DataOfEmptyTextsAloneIsRefused) {
  EXPECT_THAT(refusal(DataFormat::jsonl, "{\"text\":\"\"}\n\n{\"text\":\"\"}\n"), HasSubstr("no text in 1 file"));
  EXPECT_THAT(refusal(DataFormat::jsonl, "{\"text\":\"\"}\n\n{\"text\":\"\"}\n"), HasSubstr("2 empty documents, 1 blank lines"));
  EXPECT_THAT(refusal(DataFormat::text, ""), HasSubstr("no text in 1 file"));
}

TEST_F(CorpusTest, FortunesArePartedByLinesOfASinglePercentSign) {
  EXPECT_THAT(read(DataFormat::text, "one\n%\n%\n\n \n%\ntwo %\n% three\n%\r\nfour"), ElementsAre("one\n", "two %\n% three\n", "four"));
  EXPECT_EQ(facts_.empty_documents, 1U);
}

TEST_F(CorpusTest, AFileWithoutSeparatorsIsOneDocumentByteForByte) {
  const std::string text = "line\r\n\r\n\xff\xfe invalid UTF-8 is bytes too\n";
  EXPECT_THAT(read(DataFormat::text, text), ElementsAre(text));
}

TEST_F(CorpusTest, LinesThatSpanReadPiecesAreFoundWhole) {
  const std::string big((std::size_t{1} << 20U) - 3, 'a');  // the separator straddles the 1 MiB pieces
  EXPECT_THAT(read(DataFormat::text, big + "\n%\nrest"), ElementsAre(big + "\n", "rest"));
  const std::string record = "{\"text\":\"" + std::string(3U << 20U, 'b') + "\"}\n";
  EXPECT_THAT(read(DataFormat::jsonl, record + "{\"text\":\"c\"}\n"), ElementsAre(std::string(3U << 20U, 'b'), "c"));
}

TEST_F(CorpusTest, ManyDocumentsOverSeveralFilesKeepTheirPlaces) {
  std::vector<std::string> expected;
  for (int file = 0; file < 3; ++file) {
    std::string text;
    for (int i = 0; i < 150; ++i) {
      expected.push_back("f" + std::to_string(file) + "d" + std::to_string(i));
      text += "{\"id\": [1, {\"text\": 3}], \"text\": \"" + expected.back() + "\", \"z\": null}\n" + (i % 7 == 0 ? "\n\n" : "");
    }
    folder_.write("part" + std::to_string(file) + ".jsonl", text);
  }
  auto corpus = open(DataFormat::jsonl, {(folder_.path() / "part*.jsonl").string()});
  ASSERT_TRUE(corpus) << corpus.error().message;
  EXPECT_EQ(documents_of(*corpus), expected);
}

TEST_F(CorpusTest, ABadRecordIsNamedByFileLineAndByte) {
  const auto data = (folder_.path() / "data").string();
  EXPECT_THAT(refusal(DataFormat::jsonl, "{\"text\":\"a\"}\n{\"text\":\"b\"\n"), HasSubstr(data + ":2: (byte 24) "));
  EXPECT_THAT(refusal(DataFormat::jsonl, "{\"text\":\"a\"}\n{\"txt\":\"b\"}\n"), HasSubstr(data + ":2: (byte 13) the object has no key \"text\""));
  EXPECT_THAT(refusal(DataFormat::jsonl, "{\"text\":8}\n"), HasSubstr(data + ":1: (byte 0) \"text\" is a number, expected a string"));
  EXPECT_THAT(refusal(DataFormat::jsonl, "{\"text\":[\"a\"]}\n"), HasSubstr("\"text\" is an array"));
  EXPECT_THAT(refusal(DataFormat::jsonl, "{\"text\":{\"text\":\"a\"}}\n"), HasSubstr("\"text\" is an object"));
  EXPECT_THAT(refusal(DataFormat::jsonl, "{\"text\":\"a\",\"text\":\"b\"}\n"), HasSubstr("stands twice"));
  EXPECT_THAT(refusal(DataFormat::jsonl, "[\"a\"]\n"), HasSubstr("found an array"));
}

TEST_F(CorpusTest, BinaryAndCompressedFilesAreRefusedByName) {
  EXPECT_THAT(refusal(DataFormat::text, std::string("abc\0def", 7)), HasSubstr("looks like a binary file (NUL byte at 3)"));
  EXPECT_THAT(refusal(DataFormat::jsonl, "\x1f\x8b\x08rest"), HasSubstr("is compressed (gzip)"));
  auto allowed = Corpus::open(
      {.format = DataFormat::text, .paths = {folder_.write("data", std::string("abc\0def", 7))}, .allow_binary = true, .index_folder = "", .progress = {}});
  ASSERT_TRUE(allowed) << allowed.error().message;
  EXPECT_THAT(documents_of(*allowed), ElementsAre(std::string("abc\0def", 7)));
}

TEST_F(CorpusTest, PathsThatLeadNowhereAreNamed) {
  const auto nowhere = (folder_.path() / "nowhere.txt").string();
  EXPECT_THAT(open(DataFormat::text, {nowhere}).error().message, HasSubstr("cannot find '" + nowhere + "': No such file"));
  EXPECT_THAT(open(DataFormat::text, {(folder_.path() / "*.none").string()}).error().message, HasSubstr("no file matches"));
  EXPECT_THAT(open(DataFormat::text, {folder_.path().string()}).error().message, HasSubstr("is a folder; name its files"));
  EXPECT_THAT(open(DataFormat::text, {}).error().message, HasSubstr("names no file"));
  if (geteuid() != 0) {
    const auto closed = folder_.write("closed.txt", "text");
    std::filesystem::permissions(closed, std::filesystem::perms::none);
    EXPECT_THAT(open(DataFormat::text, {closed}).error().message, HasSubstr("cannot read '" + closed + "'"));
  }
}

TEST_F(CorpusTest, FilesAreReadOnceInPathOrderWhateverNamesThem) {
  const auto b = folder_.write("b.txt", "bb"), a = folder_.write("a.txt", "aa");
  folder_.write("a.dat", std::string(1, '\0'));
  std::filesystem::create_symlink(a, folder_.path() / "z.txt");
  std::filesystem::create_directory(folder_.path() / "sub");
  auto corpus = open(DataFormat::text, {b, (folder_.path() / "*").string(), a, "!*.dat"});
  ASSERT_TRUE(corpus) << corpus.error().message;
  EXPECT_THAT(documents_of(*corpus), ElementsAre("aa", "bb"));
}

TEST_F(CorpusTest, TheIndexIsUsedAgainUntilTheDataChangesOrTheIndexIsDamaged) {
  const auto cache = (folder_.path() / "cache").string();
  const auto data = folder_.write("data.txt", "one\n%\ntwo");
  EXPECT_FALSE((*open(DataFormat::text, {data}, cache))->facts().from_cache);
  auto again = open(DataFormat::text, {data}, cache);
  EXPECT_TRUE((*again)->facts().from_cache);
  EXPECT_THAT(documents_of(*again), ElementsAre("one\n", "two"));

  for (const auto& entry : std::filesystem::directory_iterator(cache)) {
    std::fstream index(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    index.seekp(70);
    index.put('\x55');
  }
  auto repaired = open(DataFormat::text, {data}, cache);
  EXPECT_FALSE((*repaired)->facts().from_cache);
  EXPECT_THAT(documents_of(*repaired), ElementsAre("one\n", "two"));

  folder_.write("data.txt", "three\n%\nfour\n%\nfive");
  auto changed = open(DataFormat::text, {data}, cache);
  EXPECT_FALSE((*changed)->facts().from_cache);
  EXPECT_EQ((*changed)->facts().documents, 3U);
}

TEST_F(CorpusTest, ProgressReachesTheWhole) {
  std::uint64_t last = 0, total = 0;
  auto corpus = Corpus::open({.format = DataFormat::text,
                              .paths = {folder_.write("data", std::string(3U << 20U, 'x'))},
                              .index_folder = "",
                              .progress = [&](std::uint64_t done, std::uint64_t all) {
                                EXPECT_GT(done, last);
                                last = done;
                                total = all;
                              }});
  ASSERT_TRUE(corpus);
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, std::uint64_t{3} << 20U);
}

}  // namespace
}  // namespace troupe
