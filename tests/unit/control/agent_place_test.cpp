#include "tools/launcher/agent_place.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using Visit = AgentPlace::Visit;
using std::chrono::seconds;

constexpr AgentPlace::Time start{};

TEST(AgentPlace, ASilentAgentLosesItsPlaceAfterTheLimitHoweverManyCome) {
  AgentPlace place("pid 7 on host-b");
  EXPECT_EQ(place.visited_by("pid 8 on host-b", start), Visit::ask);
  for (int i = 1; i <= 10; ++i) {
    EXPECT_EQ(place.visited_by("pid 8 on host-c", start + seconds{i}), Visit::wait) << "another host's process of the same number is another one";
    EXPECT_EQ(place.visited_by("pid 8 on host-b", start + seconds{i}), Visit::wait);
  }
  EXPECT_EQ(place.visited_by("pid 8 on host-c", start + seconds{11}), Visit::decided);
  EXPECT_TRUE(place.silent());
}

TEST(AgentPlace, OneThatAnswersKeepsItAndAllThatHaveComeAreRefused) {
  AgentPlace place("pid 7 on host-b");
  EXPECT_EQ(place.visited_by("pid 8 on host-c", start), Visit::ask);
  EXPECT_EQ(place.visited_by("pid 9 on host-c", start), Visit::wait);
  place.lives();
  for (const char* rival : {"pid 8 on host-c", "pid 9 on host-c"}) {
    EXPECT_EQ(place.visited_by(rival, start + seconds{1}), Visit::decided);
    EXPECT_FALSE(place.silent());
    place.refused(rival);
  }
  EXPECT_EQ(place.visited_by("pid 8 on host-c", start + seconds{60}), Visit::ask) << "much may have happened since";
}

}  // namespace
}  // namespace troupe
