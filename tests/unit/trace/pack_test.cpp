#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "src/trace/pack_timeline.hpp"
#include "src/trace/ring_tracer.hpp"

namespace troupe {
namespace {

using nlohmann::json;

struct Unpacked {
  json header;
  std::string bytes;
  explicit Unpacked(const PackedTimeline& packed) : header(json::parse(packed.header)), bytes(header["bytes"].get<std::size_t>(), '\0') {
    uLongf size = static_cast<uLongf>(bytes.size());
    EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(bytes.data()), &size, reinterpret_cast<const Bytef*>(packed.compressed.data()),
                         static_cast<uLong>(packed.compressed.size())),
              Z_OK);
  }
  [[nodiscard]] std::vector<std::uint64_t> column(const char* name) const {
    const json& column = header["columns"].at(name);
    const std::size_t width = column["type"] == "u32" ? 4 : column["type"] == "u16" ? 2 : 1;
    std::vector<std::uint64_t> values;
    for (std::size_t i = 0; i < column["length"].get<std::size_t>(); ++i) {
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.data() + column["offset"].get<std::size_t>() + i * width, width);
      values.push_back(value);
    }
    return values;
  }
};

const Where where{EpochId{1}, Step{7}, Micro{1}, Unit{3}};

TEST(PackedTimelines, HoldSpansByRowAsDifferences) {
  RingTracer tracer({});
  for (const std::int64_t start : {std::int64_t{1000}, std::int64_t{6'000'000'000}, std::int64_t{6'000'000'500}})
    tracer.span({.rank = Rank{0},
                 .track = "compute",
                 .name = "forward L0",
                 .where = where,
                 .issued = Nanos{start - 10},
                 .started = Nanos{start},
                 .ended = Nanos{start + 400}});
  const Unpacked unpacked(pack_timeline({{tracer.snapshot(Rank{0})}, {}}, "a run"));
  EXPECT_EQ(unpacked.header["title"], "a run");
  EXPECT_EQ(unpacked.header["rows"].size(), 1U);
  EXPECT_EQ(unpacked.header["rows"][0]["count"], 3);
  EXPECT_THAT(unpacked.column("span.time"), ::testing::ElementsAre(0, 5'999'999'000 & 0xffffffff, 500));
  EXPECT_THAT(unpacked.column("span.time.high"), ::testing::ElementsAre(0, 1, 0));
  EXPECT_THAT(unpacked.column("span.length"), ::testing::Each(400));
  EXPECT_THAT(unpacked.column("span.queued"), ::testing::Each(10));
  EXPECT_THAT(unpacked.column("span.step"), ::testing::Each(7));
  EXPECT_EQ(unpacked.header["steps"], json::parse("[[7,0,5999999900]]"));
}

TEST(PackedTimelines, PutWhatOverlapsIntoFurtherRows) {
  RingTracer tracer({});
  for (const std::int64_t start : {100, 150, 200})
    tracer.span({.rank = Rank{0}, .track = "transport", .name = "send StepReport", .where = where, .started = Nanos{start}, .ended = Nanos{start + 100}});
  const Unpacked unpacked(pack_timeline({{tracer.snapshot(Rank{0})}, {}}, ""));
  ASSERT_EQ(unpacked.header["rows"].size(), 2U);
  EXPECT_EQ(unpacked.header["rows"][0]["count"], 2);
  EXPECT_EQ(unpacked.header["rows"][1]["depth"], 1);
}

TEST(PackedTimelines, JoinTheEndsOfLettersAndCountThoseWithOne) {
  RingTracer tracer({.ranks = {Rank{0}, Rank{1}}});
  for (const std::uint32_t rank : {0U, 1U})
    tracer.span({.rank = Rank{rank}, .track = "compute actor", .name = "Tick", .where = where, .started = Nanos{100}, .ended = Nanos{900}});
  tracer.letter_sent(Rank{0}, "compute actor", "StepReport", 5, where, Nanos{200});
  tracer.letter_received(Rank{1}, "compute actor", "StepReport", 5, where, Nanos{700});
  tracer.letter_sent(Rank{0}, "compute actor", "StepReport", 6, where, Nanos{300});
  tracer.slots_in_use(Rank{1}, "weights", 2, Nanos{350});
  tracer.mark(Rank{0}, "fault: a rank died", Nanos{800});
  const Unpacked unpacked(pack_timeline({{tracer.snapshot(Rank{0}), tracer.snapshot(Rank{1})}, {}}, ""));
  EXPECT_EQ(unpacked.header["letters"], 1);
  EXPECT_EQ(unpacked.header["letters_with_one_end"], 1);
  EXPECT_THAT(unpacked.column("letter.way"), ::testing::ElementsAre(500));
  EXPECT_THAT(unpacked.column("letter.from"), ::testing::ElementsAre(0));
  EXPECT_THAT(unpacked.column("letter.to"), ::testing::ElementsAre(1));
  EXPECT_EQ(unpacked.header["marks"], json::parse(R"([[0,700,"fault: a rank died"]])"));
  EXPECT_EQ(unpacked.header["counters"][0]["edge"], "weights");
  EXPECT_THAT(unpacked.column("counter.value"), ::testing::ElementsAre(2));
}

}  // namespace
}  // namespace troupe
