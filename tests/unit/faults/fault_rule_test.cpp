#include "src/faults/fault_rule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  const auto rule = parse_fault_rule(text);
  return rule ? "no error" : rule.error().message;
}

TEST(FaultRule, IsReadFromItsText) {
  const auto rule = parse_fault_rule("site=collective rank=1 step=7 action=stall for=2s");
  ASSERT_TRUE(rule) << rule.error().message;
  EXPECT_EQ(*rule, (FaultRule{.site = FaultSite::collective,
                              .action = FaultAction::stall,
                              .kind = {},
                              .rank = Rank{1},
                              .epoch = {},
                              .step = Step{7},
                              .micro = {},
                              .unit = {},
                              .duration = std::chrono::seconds(2)}));
}

TEST(FaultRule, MayNameEverything) {
  const auto rule = parse_fault_rule("site=lane, kind=\"gather L3\", epoch=2, micro=1, unit=3, probability=0.25, times=always, action=delay, for=1.5ms");
  ASSERT_TRUE(rule) << rule.error().message;
  EXPECT_EQ(rule->kind, "gather L3");
  EXPECT_EQ(rule->epoch, EpochId{2});
  EXPECT_EQ(rule->micro, Micro{1});
  EXPECT_EQ(rule->unit, Unit{3});
  EXPECT_EQ(rule->probability, 0.25);
  EXPECT_EQ(rule->times, 0U);
  EXPECT_EQ(rule->duration, std::chrono::microseconds(1500));
}

TEST(FaultRule, FiresOnceUnlessToldOtherwise) { EXPECT_EQ(parse_fault_rule("site=process action=crash")->times, 1U); }

TEST(FaultRule, IsReadBackFromWhatItPrints) {
  for (const char* text : {"site=process rank=1 step=7 action=crash", "site=letter kind=\"WeightsGathered\" probability=0.1 times=always action=drop",
                           "site=storage kind=\"manifest.json\" times=3 action=torn", "site=collective epoch=2 micro=1 unit=0 action=delay for=250ms"}) {
    const auto rule = parse_fault_rule(text);
    ASSERT_TRUE(rule) << rule.error().message;
    EXPECT_EQ(to_string(*rule), text);
    EXPECT_EQ(*parse_fault_rule(to_string(*rule)), *rule);
  }
}

TEST(FaultRule, ErrorsNameTheWordItsPositionAndWhatIsRight) {
  EXPECT_THAT(error_of("site=collective step=seven action=fail"), AllOf(HasSubstr("position 17"), HasSubstr("step=seven"), HasSubstr("a number")));
  EXPECT_THAT(error_of("site=colective action=fail"), AllOf(HasSubstr("position 1"), HasSubstr("letter, collective, lane, storage, process")));
  EXPECT_THAT(error_of("site=lane rnak=1 action=fail"), AllOf(HasSubstr("unknown key"), HasSubstr("rank")));
  EXPECT_THAT(error_of("site=lane stall"), AllOf(HasSubstr("'stall'"), HasSubstr("key=value")));
  EXPECT_THAT(error_of("site=lane action=stall for=2"), HasSubstr("a time such as"));
  EXPECT_THAT(error_of("site=lane action=stall for=-2s"), HasSubstr("a time such as"));
  EXPECT_THAT(error_of("site=lane action=fail probability=1.5"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(error_of("site=lane action=fail probability=nan"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(error_of("site=lane action=fail times=0"), HasSubstr("one or more"));
  EXPECT_THAT(error_of("site=lane action=fail rank=99999999999"), HasSubstr("rank=99999999999"));
  EXPECT_THAT(error_of("site=lane action=fail kind=\"gather"), HasSubstr("quote"));
  EXPECT_THAT(error_of("action=fail"), HasSubstr("names no site"));
  EXPECT_THAT(error_of("site=lane"), HasSubstr("action=none"));
}

TEST(FaultRule, IsRefusedWhereTheSiteCannotDoThat) {
  EXPECT_THAT(error_of("site=collective action=torn"), AllOf(HasSubstr("a collective can delay, fail, stall, crash"), HasSubstr("action=torn")));
  EXPECT_THAT(error_of("site=process action=drop"), HasSubstr("a process can stall, crash"));
  EXPECT_EQ(error_of("site=storage action=full"), "no error");
}

}  // namespace
}  // namespace troupe
