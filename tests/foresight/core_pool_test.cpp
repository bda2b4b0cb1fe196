#include "src/simulation/core_pool.hpp"

#include <gtest/gtest.h>

#include <map>
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

TEST(CorePool, OfThreeThreadsOnTwoCoresOneHasACoreForItself) {
  VirtualClock clock(0);
  CorePool cores(clock, 2);
  std::vector<Nanos> ends(3);
  for (std::size_t i = 0; i < 3; ++i) cores.spend(milliseconds{10}, [&, i] { ends[i] = clock.now(); });
  run(clock);
  EXPECT_EQ(ends, (std::vector<Nanos>{milliseconds{20}, milliseconds{10}, milliseconds{20}}));
}

TEST(CorePool, AThreadThatBeginsAgainTakesTheIdleCoreAndElseTheOneThatItWasOn) {
  VirtualClock clock(0);
  CorePool cores(clock, 2);
  const int a = 0, b = 0, c = 0;
  std::map<const void*, Nanos> ends;
  const auto spend = [&](const int& who, milliseconds work) { cores.spend(work, [&] { ends[&who] = clock.now(); }, &who); };
  spend(a, milliseconds{10});  // alone
  spend(b, milliseconds{10});  // with c on the other
  spend(c, milliseconds{4});
  run(clock);
  EXPECT_EQ(ends[&a], milliseconds{14}) << "c came to its core, as the first of two alike";
  EXPECT_EQ(ends[&b], milliseconds{10});
  ends.clear();
  spend(c, milliseconds{10});  // where it was
  spend(a, milliseconds{10});  // its own is taken: the idle one
  spend(b, milliseconds{10});  // none is idle: where it was, beside a
  run(clock);
  EXPECT_EQ(ends[&c], milliseconds{24});
  EXPECT_EQ(ends[&a], milliseconds{34});
  EXPECT_EQ(ends[&b], milliseconds{34});
}

TEST(CorePool, CoresThatShareCachesDoLessWhenAllAreBusy) {
  VirtualClock clock(0);
  CorePool cores(clock, 1.6);
  std::vector<Nanos> ends;
  for (const auto work : {milliseconds{8}, milliseconds{10}}) cores.spend(work, [&] { ends.push_back(clock.now()); });
  run(clock);
  EXPECT_EQ(ends, (std::vector<Nanos>{milliseconds{10}, milliseconds{12}})) << "at four fifths until one is through";
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
