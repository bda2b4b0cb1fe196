#include "tools/launcher/run_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

class RunFolderTest : public ::testing::Test {
 protected:
  [[nodiscard]] RunFolder::Request request() const {
    RunFolder::Request request;
    request.path = folder_.path() / "run";
    return request;
  }
  [[nodiscard]] Result<RunFolder> overwrite() const {
    auto asked = request();
    asked.overwrite = true;
    return RunFolder::open(asked);
  }
  [[nodiscard]] bool has(const char* name) const { return std::filesystem::exists(folder_.path() / "run" / name); }

  TemporaryFolder folder_;
};

TEST_F(RunFolderTest, IsRefusedWithThePidWhileAnotherRunHoldsIt) {
  const auto held = RunFolder::open(request());
  ASSERT_TRUE(held.ok()) << held.error().message;
  const auto second = RunFolder::open(request());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("live run with PID " + std::to_string(::getpid())), std::string::npos) << second.error().message;
}

TEST_F(RunFolderTest, IsRefusedWithoutThePidOfAnotherWhereItsHolderHasNotToldItsOwn) {
  for (const char* told : {"", "4194305\n"}) {  // nothing yet, or a run before; no system has so large a PID
    const std::string lock = folder_.write("run/lock", told);
    const Descriptor held{::open(lock.c_str(), O_RDWR | O_CLOEXEC)};
    ASSERT_EQ(::flock(held.get(), LOCK_EX | LOCK_NB), 0);
    const auto refused = RunFolder::open(request());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("belongs to another run, which has just begun"), std::string::npos) << refused.error().message;
    EXPECT_EQ(refused.error().message.find("kill"), std::string::npos) << refused.error().message;
  }
}

TEST_F(RunFolderTest, OfARunThatMadeStepsNeedsOverwriteUnlessItCanBeResumed) {
  folder_.write("run/lock", "77\n");
  folder_.write("run/metrics.jsonl", "{\"step\":1}\n");
  folder_.write("run/config.toml", "");
  const auto refused = RunFolder::open(request());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--overwrite"), std::string::npos);
  auto resumable = request();
  resumable.resumable = true;
  EXPECT_EQ(RunFolder::open(resumable)->content(), RunFolder::Content::resumable);
  EXPECT_TRUE(has("metrics.jsonl"));
  EXPECT_EQ(overwrite()->content(), RunFolder::Content::fresh);
  EXPECT_FALSE(has("metrics.jsonl"));
}

TEST_F(RunFolderTest, OfARunThatMadeNoStepIsUsedAgain) {
  folder_.write("run/lock", "77\n");
  folder_.write("run/config.toml", "");
  folder_.write("run/logs/rank-0.log", "it failed early");
  EXPECT_EQ(RunFolder::open(request())->content(), RunFolder::Content::fresh);
  EXPECT_FALSE(has("logs/rank-0.log"));
}

TEST_F(RunFolderTest, IsKnownByItsJournalToo) {
  folder_.write("run/journal.jsonl", "{\"event\":\"joined\",\"time\":\"2026-01-01T00:00:00.000Z\"}\n");
  folder_.write("run/config.toml", "");
  EXPECT_EQ(RunFolder::open(request())->content(), RunFolder::Content::fresh);
}

TEST_F(RunFolderTest, WithoutTheMarkOfARunIsRefusedThoughItsNamesLookLikeOne) {
  for (const char* mark : {"", "not a PID\n"}) {
    if (*mark != '\0') folder_.write("run/lock", mark);
    folder_.write("run/config.toml", "precious");
    folder_.write("run/logs/diary.txt", "precious");
    folder_.write("run/journal.jsonl", "dear diary\n");
    EXPECT_FALSE(RunFolder::open(request()).ok()) << mark;
    const auto refused = overwrite();
    ASSERT_FALSE(refused.ok()) << mark;
    EXPECT_NE(refused.error().message.find("no run of Troupe has left its mark there"), std::string::npos) << refused.error().message;
    EXPECT_TRUE(has("config.toml") && has("logs/diary.txt") && has("journal.jsonl")) << mark;
    EXPECT_EQ(has("lock"), *mark != '\0') << "it leaves nothing in a folder that it refuses";
  }
}

TEST_F(RunFolderTest, WithALockFileOfAnotherKindIsRefused) {
  folder_.write("run/lock", "combination: 1234\n");
  EXPECT_FALSE(RunFolder::open(request()).ok());
  EXPECT_FALSE(overwrite().ok());
  EXPECT_EQ(read_file(folder_.path() / "run/lock"), "combination: 1234\n");
}

TEST_F(RunFolderTest, KeepsTheFileThatTheConfigurationWasReadFrom) {
  folder_.write("run/lock", "77\n");
  auto asked = request();
  asked.keep = folder_.write("run/config.toml", "the user's");
  folder_.write("run/metrics.jsonl", "{\"step\":1}\n");
  asked.overwrite = true;
  ASSERT_TRUE(RunFolder::open(asked).ok());
  EXPECT_FALSE(has("metrics.jsonl"));
  EXPECT_EQ(read_file(folder_.path() / "run/config.toml"), "the user's");
}

TEST_F(RunFolderTest, WithTheUsersConfigurationAloneMayBeOverwrittenAroundIt) {
  auto asked = request();
  asked.keep = folder_.write("run/config.toml", "the user's");
  EXPECT_FALSE(RunFolder::open(asked).ok());
  asked.overwrite = true;
  EXPECT_TRUE(RunFolder::open(asked).ok());
  EXPECT_EQ(read_file(folder_.path() / "run/config.toml"), "the user's");
}

TEST_F(RunFolderTest, LosesTheCheckpointsOfTheConfiguredFolderWhenOverwritten) {
  folder_.write("run/lock", "77\n");
  folder_.write("run/saved/here/step-4/manifest.json", "{}");
  folder_.write("run/saved/here/step-6.tmp-0/shard", "");
  folder_.write("run/saved/here/step-by-step.txt", "the user's");
  folder_.write("run/checkpoint/step-2/manifest.json", "{}");
  auto asked = request();
  asked.checkpoints = "saved/here";
  EXPECT_FALSE(RunFolder::open(asked).ok()) << "it holds checkpoints";
  asked.overwrite = asked.resumable = true;
  EXPECT_EQ(RunFolder::open(asked)->content(), RunFolder::Content::fresh);
  EXPECT_FALSE(has("saved/here/step-4") || has("saved/here/step-6.tmp-0") || has("checkpoint/step-2"));
  EXPECT_TRUE(has("saved/here/step-by-step.txt"));
}

TEST_F(RunFolderTest, WithFilesOfOthersIsRefusedAndKeepsThem) {
  folder_.write("run/thesis.tex", "precious");
  EXPECT_FALSE(RunFolder::open(request()).ok());
  EXPECT_FALSE(has("lock"));
  EXPECT_TRUE(overwrite().ok());
  EXPECT_TRUE(has("thesis.tex"));
}

TEST_F(RunFolderTest, ControlFileIsForTheOwnerAloneAndGoesWithTheRun) {
  {
    auto run = RunFolder::open(request());
    ASSERT_TRUE(run->write_control("127.0.0.1:7", "secret").ok());
    struct stat status {};
    ASSERT_EQ(::stat((folder_.path() / "run/control.json").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
    const auto control = read_control(folder_.path() / "run");
    ASSERT_TRUE(control.ok());
    EXPECT_EQ(control->address, "127.0.0.1:7");
    EXPECT_EQ(control->token, "secret");
    EXPECT_FALSE(RunFolder::open(request()).ok());
    EXPECT_TRUE(has("control.json")) << "one that was refused leaves it";
  }
  EXPECT_FALSE(has("control.json"));
}

}  // namespace
}  // namespace troupe
