#include "src/faults/fault_ledger.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "src/faults/fault_plan.hpp"

namespace troupe {
namespace {

class FaultLedgerTest : public testing::Test {
 protected:
  ~FaultLedgerTest() override { ::munmap(memory_, FaultLedger::bytes); }
  [[nodiscard]] std::shared_ptr<FaultLedger> ledger() const { return std::make_shared<FaultLedger>(std::span(memory_, FaultLedger::bytes)); }
  std::byte* memory_ = static_cast<std::byte*>(::mmap(nullptr, FaultLedger::bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
};

FaultRule rule_of(const char* text) { return parse_fault_rule(text).value(); }

TEST_F(FaultLedgerTest, ARuleThatKilledItsProcessHasFiredInTheNextOne) {
  const std::vector<FaultRule> rules{rule_of("site=lane kind=gather step=7 action=crash")};
  const Where where{EpochId{1}, Step{7}, Micro{1}, Unit{3}};
  const pid_t victim = ::fork();
  if (victim == 0) {
    FaultPlan plan(ledger(), Rank{0}, 0, rules);
    if (plan.decide(FaultSite::lane, "gather L3", where)) ::raise(SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(victim, &status, 0), victim);
  ASSERT_TRUE(WIFSIGNALED(status));
  FaultPlan again(ledger(), Rank{0}, 0, rules);
  EXPECT_FALSE(again.decide(FaultSite::lane, "gather L3", where)) << "not in the replay";
  const auto firings = ledger()->since(0);
  ASSERT_EQ(firings.size(), 1U);
  EXPECT_EQ(firings.front().rule, 0U);
  EXPECT_EQ(firings.front().where, where);
  EXPECT_EQ(firings.front().operation, "gather L3");
}

TEST_F(FaultLedgerTest, ARuleAddedToALiveRunFiresFromThenOnAndCountsForItself) {
  FaultPlan plan(ledger(), Rank{0}, 0, {rule_of("site=lane step=3 action=fail")});
  const Where third{EpochId{1}, Step{3}, {}, {}};
  EXPECT_TRUE(plan.decide(FaultSite::lane, "gather L0", third));
  EXPECT_FALSE(plan.decide(FaultSite::lane, "gather L0", third));
  plan.add(rule_of("site=lane kind=gather action=fail"));
  const Fault fault = plan.decide(FaultSite::lane, "gather L0", third);
  EXPECT_TRUE(fault);
  EXPECT_EQ(fault.rule, 1U);
  EXPECT_EQ(ledger()->fired().at(0), 1U);
  EXPECT_EQ(ledger()->fired().at(1), 1U);
}

TEST_F(FaultLedgerTest, OldFiringsAreOverwrittenAndCountsStay) {
  const auto book = ledger();
  for (std::uint64_t step = 1; step <= 300; ++step) book->note({2, {EpochId{1}, Step{step}, {}, {}}, "an operation with a name that is longer than its place"});
  EXPECT_EQ(book->fired().at(2), 300U);
  EXPECT_EQ(book->since(0).size(), FaultLedger::most_firings);
  EXPECT_EQ(book->since(298).front().where.step, Step{299});
  EXPECT_EQ(book->since(299).front().operation, "an operation with a name that is longer");
}

}  // namespace
}  // namespace troupe
