#include "actors/step_join.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <utility>

#include "src/runtime/join_digests.hpp"

namespace troupe {
namespace {

RankReport report(double loss, std::uint64_t digest) {
  RankReport report;
  report.outcome = VerdictOutcome::commit;
  report.loss = loss;
  report.tokens = 64;
  report.local_tokens = 32;
  report.digest = digest;
  report.duration = Nanos{10 + static_cast<Nanos::rep>(digest)};
  return report;
}

TEST(StepJoin, GivesOneRecordWhenTheLastRankHasReported) {
  StepJoin join(2, Step{0}, 100);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(join.add(EpochId{1}, Step{1}, Rank{1}, report(3.0, 5))));
  const auto joined = join.add(EpochId{1}, Step{1}, Rank{0}, report(3.0, 4));
  const auto& record = std::get<StepRecord>(joined);
  EXPECT_EQ(record.step, Step{1});
  EXPECT_EQ(record.total_tokens, 164U);
  EXPECT_EQ(record.common.local_tokens, 64U);
  EXPECT_EQ(record.common.duration, Nanos{15});
  EXPECT_EQ(record.common.digest, join_digests(std::array<std::uint64_t, 2>{4, 5})) << "of all rows";
  EXPECT_EQ(join.last_joined(), Step{1});
}

TEST(StepJoin, AddsTheSumsOfSourcesInTheOrderOfRanks) {
  const auto with_source = [](double loss) {
    RankReport one = report(3.0, 1);
    one.sources = {{loss, 8}, {1, 2}};
    return one;
  };
  StepJoin join(3, Step{0}, 0);
  for (const auto& [rank, loss] : {std::pair{2U, -1e100}, std::pair{0U, 1e100}}) (void)join.add(EpochId{1}, Step{1}, Rank{rank}, with_source(loss));
  const auto joined = join.add(EpochId{1}, Step{1}, Rank{1}, with_source(7));
  const auto& sources = std::get<StepRecord>(joined).common.sources;
  ASSERT_EQ(sources.size(), 2U);
  EXPECT_EQ(sources[0].loss, (1e100 + 7) - 1e100);
  EXPECT_EQ(sources[0].tokens, 24U);
  EXPECT_EQ(sources[1].loss, 3);
}

TEST(StepJoin, NamesRanksWhoseVerdictsDiffer) {
  StepJoin join(2, Step{0}, 0);
  (void)join.add(EpochId{1}, Step{1}, Rank{0}, report(3.0, 1));
  const auto joined = join.add(EpochId{1}, Step{1}, Rank{1}, report(3.0000000000000004, 1));
  const auto* mismatch = std::get_if<StepJoin::Mismatch>(&joined);
  ASSERT_NE(mismatch, nullptr);
  EXPECT_NE(mismatch->problem.find("rank 0 and rank 1 report loss"), std::string::npos) << mismatch->problem;
}

TEST(StepJoin, TakesEqualNotANumbersForEqual) {
  StepJoin join(2, Step{0}, 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  (void)join.add(EpochId{1}, Step{1}, Rank{0}, report(nan, 1));
  EXPECT_TRUE(std::holds_alternative<StepRecord>(join.add(EpochId{1}, Step{1}, Rank{1}, report(nan, 1))));
}

TEST(StepJoin, RefusesAStepThatIsReportedTwice) {
  StepJoin join(2, Step{0}, 0);
  (void)join.add(EpochId{1}, Step{1}, Rank{0}, report(1, 1));
  EXPECT_TRUE(std::holds_alternative<StepJoin::Mismatch>(join.add(EpochId{1}, Step{1}, Rank{0}, report(1, 1))));
  StepJoin past(1, Step{4}, 0);
  EXPECT_TRUE(std::holds_alternative<StepJoin::Mismatch>(past.add(EpochId{1}, Step{4}, Rank{0}, report(1, 1))));
}

TEST(JoinDigests, IsTheSameHoweverTheRowsAreDealtAndMissesNone) {
  using Two = std::array<std::uint64_t, 2>;
  EXPECT_EQ(join_digests(Two{4, 5}), join_digests(Two{5, 4}));
  EXPECT_EQ(join_digests(Two{join_digests(Two{1, 2}), 3}), join_digests(Two{1, join_digests(Two{2, 3})}));
  EXPECT_NE(join_digests(Two{4, 5}), join_digests(Two{4, 4}));
  EXPECT_EQ(join_digests(std::array<std::uint64_t, 1>{5}), 5U);
}

}  // namespace
}  // namespace troupe
