#include <arrow/array/builder_binary.h>
#include <arrow/array/builder_dict.h>
#include <arrow/array/builder_nested.h>
#include <arrow/io/file.h>
#include <arrow/ipc/writer.h>
#include <arrow/table.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include <filesystem>
#include <random>

#include "src/data/loader.hpp"
#include "src/data/table_files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

void require(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}
template <class T>
T take(arrow::Result<T> result) {
  require(result.status());
  return std::move(result).ValueUnsafe();
}

template <class Builder = arrow::StringBuilder>
std::shared_ptr<arrow::Array> texts(const std::vector<std::optional<std::string>>& values, Builder builder = Builder()) {
  for (const auto& value : values) require(value ? builder.Append(*value) : builder.AppendNull());
  return take(builder.Finish());
}

std::shared_ptr<arrow::Table> table(const std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>>& columns) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const auto& [name, array] : columns) {
    fields.push_back(arrow::field(name, array->type()));
    arrays.push_back(array);
  }
  return arrow::Table::Make(arrow::schema(fields), arrays);
}

/// Tables as another program leaves them, read as documents of a run.
class TableTest : public ::testing::Test {
 protected:
  std::string parquet(const std::string& name, const std::shared_ptr<arrow::Table>& rows, std::int64_t group = 2) {
    const std::string path = (folder_.path() / name).string();
    const auto file = take(arrow::io::FileOutputStream::Open(path));
    require(parquet::arrow::WriteTable(*rows, arrow::default_memory_pool(), file, group));
    require(file->Close());
    return path;
  }
  std::string arrow(const std::string& name, const std::shared_ptr<arrow::Table>& rows, bool stream) {
    const std::string path = (folder_.path() / name).string();
    const auto file = take(arrow::io::FileOutputStream::Open(path));
    const auto writer = take(stream ? arrow::ipc::MakeStreamWriter(file, rows->schema()) : arrow::ipc::MakeFileWriter(file, rows->schema()));
    require(writer->WriteTable(*rows, 2));
    require(writer->Close());
    require(file->Close());
    return path;
  }
  Result<std::shared_ptr<const Corpus>> open(const std::vector<std::string>& paths, bool skip = false, const RecordRules& record = {}) {
    return Corpus::open({.format = DataFormat::table, .paths = paths, .skip_broken = skip, .record = record, .index_folder = cache_});
  }
  std::vector<std::string> documents(const std::vector<std::string>& paths, const RecordRules& record = {}) {
    const auto corpus = open(paths, false, record);
    if (!corpus) return {"error: " + corpus.error().message};
    DocumentReader reader(*corpus);
    std::vector<std::string> found;
    for (std::uint64_t i = (*corpus)->facts().documents; i-- > 0;) {  // from the end: any order is possible
      std::string text((*corpus)->text_bytes(i), '\0');
      reader.read(i, 0, text);
      found.insert(found.begin(), text);
    }
    return found;
  }
  std::string refusal(const std::string& path, const RecordRules& record = {}) {
    const auto corpus = open({path}, false, record);
    return corpus ? "accepted" : corpus.error().message;
  }
  TemporaryFolder folder_;
  std::string cache_ = (folder_.path() / "cache").string();
};

const std::vector<std::optional<std::string>> five{"one", "zw\xc3\xb6lf \"2\"\n\\", "three\x01\xe2\x80\xa8", "four", "five"};

TEST_F(TableTest, ParquetArrowFilesAndStreamsGiveTheTextsOfTheirColumn) {
  const auto rows = table({{"id", texts({"1", "2", "3", "4", "5"})}, {"text", texts(five)}});
  const auto expected = ElementsAre("one", "zw\xc3\xb6lf \"2\"\n\\", "three\x01\xe2\x80\xa8", "four", "five");
  EXPECT_THAT(documents({parquet("a.parquet", rows)}), expected);
  EXPECT_THAT(documents({arrow("a.arrow", rows, false)}), expected);
  EXPECT_THAT(documents({arrow("b.arrow", rows, true)}), expected);
  EXPECT_THAT(documents({(folder_.path() / "a.parquet").string()}, {.text_key = "id"}), ElementsAre("1", "2", "3", "4", "5"));
}

TEST_F(TableTest, LongAndCodedStringsAreTextsToo) {
  EXPECT_THAT(documents({parquet("long.parquet", table({{"text", texts<arrow::LargeStringBuilder>({"a", "b"})}}))}), ElementsAre("a", "b"));
  arrow::StringDictionaryBuilder coded;
  for (const char* word : {"x", "y", "x"}) require(coded.Append(word));
  EXPECT_THAT(documents({arrow("coded.arrow", table({{"text", take(coded.Finish())}}), false)}), ElementsAre("x", "y", "x"));
}

TEST_F(TableTest, DocumentsAreNamedByTheirRow) {
  const auto corpus = open({parquet("a.parquet", table({{"text", texts({"a", "", "c"})}}))});
  ASSERT_TRUE(corpus) << corpus.error().message;
  EXPECT_EQ((*corpus)->facts().empty_documents, 1U);
  EXPECT_THAT((*corpus)->where(1), HasSubstr("a.parquet, row 2"));
}

TEST_F(TableTest, ARowWithoutTextIsNamedOrSkippedAndCounted) {
  const std::string path = parquet("a.parquet", table({{"text", texts({"a", "b", std::nullopt, "d"})}}));
  EXPECT_THAT(refusal(path), HasSubstr("a.parquet: row 2: \"text\" is null, expected a string"));
  const auto skipped = open({path}, true);
  ASSERT_TRUE(skipped) << skipped.error().message;
  EXPECT_EQ((*skipped)->facts().documents, 3U);
  EXPECT_EQ((*skipped)->facts().broken_records, 1U);
}

TEST_F(TableTest, AMissingColumnIsNamedWithThoseThatAreThere) {
  const std::string path = parquet("a.parquet", table({{"content", texts({"a"})}, {"id", texts({"b"})}}));
  EXPECT_THAT(refusal(path), AllOf(HasSubstr("a.parquet: has no column \"text\"; its columns are content, id")));
}

TEST_F(TableTest, AColumnOfAnotherTypeIsRefused) {
  arrow::Int64Builder numbers;
  require(numbers.Append(5));
  EXPECT_THAT(refusal(parquet("a.parquet", table({{"text", take(numbers.Finish())}}))), HasSubstr("column \"text\" is of type int64, expected strings"));
}

TEST_F(TableTest, AFileThatIsCutOffIsNamedWhereverItIsCut) {
  const auto rows = table({{"text", texts(five)}});
  for (const std::string& path : {parquet("a.parquet", rows), arrow("a.arrow", rows, false), arrow("stream.arrow", rows, true)}) {
    const std::string whole = testing::read_file(path);
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 1 + whole.size() / 40) {
      std::filesystem::resize_file(path, bytes);
      EXPECT_THAT(refusal(path), HasSubstr(std::filesystem::path(path).filename().string() + ": ")) << bytes << " of " << whole.size();
      std::ofstream(path, std::ios::binary) << whole;
    }
    std::filesystem::resize_file(path, whole.size() - 1);
    EXPECT_THAT(refusal(path), HasSubstr("cut off"));
    std::ofstream(path, std::ios::binary) << whole;
  }
  EXPECT_THAT(refusal(folder_.write("text.parquet", "{\"text\": \"a\"}\n")), HasSubstr("is neither a Parquet nor an Arrow file"));
}

/// What a fuzzer of a build with sanitizers cannot reach, since Arrow's libraries are not instrumented: no damage ends the process.
TEST_F(TableTest, DamagedFilesAreErrorsOrTexts) {
  std::mt19937_64 random(7);
  const auto rows = table({{"text", texts(five)}});
  for (const std::string& path : {parquet("a.parquet", rows), arrow("a.arrow", rows, false), arrow("stream.arrow", rows, true)}) {
    const std::string whole = testing::read_file(path);
    std::size_t refused = 0;
    for (int round = 0; round < 300; ++round) {
      std::string damaged = whole;
      for (int bytes = 1 + static_cast<int>(random() % 3); bytes > 0; --bytes) damaged[random() % damaged.size()] = static_cast<char>(random());
      std::ofstream(path, std::ios::binary) << damaged;
      std::filesystem::remove_all(cache_);
      refused += refusal(path) == "accepted" ? 0 : 1;
    }
    EXPECT_GT(refused, 20U) << path;
  }
}

TEST_F(TableTest, ConversationsAreListsOfStructs) {
  const auto role = std::make_shared<arrow::StringBuilder>(), content = std::make_shared<arrow::StringBuilder>();
  const auto type = arrow::struct_({arrow::field("role", arrow::utf8()), arrow::field("content", arrow::utf8())});
  const auto message =
      std::make_shared<arrow::StructBuilder>(type, arrow::default_memory_pool(), std::vector<std::shared_ptr<arrow::ArrayBuilder>>{role, content});
  arrow::ListBuilder list(arrow::default_memory_pool(), message);
  require(list.Append());
  for (const auto& [who, what] : {std::pair{"user", "2 + 2"}, std::pair{"assistant", "4"}}) {
    require(message->Append());
    require(role->Append(who));
    require(content->Append(what));
  }
  const std::string path = parquet("chat.parquet", table({{"messages", take(list.Finish())}}));
  const auto found = documents({path}, {.form = RecordForm::messages});
  ASSERT_EQ(found.size(), 1U) << found.front();
  EXPECT_THAT(unpack_turns(found.front()), ElementsAre(Turn{"user", "2 + 2"}, Turn{"assistant", "4"}));
}

TEST_F(TableTest, ATableAndItsTextsAsJsonLinesGiveTheSameRows) {
  std::vector<std::optional<std::string>> many;
  std::string lines;
  for (int i = 0; i < 50; ++i) {
    many.push_back("text " + std::string(static_cast<std::size_t>(i % 7), 'x') + std::to_string(i));
    lines += "{\"text\": \"" + *many.back() + "\"}\n";
  }
  const auto rows_of = [&](DataFormat format, const std::string& path) {
    const auto corpus = Corpus::open({.format = format, .paths = {path}, .index_folder = cache_});
    if (!corpus) throw std::runtime_error(corpus.error().message);
    return make_loader(*corpus, {.layout = {2, 16}, .sampler = {.seed = 3}});
  };
  const auto a = rows_of(DataFormat::table, parquet("a.parquet", table({{"text", texts(many)}}), 7));
  const auto b = rows_of(DataFormat::jsonl, folder_.write("a.jsonl", lines));
  std::vector<std::byte> batch(BatchLayout{2, 16}.bytes());
  struct NoStream final : Stream {
  } stream;
  for (std::uint64_t step = 1; step < 60; ++step)
    EXPECT_EQ(a->load(stream, Step{step}, Micro{0}, batch).digest, b->load(stream, Step{step}, Micro{0}, batch).digest) << "step " << step;
}

TEST_F(TableTest, APlainCopyIsMadeOnceAndNotBeyondTheLimit) {
  const std::string path = parquet("a.parquet", table({{"text", texts(five)}}));
  ASSERT_EQ(documents({path}).size(), 5U);
  const auto copies = [&] {
    std::vector<std::filesystem::file_time_type> times;
    for (const auto& entry : std::filesystem::directory_iterator(cache_))
      if (entry.path().filename().string().starts_with("unpacked-")) times.push_back(entry.last_write_time());
    return times;
  };
  const auto before = copies();
  ASSERT_EQ(before.size(), 1U);
  ASSERT_EQ(documents({path}).size(), 5U);
  EXPECT_EQ(copies(), before);
  const auto limited = Corpus::open({.format = DataFormat::table, .paths = {path}, .index_folder = cache_ + "2", .unpack_limit_bytes = 10});
  EXPECT_THAT(limited.error().message, HasSubstr("a.parquet: unpacked files would take more than data.unpack_limit_gib"));
}

}  // namespace
}  // namespace troupe
