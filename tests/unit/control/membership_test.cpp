#include "actors/membership.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using std::chrono::seconds;

Pulse pulse(Nanos heard, std::uint64_t step, std::string oldest, Nanos age) {
  return {.heard = heard, .step = Step{step}, .oldest = std::move(oldest), .oldest_age = age};
}

Membership of_three() {
  Membership members;
  for (std::uint32_t rank = 0; rank < 3; ++rank) members.joined({.rank = Rank{rank}, .world_size = 3, .host = "here", .pid = 70 + rank, .restored = {}});
  return members;
}

TEST(Membership, ARankWhoseProcessIsStoppedIsNamedWithWhatItHoldsUp) {
  Membership members = of_three();
  members.heard(Rank{0}, pulse(seconds{41}, 8, "comm: reduce L5", seconds{40}));
  members.heard(Rank{1}, pulse(seconds{41}, 8, "comm: reduce L5", seconds{39}));
  members.heard(Rank{2}, pulse(seconds{1}, 7, "compute: backward L5", seconds{0}));
  const auto culprit = members.culprit(seconds{42}, seconds{3});
  ASSERT_TRUE(culprit);
  EXPECT_EQ(culprit->rank, Rank{2});
  EXPECT_TRUE(culprit->silent);
  EXPECT_EQ(culprit->text,
            "rank 2 (pid 72 on here) has been silent for 41.0 s, though its process has not ended (stopped, or its host is out of reach), and holds up the "
            "others in comm: reduce L5 (it was at step 7: compute: backward L5)");
}

TEST(Membership, ARankThatAnswersAndIsStuckInItsOwnWorkIsNamed) {
  Membership members = of_three();
  members.heard(Rank{0}, pulse(seconds{41}, 8, "comm: reduce L5", seconds{40}));
  members.heard(Rank{1}, pulse(seconds{41}, 8, "compute: backward L5", seconds{41}));
  members.heard(Rank{2}, pulse(seconds{41}, 8, "comm: reduce L5", seconds{39}));
  const auto culprit = members.culprit(seconds{42}, seconds{3});
  ASSERT_TRUE(culprit);
  EXPECT_EQ(culprit->rank, Rank{1});
  EXPECT_FALSE(culprit->silent);
  EXPECT_EQ(culprit->text, "rank 1 (pid 71 on here) has been at compute: backward L5 for 41.0 s and holds up the others in comm: reduce L5");
}

TEST(Membership, NobodyIsNamedWhereAllWaitAlike) {
  Membership members = of_three();
  for (std::uint32_t rank = 0; rank < 3; ++rank) members.heard(Rank{rank}, pulse(seconds{41}, 8, "comm: reduce L5", seconds{40}));
  EXPECT_FALSE(members.culprit(seconds{42}, seconds{3}));
}

TEST(Membership, ARankThatLeftIsForgottenUntilItJoinsAgain) {
  Membership members = of_three();
  members.heard(Rank{1}, pulse(seconds{1}, 8, "", {}));
  members.left(Rank{1});
  EXPECT_FALSE(members.known(Rank{1}));
  EXPECT_FALSE(members.silent(seconds{100}, seconds{3}));
  members.joined({.rank = Rank{1}, .world_size = 3, .host = "here", .pid = 99, .restored = {}, .incarnation = Incarnation{1}});
  EXPECT_TRUE(members.known(Rank{1}));
}

}  // namespace
}  // namespace troupe
