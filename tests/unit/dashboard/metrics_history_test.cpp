#include "tools/dashboard/metrics_history.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using nlohmann::json;

class History : public ::testing::Test {
 protected:
  void append(const std::string& text) { std::ofstream(file_, std::ios::app | std::ios::binary) << text; }
  static std::string line(int step, double loss) { return json{{"step", step}, {"loss", loss}, {"outcome", "commit"}}.dump() + "\n"; }
  json charts(std::size_t points) { return json::parse(history_.chart_json(points)); }

  testing::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "metrics.jsonl";
  MetricsHistory history_{file_};
};

TEST_F(History, OfARunWithoutAStepIsEmpty) {
  EXPECT_EQ(charts(10)["steps"], 0);
  EXPECT_EQ(history_.newest(), "");
}

TEST_F(History, KeepsASpikeOfOneStepAmongMany) {
  for (int step = 1; step <= 1000; ++step) append(line(step, step == 500 ? 99.0 : 2.0));
  const json told = charts(10);
  EXPECT_EQ(told["steps"], 1000);
  EXPECT_EQ(told["columns"]["step"], json::parse("[100,200,300,400,500,600,700,800,900,1000]"));
  EXPECT_DOUBLE_EQ(told["columns"]["loss"]["most"][4], 99.0);
  EXPECT_DOUBLE_EQ(told["columns"]["loss"]["mean"][4], 2.97);
  EXPECT_DOUBLE_EQ(told["columns"]["loss"]["least"][4], 2.0);
  EXPECT_DOUBLE_EQ(told["columns"]["loss"]["most"][5], 2.0);
}

TEST_F(History, ReadsALineOnceItIsWhole) {
  append(line(1, 3.0) + R"({"step": 2, "lo)");
  EXPECT_EQ(charts(10)["steps"], 1);
  append("ss\": 2.5, \"outcome\": \"skip\"}\n");
  const json told = charts(10);
  EXPECT_EQ(told["steps"], 2);
  EXPECT_DOUBLE_EQ(told["columns"]["loss"]["mean"][1], 2.5);
  EXPECT_EQ(history_.not_committed(), 1U);
}

TEST_F(History, GivesNullForWhatIsNotFinite) {
  append("{\"step\": 1, \"loss\": null}\n");
  EXPECT_TRUE(charts(10)["columns"]["loss"]["mean"][0].is_null());
  EXPECT_TRUE(charts(10)["columns"]["loss"]["most"][0].is_null());
}

TEST_F(History, OfAFileThatWasCutIsReadAnew) {
  for (int step = 1; step <= 5; ++step) append(line(step, 2.0));
  EXPECT_EQ(charts(10)["last"], 5);
  std::ofstream(file_, std::ios::trunc) << line(1, 2.0);
  EXPECT_EQ(charts(10)["last"], 1);
}

}  // namespace
}  // namespace troupe
