#include "src/simulation/core_pool.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace troupe {
namespace {

using std::chrono::milliseconds;

void run(VirtualClock& clock) {
  while (!clock.idle()) clock.advance();
}

TEST(CorePool, ThreadsThatHaveACoreEachTakeTheirOwnTime) {
  VirtualClock clock(0);
  CorePool cores(clock, 2);
  std::vector<Nanos> ends;
  for (const auto work : {milliseconds{10}, milliseconds{4}}) cores.spend(work, [&] { ends.push_back(clock.now()); });
  run(clock);
  EXPECT_EQ(ends, (std::vector<Nanos>{milliseconds{4}, milliseconds{10}}));
}

TEST(CorePool, ThreeThreadsOnTwoCoresGoOnAtTwoThirdsUntilOneIsThrough) {
  VirtualClock clock(0);
  CorePool cores(clock, 2);
  std::vector<Nanos> ends;
  for (const auto work : {milliseconds{4}, milliseconds{10}, milliseconds{10}}) cores.spend(work, [&] { ends.push_back(clock.now()); });
  run(clock);
  // 4 ms of work at 2/3: 6 ms; the others have 6 ms left then, at full speed.
  EXPECT_EQ(ends, (std::vector<Nanos>{milliseconds{6}, milliseconds{12}, milliseconds{12}}));
}

TEST(CorePool, WhoComesLaterSlowsWhoIsThere) {
  VirtualClock clock(0);
  CorePool cores(clock, 1);
  std::vector<Nanos> ends(2);
  cores.spend(milliseconds{10}, [&] { ends[0] = clock.now(); });
  clock.after(milliseconds{5}, [&] { cores.spend(milliseconds{1}, [&] { ends[1] = clock.now(); }); });
  run(clock);
  EXPECT_EQ(ends, (std::vector<Nanos>{milliseconds{11}, milliseconds{7}}));
}

}  // namespace
}  // namespace troupe
