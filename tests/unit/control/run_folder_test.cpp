#include "tools/launcher/run_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using testing::TemporaryFolder;

TEST(RunFolder, IsRefusedWithThePidWhileAnotherRunHoldsIt) {
  const TemporaryFolder folder;
  const auto held = RunFolder::open({.path = folder.path() / "run", .overwrite = false, .resumable = false, .why_not = {}});
  ASSERT_TRUE(held.ok()) << held.error().message;
  const auto second = RunFolder::open({.path = folder.path() / "run", .overwrite = false, .resumable = false, .why_not = {}});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("live run with PID " + std::to_string(::getpid())), std::string::npos) << second.error().message;
}

TEST(RunFolder, OfARunThatMadeStepsNeedsOverwriteUnlessItCanBeResumed) {
  const TemporaryFolder folder;
  folder.write("run/metrics.jsonl", "{\"step\":1}\n");
  folder.write("run/config.toml", "");
  const auto refused = RunFolder::open({.path = folder.path() / "run", .overwrite = false, .resumable = false, .why_not = {}});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--overwrite"), std::string::npos);
  EXPECT_EQ(RunFolder::open({.path = folder.path() / "run", .overwrite = false, .resumable = true, .why_not = {}})->content(), RunFolder::Content::resumable);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "run/metrics.jsonl"));
  EXPECT_EQ(RunFolder::open({.path = folder.path() / "run", .overwrite = true, .resumable = false, .why_not = {}})->content(), RunFolder::Content::fresh);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "run/metrics.jsonl"));
}

TEST(RunFolder, OfARunThatMadeNoStepIsUsedAgain) {
  const TemporaryFolder folder;
  folder.write("run/config.toml", "");
  folder.write("run/logs/rank-0.log", "it failed early");
  EXPECT_EQ(RunFolder::open({.path = folder.path() / "run", .overwrite = false, .resumable = false, .why_not = {}})->content(), RunFolder::Content::fresh);
}

TEST(RunFolder, WithFilesOfOthersIsRefusedAndKeepsThem) {
  const TemporaryFolder folder;
  folder.write("home/thesis.tex", "precious");
  EXPECT_FALSE(RunFolder::open({.path = folder.path() / "home", .overwrite = false, .resumable = false, .why_not = {}}).ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "home/lock"));
  EXPECT_TRUE(RunFolder::open({.path = folder.path() / "home", .overwrite = true, .resumable = false, .why_not = {}}).ok());
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "home/thesis.tex"));
}

TEST(RunFolder, ControlFileIsForTheOwnerAlone) {
  const TemporaryFolder folder;
  const auto run = RunFolder::open({.path = folder.path() / "run", .overwrite = false, .resumable = false, .why_not = {}});
  ASSERT_TRUE(run->write_control("127.0.0.1:7", "secret").ok());
  struct stat status {};
  ASSERT_EQ(::stat((folder.path() / "run/control.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  const auto control = read_control(folder.path() / "run");
  ASSERT_TRUE(control.ok());
  EXPECT_EQ(control->address, "127.0.0.1:7");
  EXPECT_EQ(control->token, "secret");
}

}  // namespace
}  // namespace troupe
