#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "src/trace/chrome_trace.hpp"
#include "src/trace/overlap.hpp"
#include "src/trace/ring_tracer.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trace/trace_rules.hpp"

namespace troupe {
namespace {

using nlohmann::json;
using testing::broken_rules;
using testing::events_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TemporaryFolder;

/// A tracer of one rank with one operation at `start`.
std::filesystem::path file_of(const std::filesystem::path& folder, std::uint32_t rank, std::int64_t start) {
  RingTracer tracer({.ranks = {Rank{rank}}});
  tracer.span({.rank = Rank{rank},
               .track = "compute",
               .name = "forward L0",
               .where = {EpochId{1}, Step{1}, {}, {}},
               .issued = Nanos{start - 5},
               .started = Nanos{start},
               .ended = Nanos{start + 10}});
  tracer.letter_sent(Rank{rank}, "compute", "MicroBatchDone", tracer.next_flow(), {}, Nanos{start + 2});
  const auto file = folder / ("rank-" + std::to_string(rank) + ".json");
  EXPECT_TRUE(tracer.write(file).ok());
  return file;
}

json parsed(const std::filesystem::path& file) {
  std::ifstream in(file);
  return json::parse(in);
}

class MergedTraces : public ::testing::Test {
 protected:
  TemporaryFolder folder;
};

TEST_F(MergedTraces, KeepEveryEventAndShareOneTimeOrigin) {
  const std::vector files{file_of(folder.path(), 0, 5'000'000'123), file_of(folder.path(), 1, 5'000'000'000), file_of(folder.path(), 2, 5'001'000'000)};
  const auto out = folder.path() / "trace.json";
  ASSERT_TRUE(merge_traces(files, out).ok());
  const json merged = parsed(out);
  EXPECT_THAT(broken_rules(merged), IsEmpty());
  std::size_t events = 0;
  for (const auto& file : files) events += parsed(file)["traceEvents"].size();
  EXPECT_EQ(merged["traceEvents"].size(), events - files.size()) << "all but the arrows of letters that nobody has taken up";
  EXPECT_EQ(merged["otherData"]["origin_ns"], "4999999995");
  EXPECT_EQ(merged["otherData"]["clocks"].size(), 3U);
  std::vector<double> starts;
  for (const auto& span : events_of(merged, "X")) {
    if (span["name"] == "forward L0") starts.push_back(span["ts"]);
  }
  EXPECT_THAT(starts, ::testing::ElementsAre(0.128, 0.005, 1000.005));
}

TEST_F(MergedTraces, DrawALetterAsAnArrowWhereBothItsEndsAreHeld) {
  RingTracer sender({.ranks = {Rank{0}}}), receiver({.ranks = {Rank{1}}});
  const std::uint64_t whole = sender.next_flow(), lost = sender.next_flow(), forgotten = sender.next_flow();
  for (const std::uint64_t flow : {whole, lost}) sender.letter_sent(Rank{0}, "compute actor", "GradientReady", flow, {}, Nanos{1000});
  for (const std::uint64_t flow : {whole, forgotten}) receiver.letter_received(Rank{1}, "sharding actor", "GradientReady", flow, {}, Nanos{2000});
  const std::vector files{folder.path() / "rank-0.json", folder.path() / "rank-1.json"};
  ASSERT_TRUE(sender.write(files[0]).ok() && receiver.write(files[1]).ok());
  const auto out = folder.path() / "trace.json";
  ASSERT_TRUE(merge_traces(files, out).ok());
  const json merged = parsed(out);
  EXPECT_THAT(broken_rules(merged), IsEmpty());
  EXPECT_EQ(events_of(merged, "X").size(), 4U) << "each end stays as a span";
  ASSERT_EQ(events_of(merged, "s").size(), 1U);
  ASSERT_EQ(events_of(merged, "f").size(), 1U);
  EXPECT_EQ(events_of(merged, "s")[0]["id"], whole);
  EXPECT_EQ(events_of(merged, "f")[0]["id"], whole);
}

TEST_F(MergedTraces, CanBeReadAgainAsSpans) {
  const std::vector files{file_of(folder.path(), 0, 1000), file_of(folder.path(), 1, 2000)};
  const auto out = folder.path() / "trace.json";
  ASSERT_TRUE(merge_traces(files, out).ok());
  const auto spans = read_spans(out);
  ASSERT_TRUE(spans.ok()) << spans.error().message;
  ASSERT_EQ(spans->size(), 2U);
  EXPECT_EQ((*spans)[1].rank, Rank{1});
  EXPECT_EQ((*spans)[1].track, "compute");
  EXPECT_EQ((*spans)[1].name, "forward L0");
  EXPECT_EQ((*spans)[1].ended - (*spans)[1].started, Nanos{10});
}

TEST_F(MergedTraces, GiveBackTheTrackOfSpansThatWereDrawnInAFurtherRow) {
  RingTracer tracer({.ranks = {Rank{0}}});
  for (const std::int64_t start : {10, 15})  // they overlap and do not nest
    tracer.span({.rank = Rank{0},
                 .track = "compute",
                 .name = "forward L0",
                 .where = {EpochId{1}, Step{1}, {}, {}},
                 .issued = Nanos{start},
                 .started = Nanos{start},
                 .ended = Nanos{start + 10}});
  const auto file = folder.path() / "rank-0.json";
  ASSERT_TRUE(tracer.write(file).ok());
  const auto spans = read_spans(file);
  ASSERT_TRUE(spans.ok()) << spans.error().message;
  ASSERT_EQ(spans->size(), 2U);
  EXPECT_EQ((*spans)[0].track, "compute");
  EXPECT_EQ((*spans)[1].track, "compute");
}

TEST_F(MergedTraces, AreFoundByRankAndNothingElseIs) {
  for (const char* name : {"rank-10.json", "rank-2.json", "rank-0.json", "rank-1.json.tmp", "rank-x.json", "rank-.json", "trace.json"})
    std::ofstream(folder.path() / name) << "{}";
  EXPECT_THAT(rank_traces(folder.path()), ::testing::ElementsAre(folder.path() / "rank-0.json", folder.path() / "rank-2.json", folder.path() / "rank-10.json"));
  EXPECT_THAT(rank_traces(folder.path() / "none"), IsEmpty());
}

TEST_F(MergedTraces, RefuseAFileThatIsNoTraceAndNameIt) {
  const auto file = folder.path() / "notes.txt";
  std::ofstream(file) << "dear diary";
  const auto result = merge_traces(std::vector{file}, folder.path() / "out.json");
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("notes.txt"));
  EXPECT_FALSE(merge_traces(std::vector{folder.path() / "absent.json"}, folder.path() / "out.json").ok());
  EXPECT_FALSE(merge_traces({}, folder.path() / "out.json").ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out.json"));
}

TEST_F(MergedTraces, LeaveNoTemporaryFiles) {
  const std::vector files{file_of(folder.path(), 0, 1000)};
  ASSERT_TRUE(merge_traces(files, folder.path() / "trace.json").ok());
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) EXPECT_EQ(entry.path().extension(), ".json");
}

}  // namespace
}  // namespace troupe
