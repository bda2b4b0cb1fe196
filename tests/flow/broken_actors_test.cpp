#include <gtest/gtest.h>

#include "tests/support/broken_loader.hpp"
#include "tests/support/broken_programs.hpp"
#include "tests/support/virtual_world_job.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

/// Two ranks, enough of everything that a mistake has room to show.
FlowKnobs knobs() {
  FlowKnobs k;
  k.seed = 11;
  k.ranks = 2;
  k.layers = 4;
  k.micro_batches = 2;
  k.steps = 3;
  k.begun_ahead = 2;
  k.forward = milliseconds{3};
  k.backward = milliseconds{6};
  k.gather = k.reduce = milliseconds{2};
  k.load = milliseconds{4};
  k.jitter = 0.5;
  return k;
}

FlowResult run_with_broken_loader(LoaderFault fault) {
  VirtualJob job(knobs());
  job.alter_parts = [fault](VirtualJob& of, std::uint32_t rank, RankParts& parts) {
    if (rank == 1) break_loader(of, rank, parts, fault);
  };
  return job.run();
}

TEST(BrokenActors, TheSameRunWithoutAMistakeHasNoFinding) { EXPECT_EQ(run_twice(knobs()).findings, ""); }

TEST(BrokenActors, OneThatAnnouncesBeforeItsWorkIsDoneIsFoundByTheOrderOfSlotAccesses) {
  const FlowResult result = run_with_broken_loader(LoaderFault::announces_before_it_is_done);
  EXPECT_TRUE(result.has(Invariant::ordered_slot_access)) << result.findings;
  EXPECT_NE(result.findings.find("of batches"), std::string::npos) << result.findings;
}

TEST(BrokenActors, OneThatReleasesItsLeaseEarlyIsFoundByTheOrderOfSlotAccesses) {
  const FlowResult result = run_with_broken_loader(LoaderFault::releases_before_it_is_done);
  EXPECT_TRUE(result.has(Invariant::ordered_slot_access)) << result.findings;
}

TEST(BrokenActors, OneThatPostsOutOfPlanOrderIsFoundByTheOrderOfIssue) {
  const FlowResult result = run_with_broken_loader(LoaderFault::swaps_two_batches);
  EXPECT_TRUE(result.has(Invariant::issue_order)) << result.findings;
  EXPECT_NE(result.findings.find("the disk lane of rank 1 got"), std::string::npos) << result.findings;
}

TEST(BrokenActors, OneThatForgetsToReturnASlotIsFoundByTheLeasesThatAreOut) {
  const FlowResult result = run_with_broken_loader(LoaderFault::keeps_a_lease);
  EXPECT_TRUE(result.has(Invariant::leases_home)) << result.findings;
  EXPECT_NE(result.findings.find("of batches (rank 1) did not come home"), std::string::npos) << result.findings;
}

TEST(BrokenActors, OneThatReadsASlotAfterItsReleaseFindsPoison) {
  FlowKnobs slow_gathers = knobs();  // so that nobody has taken the slot again when it is read
  slow_gathers.slots.weights = 3;
  slow_gathers.gather = milliseconds{20};
  VirtualJob job(slow_gathers);
  job.alter_parts = [](VirtualJob&, std::uint32_t, RankParts& parts) { parts.compute = reads_weights_after_release(parts.compute); };
  const FlowResult result = job.run();
  EXPECT_TRUE(result.has(Invariant::live_data)) << result.findings;
  EXPECT_NE(result.findings.find("freed or empty weights are read"), std::string::npos) << result.findings;
}

TEST(BrokenActors, OneThatForgetsASumOverReplicasIsFoundByWhatItsShardsHold) {
  FlowKnobs replicated = knobs();
  replicated.replicas = 2;
  EXPECT_EQ(run_twice(replicated).findings, "");
  VirtualJob job(replicated);
  job.alter_parts = [](VirtualJob&, std::uint32_t, RankParts& parts) { parts.shard = forgets_a_sum_over_replicas(parts.shard); };
  const FlowResult result = job.run();
  EXPECT_TRUE(result.has(Invariant::live_data)) << result.findings;
  EXPECT_NE(result.findings.find("the verdict comes before the sum over replicas"), std::string::npos) << result.findings;
}

/// The job with a post office that mistreats a kind of letter of rank 1.
FlowResult run_with_broken_post_office(schema::Envelope::Body::Which kind, BrokenPostOffice::Fault fault, int first = 1) {
  VirtualJob job(knobs());
  BrokenPostOffice office(job.world().post_office(), kind, fault, first);
  Runtime runtime{job.world().clock(), job.runtime().log, office};
  job.alter_parts = [&](VirtualJob&, std::uint32_t rank, RankParts& parts) {
    if (rank == 1) parts.runtime = &runtime;
  };
  return job.run();
}

TEST(BrokenActors, OneThatReportsAStepTwiceIsFoundByTheLedger) {
  const FlowResult result = run_with_broken_post_office(schema::Envelope::Body::STEP_REPORT, BrokenPostOffice::Fault::doubles);
  EXPECT_TRUE(result.has(Invariant::step_ledger)) << result.findings;
  EXPECT_NE(result.findings.find("rank 1 reports step 1 after step 1"), std::string::npos) << result.findings;
}

TEST(BrokenActors, OneThatAnnouncesABatchTwiceIsFoundByTheLedger) {
  const FlowResult result = run_with_broken_loader(LoaderFault::announces_twice);
  EXPECT_TRUE(result.has(Invariant::step_ledger)) << result.findings;
}

TEST(BrokenActors, OneThatDecidesByTheTimeOfDayIsFoundBySecondRun) {
  const FlowResult result = run_twice(knobs(), [](VirtualJob& job) {
    job.alter_parts = [](VirtualJob& of, std::uint32_t rank, RankParts& parts) {
      if (rank == 0) break_loader(of, rank, parts, LoaderFault::decides_by_the_time_of_day);
    };
  });
  EXPECT_TRUE(result.has(Invariant::repeatable_trace)) << result.findings;
}

TEST(BrokenActors, OneWhoseVerdictDiffersIsFoundByTheComparison) {
  VirtualJob job(knobs());
  job.before_run = [](VirtualJob& of) { of.programs(1).distort_numbers = [](StepNumbers& numbers) { numbers.verdict.outcome = VerdictOutcome::skip; }; };
  const FlowResult result = job.run();
  EXPECT_TRUE(result.has(Invariant::equal_verdicts)) << result.findings;
}

TEST(BrokenActors, OneThatPostsForAnOlderEpochIsFound) {
  const FlowResult result = run_with_broken_loader(LoaderFault::posts_for_an_older_epoch);
  EXPECT_TRUE(result.has(Invariant::one_epoch)) << result.findings;
}

TEST(BrokenActors, OneThatNeverAnnouncesStopsProgressAndTheReportSaysWhatIsAwaited) {
  const FlowResult result = run_with_broken_loader(LoaderFault::never_announces);
  EXPECT_EQ(result.end.how, RunEnd::How::stuck);
  EXPECT_TRUE(result.has(Invariant::progress));
  EXPECT_NE(result.end.report.find("compute of rank 1"), std::string::npos) << result.end.report;
  EXPECT_NE(result.end.report.find("waits for batch m0"), std::string::npos) << result.end.report;
}

TEST(BrokenActors, ALostLetterStopsProgress) {
  const FlowResult result = run_with_broken_post_office(schema::Envelope::Body::WEIGHTS_GATHERED, BrokenPostOffice::Fault::loses, 7);
  EXPECT_EQ(result.end.how, RunEnd::How::stuck);
  EXPECT_NE(result.end.report.find("compute of rank 1"), std::string::npos) << result.end.report;
  EXPECT_NE(result.end.report.find("waits for weights of"), std::string::npos) << result.end.report;
  EXPECT_NE(result.end.report.find("dp_shard"), std::string::npos) << result.end.report;
}

}  // namespace
}  // namespace troupe
