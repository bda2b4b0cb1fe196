#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "src/data/corpus.hpp"
#include "src/data/loader.hpp"
#include "tests/support/manual_clock.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  std::string in = text;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

class UnpackTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const Corpus>> open(const std::vector<std::string>& paths, DataFormat format = DataFormat::jsonl,
                                             std::uint64_t limit = std::uint64_t{1} << 30U) {
    return Corpus::open({.format = format, .paths = paths, .index_folder = cache_, .unpack_limit_bytes = limit});
  }
  std::vector<std::string> documents(const std::vector<std::string>& paths, DataFormat format = DataFormat::jsonl) {
    const auto corpus = open(paths, format);
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
  std::string refusal(const std::vector<std::string>& paths, std::uint64_t limit = std::uint64_t{1} << 30U) {
    const auto corpus = open(paths, DataFormat::jsonl, limit);
    return corpus ? "accepted" : corpus.error().message;
  }
  std::vector<std::string> names_in_cache() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(cache_)) names.push_back(entry.path().filename().string().substr(0, 9));
    std::sort(names.begin(), names.end());
    return names;
  }
  TemporaryFolder folder_;
  std::string cache_ = (folder_.path() / "cache").string();
};

const std::string one = "{\"text\":\"one\"}\n", two = "{\"text\":\"two\"}\n";

// B015
TEST_F(UnpackTest, AllMembersOfGzipAndAllFramesOfZstdAreRead) {
  EXPECT_THAT(documents({folder_.write("a.gz", gzip(one) + gzip(two))}), ElementsAre("one", "two"));
  EXPECT_THAT(documents({folder_.write("padded.gz", gzip(one) + std::string(512, '\0'))}), ElementsAre("one"));
  const std::string skippable = std::string("\x50\x2a\x4d\x18\x03\x00\x00\x00xyz", 11);
  EXPECT_THAT(documents({folder_.write("a.zst", zstd(one) + skippable + zstd(two))}), ElementsAre("one", "two"));
  EXPECT_THAT(documents({folder_.write("b.zst", skippable + zstd(one))}), ElementsAre("one"));
}

// B015
TEST_F(UnpackTest, ACutOffOrDamagedFileIsNamed) {
  for (const auto& [name, whole] : {std::pair{"cut.gz", gzip(one) + gzip(two)}, {"cut.zst", zstd(one) + zstd(two)}}) {
    const auto path = folder_.write(name, whole.substr(0, whole.size() - 5));
    EXPECT_THAT(refusal({path}), HasSubstr(path + ": is cut off: the compressed data ends in the middle"));
  }
  std::string damaged = gzip(std::string(5000, 'x'));
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x55);
  EXPECT_THAT(refusal({folder_.write("damaged.gz", damaged)}), HasSubstr("damaged.gz: damaged gzip data"));
  EXPECT_THAT(refusal({folder_.write("rest.gz", gzip(one) + "no gzip")}), HasSubstr("rest.gz: damaged gzip data: incorrect header check"));
  EXPECT_THAT(names_in_cache(), ElementsAre()) << "half a copy only takes space";
}

TEST_F(UnpackTest, PlainAndCompressedFilesOfUnequalSizeMakeOneCorpusInTheOrderOfTheirNames) {
  std::string many;
  for (int i = 0; i < 30000; ++i) many += "{\"text\":\"document " + std::to_string(i) + " of the large file\"}\n";
  const auto pattern = (folder_.path() / "part-*").string();
  folder_.write("part-1.jsonl", one);
  folder_.write("part-2.jsonl.zst", zstd(many));
  folder_.write("part-3.jsonl.gz", gzip(two));
  const auto found = documents({pattern});
  ASSERT_EQ(found.size(), 30002U) << found.front();
  EXPECT_EQ(found.front(), "one");
  EXPECT_EQ(found[1], "document 0 of the large file");
  EXPECT_EQ(found[30000], "document 29999 of the large file");
  EXPECT_EQ(found.back(), "two");
  EXPECT_THAT(names_in_cache(), ElementsAre("documents", "unpacked-", "unpacked-"));
}

TEST_F(UnpackTest, PlainCopiesAreMadeOnceAndHeldToTheirLimit) {
  const auto path = folder_.write("a.gz", gzip(std::string(3 << 20, ' ') + one));
  EXPECT_THAT(refusal({path}, 2 << 20), HasSubstr("a.gz: unpacked files would take more than data.unpack_limit_gib = 0 GiB in " + cache_));
  EXPECT_THAT(documents({path}), ElementsAre("one"));
  std::vector<std::filesystem::file_time_type> before, after;
  for (const auto& entry : std::filesystem::directory_iterator(cache_)) before.push_back(entry.last_write_time());
  EXPECT_THAT(documents({path}), ElementsAre("one"));
  for (const auto& entry : std::filesystem::directory_iterator(cache_)) after.push_back(entry.last_write_time());
  EXPECT_EQ(before, after);
}

TEST_F(UnpackTest, AnInterruptedIndexGoesOnWithTheFileInWhichItStood) {
  const auto a = folder_.write("a.jsonl", one + two), b = folder_.write("b.jsonl", one), c = folder_.write("c.jsonl", "{\"text\":8}\n");
  EXPECT_THAT(refusal({a, b, c}), HasSubstr("c.jsonl:1:"));
  ASSERT_EQ(names_in_cache().size(), 2U) << "the indices of the first two files";
  folder_.write("c.jsonl", two);
  // What is used again is not read again: the bytes of `a` are changed behind its size and time.
  const auto time = std::filesystem::last_write_time(a);
  folder_.write("a.jsonl", std::string(one.size() + two.size(), '\n'));
  std::filesystem::last_write_time(a, time);
  const auto corpus = open({a, b, c});
  ASSERT_TRUE(corpus) << corpus.error().message;
  EXPECT_EQ((*corpus)->facts().documents, 4U);
  EXPECT_EQ((*corpus)->facts().blank_lines, 0U);
  EXPECT_THAT(names_in_cache(), ElementsAre("documents")) << "parts go when the whole is there";
}

TEST_F(UnpackTest, ASlowReadIsToldWithItsFileAndABrokenOneEndsTheLoad) {
  const auto path = folder_.write("a.jsonl", one + two);
  const auto corpus = *open({path});
  ManualClock clock;
  std::vector<std::string> told;
  bool broken = false;
  const auto loader = make_loader(corpus, {.layout = {1, 4},
                                           .sampler = {.shuffle = false},
                                           .warn = [&](const std::string& text) { told.push_back(text); },
                                           .slow_read_seconds = 2,
                                           .clock = &clock,
                                           .read_file = [&](std::uint32_t, int descriptor, std::span<char> out, std::uint64_t offset) -> ssize_t {
                                             clock.advance(std::chrono::seconds{3});
                                             errno = EIO;
                                             return broken ? -1 : pread(descriptor, out.data(), out.size(), static_cast<off_t>(offset));
                                           }});
  std::vector<std::byte> batch(32);
  class : public Stream {
  } stream;
  (void)loader->load(stream, Step{1}, Micro{0}, batch);
  EXPECT_THAT(told, ElementsAre("data: " + path + " is slow: 15 bytes at 0 took 3.0 s"));
  broken = true;
  try {
    (void)loader->load(stream, Step{2}, Micro{0}, batch);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()), path + ": cannot read at byte 15: Input/output error");
  }
}

TEST_F(UnpackTest, AFileThatIsChangedUnderTheRunIsToldOnceWithItsSizes) {
  const auto path = folder_.write("a.jsonl", one + two);
  const auto corpus = *open({path});
  std::vector<std::string> told;
  ManualClock clock;
  const auto loader =
      make_loader(corpus, {.layout = {1, 4}, .sampler = {.shuffle = false}, .warn = [&](const std::string& text) { told.push_back(text); }, .clock = &clock});
  std::vector<std::byte> batch(32);
  class : public Stream {
  } stream;
  (void)loader->load(stream, Step{1}, Micro{0}, batch);
  EXPECT_THAT(told, ElementsAre());
  std::ofstream(path, std::ios::app) << "\n";
  for (std::uint64_t step = 2; step <= 20; ++step) (void)loader->load(stream, Step{step}, Micro{0}, batch);
  const std::size_t bytes = one.size() + two.size();
  EXPECT_THAT(told, ElementsAre(HasSubstr(path + " was changed while the run reads it (" + std::to_string(bytes) + " bytes when it was indexed, " +
                                          std::to_string(bytes + 1) + " now)")));
}

}  // namespace
}  // namespace troupe
