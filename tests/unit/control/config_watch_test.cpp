#include "tools/launcher/config_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using testing::TemporaryFolder;

/// A file with a job's configuration, and whoever watches it; the time is the test's own.
struct ConfigWatchTest : ::testing::Test {
  void write(const std::string& text) const { (void)folder.write("job.toml", text); }
  [[nodiscard]] auto look_after(std::chrono::milliseconds pause) { return watch.look(now += pause); }
  const TemporaryFolder folder;
  const std::string file = folder.write("job.toml", "[optimizer]\nlr = 1e-3\n[training]\nsteps = 100\n");
  ConfigWatch watch{file, {}, JobConfig::load(file, {}).value()};
  ConfigWatch::Time now{};
};

TEST_F(ConfigWatchTest, TellsWhatWasEditedOnce) {
  EXPECT_FALSE(look_after(ConfigWatch::settles)) << "not touched";
  write("[optimizer]\nlr = 5e-4  # edited\n[training]\nsteps = 100\n");
  EXPECT_FALSE(look_after(ConfigWatch::settles)) << "just touched";
  const auto edits = look_after(ConfigWatch::settles);
  ASSERT_TRUE(edits && *edits);
  EXPECT_THAT(**edits, ElementsAre("optimizer.lr=0.0005"));
  EXPECT_FALSE(look_after(ConfigWatch::settles));
}

TEST_F(ConfigWatchTest, AFileThatIsStillBeingWrittenIsNotTakenForWhole) {
  write("[optimizer]\n");  // all that is there is right, and would set the learning rate back to what it is by itself
  EXPECT_FALSE(look_after(ConfigWatch::settles));
  EXPECT_FALSE(look_after(ConfigWatch::settles / 2));
  write("[optimizer]\nlr = 5e-4  # edited\n[training]\nsteps = 100\n");
  EXPECT_FALSE(look_after(ConfigWatch::settles));
  const auto edits = look_after(ConfigWatch::settles);
  ASSERT_TRUE(edits && *edits);
  EXPECT_THAT(**edits, ElementsAre("optimizer.lr=0.0005"));
}

}  // namespace
}  // namespace troupe
