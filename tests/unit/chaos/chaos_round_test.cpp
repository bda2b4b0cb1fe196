#include "tools/chaos/chaos_round.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "src/faults/settings.hpp"

namespace troupe {
namespace {

constexpr ChaosTarget target{.ranks = 4, .steps = 100, .units = 4};

TEST(ChaosRound, ASeedDrawsTheSameRoundEachTime) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) EXPECT_EQ(draw_round(seed, target), draw_round(seed, target)) << seed;
  EXPECT_NE(draw_round(1, target), draw_round(2, target));
}

TEST(ChaosRound, EveryRuleThatIsDrawnCanBeObeyedByARealRun) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    FaultSettings settings;
    for (const Disturbance& each : draw_round(seed, target).disturbances)
      if (each.kind == Disturbance::Kind::rule) settings.rules.push_back(each.rule);
    const auto rules = rules_of(settings);
    EXPECT_TRUE(rules.ok()) << "seed " << seed << ": " << rules.error().message;
  }
}

TEST(ChaosRound, AllSitesAndActionsAndSignalsOccurAloneTwiceAtOnceDuringRecoveryAndWhileSaving) {
  std::map<std::string, int> seen;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const ChaosRound round = draw_round(seed, target);
    ++seen[round.disturbances.size() == 2 ? "two" : "one"];
    if (round.disturbances.size() == 2 && round.disturbances[0].step == round.disturbances[1].step) ++seen["at once"];
    for (const Disturbance& each : round.disturbances) {
      ++seen["kind " + std::to_string(static_cast<int>(each.kind))];
      if (each.while_recovering) ++seen["while recovering"];
      if (each.at_checkpoint) {
        ++seen["while saving"];
        EXPECT_GT(round.checkpoint_interval, 0U) << seed;
      }
      for (const char* word : {"site=lane", "site=collective", "site=process", "site=letter", "site=storage", "action=fail", "action=stall", "action=delay",
                               "action=crash", "action=drop", "action=duplicate", "action=corrupt", "action=reorder", "action=torn", "action=full"})
        if (each.rule.find(word) != std::string::npos) ++seen[word];
    }
  }
  for (const char* what :
       {"one",          "two",          "at once",         "while recovering", "while saving",   "kind 0",         "kind 1",      "kind 2",
        "kind 3",       "site=lane",    "site=collective", "site=process",     "site=letter",    "site=storage",   "action=fail", "action=stall",
        "action=delay", "action=crash", "action=drop",     "action=duplicate", "action=corrupt", "action=reorder", "action=torn", "action=full"})
    EXPECT_GT(seen[what], 10) << what;
}

TEST(ChaosRound, StrikesComeEarlyEnoughToMeetTheRun) {
  for (std::uint64_t seed = 0; seed < 500; ++seed)
    for (const Disturbance& each : draw_round(seed, target).disturbances) {
      EXPECT_LE(each.step.value(), target.steps * 3 / 4);
      EXPECT_LT(each.rank.value(), target.ranks);
    }
}

}  // namespace
}  // namespace troupe
