#include "src/base/result.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace troupe {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Error{std::to_string(value) + " is odd"};
  return value / 2;
}

TEST(Result, HoldsTheValueOrTheError) {
  const auto good = half(8);
  ASSERT_TRUE(good);
  EXPECT_EQ(*good, 4);
  const auto bad = half(7);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message, "7 is odd");
}

TEST(Result, GivesUpAValueThatCanOnlyBeMoved) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(3));
  const std::unique_ptr<int> moved = std::move(result).value();
  EXPECT_EQ(*moved, 3);
}

TEST(Result, OfATextIsNotMistakenForAnError) {
  const Result<std::string> text(std::string("all is well"));
  EXPECT_TRUE(text.ok());
  EXPECT_EQ(text->size(), 11U);
}

TEST(Result, WithoutAValueIsSuccessUnlessItHasAnError) {
  EXPECT_TRUE(Result<void>{}.ok());
  const Result<void> failed = Error{"disk full"};
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "disk full");
}

}  // namespace
}  // namespace troupe
