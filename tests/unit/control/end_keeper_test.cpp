#include "tools/launcher/end_keeper.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <stdexcept>

namespace troupe {
namespace {

/// A record on a disk that is no more.
class BrokenRecord final : public JobEvents {
 public:
  void joined(const JoinedRank&, std::uint32_t) override {}
  void epoch_begun(const BeginEpoch&) override {}
  void epoch_ready(EpochId, std::uint64_t) override {}
  void step(const StepRecord&) override {}
  void checkpoint(Step, const std::string&) override {}
  void stop_requested(const std::string&, Step) override {}
  void fault(const std::string&, Rank, bool) override {}
  void finished(const JobEnd&) override { throw std::runtime_error("the disk is gone"); }
};

bool rings(const Bell& bell) {
  pollfd waiting{bell.get(), POLLIN, 0};
  return poll(&waiting, 1, 0) == 1;
}

TEST(EndKeeper, KeepsTheEndAndRingsThoughTheRecordThrows) {
  BrokenRecord record;
  EndKeeper keeper(record);
  EXPECT_FALSE(rings(keeper.bell()));
  keeper.finished({.ok = true, .cause = {}, .rank = {}, .signal = 0, .last_step = Step{7}, .on_request = false, .sealed = {}});
  EXPECT_TRUE(rings(keeper.bell()));
  ASSERT_TRUE(keeper.end());
  EXPECT_FALSE(keeper.end()->ok);
  EXPECT_EQ(keeper.end()->cause, "the job's end could not be recorded: the disk is gone");
  EXPECT_EQ(keeper.end()->last_step, Step{7});
}

TEST(EndKeeper, KeepsTheFirstFaultAsTheCause) {
  BrokenRecord record;
  EndKeeper keeper(record);
  keeper.finished({.ok = false, .cause = "rank 1 died", .rank = Rank{1}, .signal = 9, .last_step = Step{7}, .on_request = false, .sealed = {}});
  ASSERT_TRUE(keeper.end());
  EXPECT_EQ(keeper.end()->cause, "rank 1 died");
}

}  // namespace
}  // namespace troupe
