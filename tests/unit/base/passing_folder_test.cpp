#include "src/base/passing_folder.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace troupe {
namespace {

TEST(PassingFolder, GoesWithItsOwnerUnlessItIsKept) {
  std::filesystem::path gone, kept;
  {
    auto one = PassingFolder::make("test"), other = PassingFolder::make("test");
    ASSERT_TRUE(one.ok() && other.ok());
    gone = one->path();
    other->keep();
    const PassingFolder moved = std::move(*other);
    kept = moved.path();
  }
  EXPECT_FALSE(std::filesystem::exists(gone));
  EXPECT_TRUE(std::filesystem::remove(kept));
}

TEST(PassingFolder, IsNotMadeElsewhereWhereTheFolderForThemIsMissing) {
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("TMPDIR", "/nowhere-at-all", 1);
  const auto made = PassingFolder::make("test");
  if (before == nullptr)
    ::unsetenv("TMPDIR");
  else
    ::setenv("TMPDIR", kept.c_str(), 1);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("TMPDIR names where"), std::string::npos) << made.error().message;
}

}  // namespace
}  // namespace troupe
