#include "src/simulation/causality.hpp"

#include <gtest/gtest.h>

#include "src/simulation/slot_ledger.hpp"

namespace troupe {
namespace {

LaneOperation touching(const std::string& name, bool write) {
  LaneOperation operation;
  operation.name = name;
  operation.accesses = {{name_of(EdgeKind::weights), 0, SlotIndex{1}, write}};
  return operation;
}

class SlotLedgerTest : public ::testing::Test {
 protected:
  /// The lane does the operation after what `after` knows, and says when it is over.
  CausalStamp run(LaneKind lane, const LaneOperation& operation, const CausalStamp& after = {}) {
    const Causality::Acting acting(causality, causality.of(Rank{0}, lane));
    causality.join(after);
    (void)causality.stamp();
    ledger.begin(operation);
    CausalStamp over = causality.stamp();
    ledger.end(operation);
    return over;
  }

  Causality causality;
  Findings findings;
  SlotLedger ledger{causality, findings};
};

TEST_F(SlotLedgerTest, AReaderThatWasToldComesAfterTheWriter) {
  const CausalStamp written = run(LaneKind::comm, touching("gather", true));
  const CausalStamp read = run(LaneKind::compute, touching("forward", false), written);
  (void)run(LaneKind::comm, touching("gather again", true), read);
  EXPECT_TRUE(findings.empty()) << findings.text();
}

TEST_F(SlotLedgerTest, AReaderThatWasNotToldIsFoundAndBothAreNamed) {
  (void)run(LaneKind::comm, touching("gather L1", true));
  (void)run(LaneKind::compute, touching("forward L1", false));
  ASSERT_TRUE(findings.has(Invariant::ordered_slot_access));
  EXPECT_NE(findings.text().find("forward L1"), std::string::npos);
  EXPECT_NE(findings.text().find("gather L1"), std::string::npos);
}

TEST_F(SlotLedgerTest, AWriterThatDoesNotWaitForTheReaderIsFound) {
  const CausalStamp written = run(LaneKind::comm, touching("gather", true));
  (void)run(LaneKind::compute, touching("forward", false), written);
  (void)run(LaneKind::comm, touching("gather again", true));
  EXPECT_TRUE(findings.has(Invariant::ordered_slot_access));
}

TEST_F(SlotLedgerTest, TwoReadersNeedNoOrder) {
  const CausalStamp written = run(LaneKind::comm, touching("gather", true));
  (void)run(LaneKind::compute, touching("forward", false), written);
  (void)run(LaneKind::copy, touching("copy", false), written);
  EXPECT_TRUE(findings.empty()) << findings.text();
}

}  // namespace
}  // namespace troupe
