#include "tools/web/page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// The page but for the comments that say under which licence a library is, which name an address.
std::string without_licences(std::string page) {
  for (std::size_t begin = page.find("/*!"); begin != std::string::npos; begin = page.find("/*!")) page.erase(begin, page.find("*/", begin) + 2 - begin);
  return page;
}

TEST(Pages, HoldTheirScriptsAndStylesAndNameNoOtherFile) {
  for (const char* folder : {"timeline", "report", "dashboard"}) {
    const std::string page = without_licences(whole_page(folder));
    EXPECT_THAT(page, HasSubstr("'use strict'")) << folder;
    EXPECT_THAT(page, Not(HasSubstr("<script src="))) << folder;
    EXPECT_THAT(page, Not(HasSubstr("<img"))) << folder;
    EXPECT_THAT(page, Not(HasSubstr("stylesheet"))) << folder;
    EXPECT_THAT(page, Not(HasSubstr("http"))) << folder;
  }
  EXPECT_THROW((void)whole_page("nowhere"), std::out_of_range);
}

TEST(Pages, KeepTheLicencesOfTheirLibraries) {
  EXPECT_THAT(whole_page("dashboard"), HasSubstr("dygraphs"));
  EXPECT_THAT(whole_page("dashboard"), HasSubstr("LICENSE.txt (MIT) */"));
  EXPECT_THAT(whole_page("timeline"), HasSubstr("Sifter, copyright (c) Brian Reavis and contributors, Apache licence 2.0"));
}

TEST(Pages, TakeDataThatCannotEndItsElement) {
  std::string page = whole_page("report");
  put_json(page, "report-data", R"({"name": "</script><b>"})");
  EXPECT_THAT(page, Not(HasSubstr("</script><b>")));
  EXPECT_THAT(page, HasSubstr(R"(id="report-data">{"name": "\u003c/script>\u003cb>"}</script>)"));
}

TEST(Pages, TakeBytesAsBase64) {
  for (const auto& [bytes, text] : {std::pair{"", ""}, std::pair{"M", "TQ=="}, std::pair{"Ma", "TWE="}, std::pair{"Man", "TWFu"}}) {
    std::string page = whole_page("timeline");
    put_bytes(page, "timeline-data", bytes);
    EXPECT_THAT(page, HasSubstr("id=\"timeline-data\">" + std::string(text) + "</script>"));
  }
}

}  // namespace
}  // namespace troupe
