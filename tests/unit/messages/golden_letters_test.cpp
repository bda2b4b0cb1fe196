#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "messages/open.hpp"
#include "tests/unit/messages/any_letter.hpp"

namespace troupe::test {
namespace {

std::filesystem::path golden(const std::string& file) { return std::filesystem::path(TROUPE_GOLDEN_LETTERS) / file; }

kj::Array<capnp::word> read_words(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
  std::memcpy(words.begin(), bytes.data(), words.asBytes().size());
  return words;
}

class GoldenLetters : public testing::TestWithParam<LetterKind> {};

INSTANTIATE_TEST_SUITE_P(OfKind, GoldenLetters, testing::ValuesIn(all_kinds()), [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(GoldenLetters, AreReadAsTheyWereWritten) {
  const std::string name = name_of(GetParam());
  ASSERT_TRUE(std::filesystem::exists(golden(name + ".bin"))) << "run write_golden_letters for the new kind " << name << " and commit its files";
  auto words = read_words(golden(name + ".bin"));
  const auto problem = check_letter(words);
  ASSERT_FALSE(problem) << problem->what;
  const auto parcel = std::make_shared<const Parcel>(kj::mv(words), Lease{});
  EXPECT_EQ(parcel->envelope().getBody().which(), GetParam());
  const auto now = fields_of(parcel->envelope());
  std::ifstream text(golden(name + ".txt"));
  std::size_t lines = 0;
  for (std::string line; std::getline(text, line); ++lines) {
    const auto at = line.find(" = ");
    const auto found = now.find(line.substr(0, at));
    ASSERT_NE(found, now.end()) << line << ": the field is gone";
    EXPECT_EQ(found->second, line.substr(at + 3)) << line;
  }
  EXPECT_GE(lines, 12U);  // the heading alone has as many
  EXPECT_TRUE(dispatch(parcel, [](auto) {}));
}

TEST_P(GoldenLetters, OfThePresentSchemaPassTheCheckToo) {
  const auto words = filled_letter(GetParam());
  const auto problem = check_letter(words);
  EXPECT_FALSE(problem) << problem->what;
}

TEST(GoldenLetters, SurviveFieldsThatTheyDoNotHave) {
  // A newer peer's letter: the body struct is longer by a word than we know.
  auto words = filled_letter(LetterKind::BATCH_READY);
  capnp::FlatArrayMessageReader reader(words);
  const auto tokens = reader.getRoot<schema::Envelope>().getBody().getBatchReady().getTokens();
  std::uint64_t* body = nullptr;
  for (auto* word = reinterpret_cast<std::uint64_t*>(words.begin()); word + 1 < reinterpret_cast<std::uint64_t*>(words.end()); ++word) {
    if (*word == tokens) body = word;
  }
  ASSERT_NE(body, nullptr);
  ASSERT_EQ(body + 2, reinterpret_cast<std::uint64_t*>(words.end()));  // tokens, digest, end of the message
  auto longer = kj::heapArray<capnp::word>(words.size() + 1);
  std::memcpy(longer.begin(), words.begin(), words.asBytes().size());
  auto* all = reinterpret_cast<std::uint64_t*>(longer.begin());
  all[words.size()] = 77;            // the new field
  all[0] += std::uint64_t{1} << 32;  // one more word in the segment
  const std::uint64_t two_data_words = std::uint64_t{2} << 32;
  int grown = 0;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto target = static_cast<std::ptrdiff_t>(i) + 1 + (static_cast<std::int32_t>(static_cast<std::uint32_t>(all[i])) >> 2);
    if ((all[i] & 3) == 0 && (all[i] >> 32) == (two_data_words >> 32) && target == body - reinterpret_cast<std::uint64_t*>(words.begin())) {
      all[i] += std::uint64_t{1} << 32;
      ++grown;
    }
  }
  ASSERT_EQ(grown, 1);
  const auto problem = check_letter(longer);
  ASSERT_FALSE(problem) << problem->what;
  capnp::FlatArrayMessageReader newer(longer);
  EXPECT_EQ(newer.getRoot<schema::Envelope>().getBody().getBatchReady().getTokens(), tokens);
}

}  // namespace
}  // namespace troupe::test
