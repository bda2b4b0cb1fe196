#include "actors/job_view.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using std::chrono::seconds;

JobView running() {
  JobView view;
  view.phase = "running";
  view.world_size = 2;
  view.epoch = EpochId{3};
  view.newest = Step{57};
  view.last = Step{100};
  view.progress_at = seconds{100};
  view.steps_per_second = 12.5;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    RankView of;
    of.joined = {.rank = Rank{rank}, .world_size = 2, .host = "here", .pid = 70 + rank, .restored = {}};
    of.pulse = {.heard = seconds{100}, .step = Step{57}, .oldest = "comm: reduce L5; compute waits for weights of L5", .oldest_age = Nanos{0}};
    of.pulse.actors.push_back({ActorKind::compute, "step 58, 3 of 12; gradients: 1 of 2 slots out", "weights of L5"});
    view.ranks.push_back(of);
  }
  return view;
}

TEST(JobView, SaysHowFarAHealthyRunIs) { EXPECT_EQ(running().headline(seconds{100}), "running: step 57 of 100, epoch 3, 2 ranks, 12.5 steps/s"); }

TEST(JobView, NamesTheRankThatHoldsTheOthersUpThoughNothingHasComeSince) {
  JobView view = running();
  view.ranks[0].pulse.heard = seconds{140};
  const std::string line = view.headline(seconds{141});
  EXPECT_NE(line.find("rank 1 (pid 71 on here) has been silent for 41.0 s"), std::string::npos) << line;
  EXPECT_NE(line.find("holds up the others in comm: reduce L5 "), std::string::npos) << line;
}

TEST(JobView, NamesWhoIsNotThere) {
  JobView view = running();
  view.phase = "recovering";
  view.absent = {Rank{1}};
  view.ranks.pop_back();
  EXPECT_EQ(view.headline(seconds{100}), "recovering: rank 1 is not here yet again");
}

TEST(JobView, TheTextHasEveryRankAndActorWithWhatItWaitsFor) {
  const std::string text = running().text(seconds{104});
  EXPECT_NE(text.find("rank 0  pid 70 on here  step 57"), std::string::npos) << text;
  EXPECT_NE(text.find("SILENT"), std::string::npos) << text;
  EXPECT_NE(text.find("compute     step 58, 3 of 12; gradients: 1 of 2 slots out"), std::string::npos) << text;
  EXPECT_NE(text.find("waits for weights of L5"), std::string::npos) << text;
}

}  // namespace
}  // namespace troupe
