#include "src/checkpoint/pickle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_literals;

Result<Pickle> read(const std::string& bytes) {
  return Pickle::read(std::as_bytes(std::span(bytes)), "x.pkl", [](std::string_view name) { return name == "torch Size" || name == "m C"; });
}
std::string refusal(const std::string& bytes) {
  const auto pickle = read(bytes);
  return pickle ? "accepted" : pickle.error().message;
}

TEST(Pickle, ReadsNumbersTextsAndCollections) {
  // {"a": (1, 300, -2, 5000000000, True, None), "b": [1.5]}
  const auto pickle = read(
      "\x80\x02}(X\x01\0\0\0a(K\x01M\x2c\x01J\xfe\xff\xff\xff\x8a\x05\0\xf2\x05\x2a\x01\x88Nt\x8c\x01"s
      "b]G?\xf8\0\0\0\0\0\0au."s);
  ASSERT_TRUE(pickle) << pickle.error().message;
  const PickleValue* a = pickle->find(pickle->root(), "a");
  ASSERT_NE(a, nullptr);
  ASSERT_EQ(a->items.size(), 6U);
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < 5; ++i) numbers.push_back(pickle->at(a->items[i]).integer);
  EXPECT_THAT(numbers, ElementsAre(1, 300, -2, 5000000000, 1));
  EXPECT_EQ(pickle->at(a->items[5]).kind, PickleValue::Kind::none);
  EXPECT_EQ(pickle->at(pickle->find(pickle->root(), "b")->items[0]).real, 1.5);
}

TEST(Pickle, ACallIsNotedAndNothingIsCalled) {
  const auto pickle = read("\x80\x02"s + "ctorch\nSize\n(K\x02K\x03t\x85R."s);
  ASSERT_TRUE(pickle) << pickle.error().message;
  EXPECT_EQ(pickle->called(pickle->root()), "torch Size");
  std::vector<std::int64_t> sizes;
  EXPECT_TRUE(pickle->numbers(pickle->root(), sizes));
  EXPECT_THAT(sizes, ElementsAre(2, 3));
}

TEST(Pickle, AnObjectsStateIsFoundByName) {
  const auto pickle = read("\x80\x04\x8c\x01m\x8c\x01"s + "C\x93)\x81}\x8c\x01xK\x07sb."s);
  ASSERT_TRUE(pickle) << pickle.error().message;
  ASSERT_NE(pickle->find(pickle->root(), "x"), nullptr);
  EXPECT_EQ(pickle->find(pickle->root(), "x")->integer, 7);
  EXPECT_EQ(pickle->find(pickle->root(), "y"), nullptr);
}

TEST(Pickle, WhatWouldRunCodeIsRefusedByName) {
  EXPECT_THAT(refusal("cposix\nsystem\n(X\x02\0\0\0lstR."s),
              HasSubstr("x.pkl: pickle, byte 0: names 'posix system', which such a file has no need of: refused (nothing was run)"));
  EXPECT_THAT(refusal("\x80\x04\x8c\x08"s + "builtins\x8c\x04"s + "eval\x93\x8c\x01x\x85R."s), HasSubstr("names 'builtins eval'"));
  EXPECT_THAT(refusal("(cbuiltins\neval\nX\x01\0\0\0xo."s), HasSubstr("refused"));                               // OBJ
  EXPECT_THAT(refusal("(X\x01\0\0\0xios\nsystem\n."s), HasSubstr("opcode 0x69 is none that plain data needs"));  // INST
  EXPECT_THAT(refusal("\x82\x01."s), HasSubstr("opcode 0x82"));                                                  // EXT1
  EXPECT_THAT(refusal("K\x01)R."s), HasSubstr("calls what is no global"));
}

TEST(Pickle, CutAndNonsensicalOnesAreRefusedWithTheByte) {
  EXPECT_THAT(refusal(""), HasSubstr("byte 0: ends too early"));
  EXPECT_THAT(refusal("\x80\x02"), HasSubstr("byte 2: ends too early"));
  EXPECT_THAT(refusal("."), HasSubstr("a value is taken where there is none"));
  EXPECT_THAT(refusal("t."), HasSubstr("a mark is missing"));
  EXPECT_THAT(refusal("h\x05."), HasSubstr("refers to value 5, which was never kept"));
  EXPECT_THAT(refusal("X\xff\xff\xff\xff."), HasSubstr("a text of 4294967295 bytes goes beyond the end"));
  EXPECT_THAT(refusal("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."s), HasSubstr("goes beyond the end"));
  EXPECT_THAT(refusal("]K\x01s."), HasSubstr("adds items to what takes none"));
  EXPECT_THAT(refusal("K\x01K\x02K\x03s."), HasSubstr("adds items to what takes none"));
  EXPECT_THAT(refusal("\x8a\x09\0\0\0\0\0\0\0\0\1."s), HasSubstr("an integer of 9 bytes is too large"));
  EXPECT_THAT(refusal("\x80\x09."), HasSubstr("protocol 9 is unknown"));
}

TEST(Pickle, OneThatHoldsItselfIsReadAndLeftAlone) {
  const auto pickle = read("]q\0h\0a."s);
  ASSERT_TRUE(pickle) << pickle.error().message;
  EXPECT_EQ(&pickle->at(pickle->root().items[0]), &pickle->root());
}

}  // namespace
}  // namespace troupe
