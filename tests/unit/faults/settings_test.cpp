#include "src/faults/settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(std::vector<std::string> rules) {
  const auto parsed = rules_of(FaultSettings{std::move(rules)});
  return parsed ? "" : parsed.error().message;
}

TEST(FaultSettings, ReadsItsRulesInOrder) {
  const auto rules = rules_of(FaultSettings{{"site=lane kind=gather unit=3 step=20 action=delay for=5ms", "site=process rank=1 step=7 action=crash"}});
  ASSERT_TRUE(rules);
  ASSERT_EQ(rules->size(), 2U);
  EXPECT_EQ((*rules)[0].duration, Nanos{5'000'000});
  EXPECT_EQ((*rules)[1].site, FaultSite::process);
}

TEST(FaultSettings, NamesTheRuleThatItCannotRead) {
  EXPECT_THAT(refusal({"site=lane action=fail", "site=lane action=explode"}),
              AllOf(HasSubstr("rule 2, 'site=lane action=explode'"), HasSubstr("expected one of")));
}

TEST(FaultSettings, RefusesWhatNobodyInAWorkerWouldAskFor) {
  EXPECT_EQ(refusal({"site=letter action=drop", "site=storage action=torn"}), "");
  EXPECT_THAT(refusal({"site=storage action=stall"}), HasSubstr("give it, as in for=2s"));
  EXPECT_THAT(refusal({"site=process action=stall for=1s"}), HasSubstr("use site=lane action=stall"));
  EXPECT_THAT(refusal({"site=process unit=3 action=crash"}), HasSubstr("drop kind, micro and unit"));
  EXPECT_THAT(refusal({"site=lane action=delay"}), HasSubstr("for=5ms"));
}

}  // namespace
}  // namespace troupe
