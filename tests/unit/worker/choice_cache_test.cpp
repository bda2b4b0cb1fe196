#include "src/device/cuda/choice_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/temporary_folder.hpp"

// Matrix products' algorithms that outlive a run: text in, text out, without CUDA.
namespace troupe::cuda {
namespace {

using ::testing::HasSubstr;

const std::string heading = "cublasLt 130100, NVIDIA H200";

/// What Products::choices() tells of these lines.
std::string told(const std::string& lines) { return heading + "\n" + lines; }

class Cache : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("TROUPE_CACHE", folder_.path().c_str(), 1); }
  void TearDown() override { ::unsetenv("TROUPE_CACHE"); }
  const testing::TemporaryFolder folder_;
};

TEST_F(Cache, ANewOneIsEmptyAndWhatIsAddedIsReadBackByTheNextRun) {
  EXPECT_EQ(ChoiceCache(heading).read(), "");
  ChoiceCache(heading).add(told("16 32 64  a5 1\n"));
  EXPECT_EQ(ChoiceCache(heading).read(), told("16 32 64  a5 1\n"));
  EXPECT_THAT(ChoiceCache(heading).file().filename().string(), HasSubstr("NVIDIA_H200"));
}

TEST_F(Cache, AShapeKeepsItsFirstChoiceAndOthersAreAdded) {
  ChoiceCache(heading).add(told("16 32 64  a5 1\n"));
  ChoiceCache(heading).add(told("16 32 64  b7 2\n16 32 128  c9 3\n"));
  EXPECT_EQ(ChoiceCache(heading).read(), told("16 32 64  a5 1\n16 32 128  c9 3\n"));
}

TEST_F(Cache, AnotherLibraryOrDeviceHasAFileOfItsOwn) {
  ChoiceCache(heading).add(told("16 32 64  a5 1\n"));
  EXPECT_EQ(ChoiceCache("cublasLt 130100, NVIDIA H100").read(), "");
}

TEST_F(Cache, NoneKeepsNothingAndAFolderThatCannotBeMadeIsNoError) {
  ::setenv("TROUPE_CACHE", "none", 1);
  ChoiceCache(heading).add(told("16 32 64  a5 1\n"));
  EXPECT_EQ(ChoiceCache(heading).read(), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  ::setenv("TROUPE_CACHE", "/dev/null/cache", 1);
  EXPECT_NO_THROW(ChoiceCache(heading).add(told("16 32 64  a5 1\n")));
  EXPECT_EQ(ChoiceCache(heading).read(), "");
}

TEST_F(Cache, NoHalfWrittenFileIsLeftBeside) {
  ChoiceCache(heading).add(told("16 32 64  a5 1\n"));
  ChoiceCache(heading).add(told("16 32 128  c9 3\n"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

}  // namespace
}  // namespace troupe::cuda
