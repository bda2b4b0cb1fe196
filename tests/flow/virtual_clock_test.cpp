#include "src/simulation/virtual_clock.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace troupe {
namespace {

using std::chrono::milliseconds;

TEST(VirtualClock, MovesToTheEarliestEventWhateverTheOrderOfSetting) {
  VirtualClock clock(0);
  std::string order;
  clock.after(milliseconds{2}, [&] { order += 'b'; });
  clock.after(milliseconds{1}, [&] { order += 'a'; });
  clock.advance();
  EXPECT_EQ(clock.now(), milliseconds{1});
  clock.advance();
  EXPECT_EQ(order, "ab");
  EXPECT_TRUE(clock.idle());
}

TEST(VirtualClock, EventsOfOneInstantKeepTheirOrderWithoutASeedAndTakeOthersWithSeeds) {
  const auto run = [](std::uint64_t seed) {
    VirtualClock clock(seed);
    std::string order;
    for (const char letter : std::string("abcd")) clock.after(milliseconds{1}, [&order, letter] { order += letter; });
    while (!clock.idle()) clock.advance();
    return order;
  };
  EXPECT_EQ(run(0), "abcd");
  std::set<std::string> orders;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) orders.insert(run(seed));
  EXPECT_GT(orders.size(), 10U);
  EXPECT_EQ(run(7), run(7));
}

}  // namespace
}  // namespace troupe
