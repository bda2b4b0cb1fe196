#include "src/checkpoint/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/support/memory_storage.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;

std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0, length = header.size(); i < 8; ++i, length >>= 8U) bytes[i] = static_cast<char>(length & 0xffU);
  return bytes + header + std::string(data_bytes, 'x');
}

std::string refusal(const std::string& file) {
  testing::MemoryStorage storage;
  storage.put("/a", file);
  auto reader = storage.open("/a");
  const auto header = read_safetensors_header(**reader, "a.safetensors");
  return header ? "accepted" : header.error().message;
}

TEST(Safetensors, AHeaderReadsBackAndItsDataIsAligned) {
  SafetensorsHeader header;
  header.metadata = {{"who", "\"quoted\" \xc3\xa9"}};
  header.tensors = {{"b", StoredType::bf16, {2, 3}, 0, 12},
                    {"empty", StoredType::f32, {0, 4}, 12, 12},
                    {"a", StoredType::e4m3, {5}, 12, 17},
                    {"scalar", StoredType::i64, {}, 17, 25}};
  const std::string bytes = write_safetensors_header(header);
  EXPECT_EQ(bytes.size() % 8, 0U);
  testing::MemoryStorage storage;
  storage.put("/a", bytes + std::string(25, 'x'));
  const auto read = read_safetensors_header(**storage.open("/a"), "a");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->metadata, header.metadata);
  EXPECT_EQ(read->data_begin, bytes.size());
  ASSERT_EQ(read->tensors.size(), 4U);
  EXPECT_EQ(read->tensors[0].name, "b");
  EXPECT_EQ(read->tensors[2].dtype, StoredType::e4m3);
  EXPECT_EQ(read->tensors[2].begin, 12U);
  EXPECT_EQ(read->tensors[3].shape, std::vector<std::int64_t>{});
}

TEST(Safetensors, OffsetsBeyondFourGibibytesAreKept) {
  SafetensorsHeader header;
  header.tensors = {{"big", StoredType::f32, {std::int64_t{1} << 31U, 4}, 0, std::uint64_t{1} << 35U}};
  EXPECT_THAT(write_safetensors_header(header), HasSubstr("\"data_offsets\":[0,34359738368]"));
}

// B169: a part of 65536 × 65536 fp32 on one of four ranks begins beyond 4 GiB of its file, and is read there.
TEST(Safetensors, APartBeyondFourGibibytesIsReadWhereItLies) {
  constexpr std::uint64_t gibibyte = std::uint64_t{1} << 30U;
  SafetensorsHeader header;
  header.tensors = {{"before", StoredType::f32, {16384, 65536}, 0, 4 * gibibyte}, {"after", StoredType::f32, {16384, 4}, 4 * gibibyte, 4 * gibibyte + 262144}};
  const std::string start = write_safetensors_header(header);
  const auto file = std::filesystem::temp_directory_path() / ("troupe-sparse-" + std::to_string(::getpid()));
  const std::uint64_t last = start.size() + header.tensors[1].end;
  {
    std::ofstream out(file, std::ios::binary);
    out << start;
    out.seekp(static_cast<std::streamoff>(last - 8));
    out << "the end.";
  }
  const auto storage = make_posix_storage();
  auto reader = storage->open(file);
  ASSERT_TRUE(reader) << reader.error().message;
  const auto read = read_safetensors_header(**reader, "sparse");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->tensors[1].begin, 4 * gibibyte);
  std::array<std::byte, 8> end{};
  ASSERT_TRUE((*reader)->read_at(read->data_begin + read->tensors[1].end - 8, end));
  EXPECT_EQ(std::memcmp(end.data(), "the end.", end.size()), 0);
  std::filesystem::remove(file);
}

TEST(Safetensors, MalformedFilesAreRefusedWithTheTensorsName) {
  const auto one = [](const std::string& entry, std::size_t data) { return refusal(file_of("{\"t\":" + entry + "}", data)); };
  EXPECT_EQ(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 8), "accepted");
  EXPECT_THAT(refusal("1234567"), HasSubstr("has 7 bytes, too few"));
  EXPECT_THAT(refusal(std::string(8, '\xff')), HasSubstr("does not fit a file of 8 bytes"));
  EXPECT_THAT(refusal(file_of("{}", 0).substr(0, 9)), HasSubstr("the header's length 2 does not fit"));
  EXPECT_THAT(refusal(file_of(" {}", 0)), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal(file_of("{\"t\":", 0)), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal(file_of("{}", 4)), HasSubstr("the tensors need 0 bytes, the file has 4"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", 4), HasSubstr("a.safetensors: tensor 't': shape [2] of F32 needs 8 bytes"));
  EXPECT_THAT(one(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})", 8), HasSubstr("tensor 't': unknown type \"F33\""));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", 8), HasSubstr("no list of sizes"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]})", 0), HasSubstr("needs too many bytes"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", 8), HasSubstr("hold another number"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})", 12), HasSubstr("begins at 4 of the data, expected 0 (hole)"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 9), HasSubstr("need 8 bytes, the file has 9"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 7), HasSubstr("need 8 bytes, the file has 7"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[2]})", 8), HasSubstr("expected dtype, shape and data_offsets"));
  const std::string entry = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  EXPECT_THAT(refusal(file_of("{\"a\":" + entry + ",\"b\":" + R"({"dtype":"U8","shape":[4],"data_offsets":[2,6]})" + "}", 6)),
              HasSubstr("tensor 'b': begins at 2 of the data, expected 4 (overlap)"));
  EXPECT_THAT(refusal(file_of("{\"a\":" + entry + ",\"a\":" + entry + "}", 4)), HasSubstr("tensor 'a': the name stands twice"));
  EXPECT_THAT(refusal(file_of("{\"__metadata__\":{\"n\":3}}", 0)), HasSubstr("is no string"));
}

Result<SafetensorsHeader> header_of(const std::string& file) {
  testing::MemoryStorage storage;
  storage.put("/a", file);
  return read_safetensors_header(**storage.open("/a"), "a.safetensors");
}

TEST(Safetensors, FilesWithoutTensorsAreValid) {
  for (const char* text : {"{}", R"({"__metadata__":{"format":"pt"}})"}) {
    const auto header = header_of(file_of(text, 0));
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_TRUE(header->tensors.empty());
  }
  SafetensorsHeader none;
  none.metadata = {{"format", "pt"}};
  EXPECT_THAT(write_safetensors_header(none), HasSubstr(R"({"__metadata__":{"format":"pt"}})"));
}

TEST(Safetensors, DataAtAnyAlignmentIsRead) {
  for (std::size_t blanks = 0; blanks < 8; ++blanks) {
    const std::string text = R"({"odd":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"f":{"dtype":"F32","shape":[2],"data_offsets":[3,11]}})";
    const auto header = header_of(file_of(text + std::string(blanks, ' '), 11));
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->data_begin, 8 + text.size() + blanks);
    EXPECT_EQ(header->tensors[1].begin, 3U);
  }
}

TEST(Safetensors, HeadersOfAnyLengthUpToTheLimitAreReadInFull) {
  const std::string text = R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  for (const std::size_t length : {99992U, 100000U, 100008U, 1048576U}) {
    const auto header = header_of(file_of(text + std::string(length - text.size(), ' '), 1));
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->data_begin, 8 + length);
  }
  for (const std::uint64_t length : {std::uint64_t{1} << 63U, std::uint64_t{1} << 40U}) {
    std::string file = file_of(text, 1);
    for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xffU);
    EXPECT_THAT(refusal(file), HasSubstr("the header's length " + std::to_string(length) + " does not fit a file of"));
  }
}

TEST(Safetensors, EveryTypeOfTheFormatHasItsSize) {
  const std::pair<const char*, std::size_t> types[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I64", 8}, {"I32", 4},
                                                       {"I16", 2}, {"I8", 1},  {"U8", 1},  {"U16", 2},  {"U32", 4},     {"U64", 8},     {"BOOL", 1}};
  for (const auto& [name, size] : types) {
    ASSERT_TRUE(stored_type_of(name)) << name;
    EXPECT_EQ(size_of(*stored_type_of(name)), size) << name;
    EXPECT_EQ(safetensors_name(*stored_type_of(name)), name);
  }
}

}  // namespace
}  // namespace troupe
