#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/metrics/console_line.hpp"
#include "src/metrics/metrics_file.hpp"
#include "src/metrics/progress_bar.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TemporaryFolder;

StepMetrics step(std::uint64_t number) {
  return {.step = Step{number},
          .epoch = EpochId{1},
          .loss = 1.0 / 3 + static_cast<double>(number),
          .grad_norm = 0.1,
          .learning_rate = 3e-4,
          .step_tokens = 1000,
          .total_tokens = number * 1000,
          .ranks = 2,
          .step_seconds = 0.25,
          .digest = 0xfedcba9876543210U,
          .arena_peak_bytes = 64U << 20U};
}

std::vector<std::uint64_t> steps_in(const std::filesystem::path& path) {
  std::vector<std::uint64_t> steps;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) steps.push_back(json::parse(line).at("step").get<std::uint64_t>());
  return steps;
}

TEST(MetricsLine, HasAllDigitsAndTheAgreedKeys) {
  const json line = json::parse(metrics_line(step(7), {.flops_per_token = 2e9}));
  EXPECT_EQ(line.at("step"), 7);
  EXPECT_EQ(line.at("loss").get<double>(), 1.0 / 3 + 7) << "reads back bit for bit";
  EXPECT_EQ(line.at("grad_norm").get<double>(), 0.1);
  EXPECT_EQ(line.at("lr").get<double>(), 3e-4);
  EXPECT_EQ(line.at("tokens"), 7000);
  EXPECT_EQ(line.at("tps").get<double>(), 2000.0) << "per device: 1000 tokens, 0.25 s, 2 ranks";
  EXPECT_EQ(line.at("tflops").get<double>(), 4.0);
  EXPECT_EQ(line.at("step_seconds").get<double>(), 0.25);
  EXPECT_EQ(line.at("epoch"), 1);
  EXPECT_EQ(line.at("outcome"), "commit");
  EXPECT_EQ(line.at("digest"), "fedcba9876543210");
}

// B145: strict readers refuse NaN; it stands as null
TEST(MetricsLine, NonFiniteValuesAreNull) {
  StepMetrics skipped = step(8);
  skipped.outcome = VerdictOutcome::skip;
  skipped.loss = std::numeric_limits<double>::quiet_NaN();
  skipped.grad_norm = std::numeric_limits<double>::infinity();
  skipped.step_seconds = 0;
  const json line = json::parse(metrics_line(skipped, {}));
  EXPECT_TRUE(line.at("loss").is_null());
  EXPECT_TRUE(line.at("grad_norm").is_null());
  EXPECT_EQ(line.at("outcome"), "skip");
  EXPECT_EQ(line.at("tps").get<double>(), 0.0);
}

// B143: save at 10, crash at 17, resume to 20
TEST(MetricsFile, AfterAResumeEachStepStandsOnce) {
  const TemporaryFolder run;
  const auto path = run.path() / "metrics.jsonl";
  {
    auto file = MetricsFile::open(path, Step{0}, {});
    for (std::uint64_t n = 1; n <= 17; ++n) ASSERT_TRUE(file->append(step(n)));
  }
  auto file = MetricsFile::open(path, Step{10}, {});
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(steps_in(path).size(), 10U);
  for (std::uint64_t n = 11; n <= 20; ++n) ASSERT_TRUE(file->append(step(n)));
  std::vector<std::uint64_t> expected(20);
  for (std::uint64_t n = 0; n < 20; ++n) expected[n] = n + 1;
  EXPECT_EQ(steps_in(path), expected);
}

// B145: a record cut by a crash hides nothing that comes after
TEST(MetricsFile, ATornLastLineGoes) {
  const TemporaryFolder run;
  const std::string whole = metrics_line(step(1), {}) + "\n" + metrics_line(step(2), {}) + "\n";
  const auto path = run.write("metrics.jsonl", whole + "{\"step\":3,\"lo");
  auto file = MetricsFile::open(path, Step{5}, {});
  ASSERT_TRUE(file);
  EXPECT_EQ(read_file(path), whole);
  ASSERT_TRUE(file->append(step(3)));
  EXPECT_THAT(steps_in(path), ElementsAre(1, 2, 3));
}

TEST(MetricsFile, AFileOfAnotherKindIsLeftAsItIs) {
  const TemporaryFolder run;
  const auto path = run.write("metrics.jsonl", metrics_line(step(1), {}) + "\nmy notes\n");
  const auto file = MetricsFile::open(path, Step{0}, {});
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().message, path + ":2: not a line of metrics; move the file away");
  EXPECT_THAT(read_file(path), HasSubstr("my notes"));
}

TEST(MetricsFile, AFileOfAnotherKindKeepsItsLastLineWithoutLineFeedToo) {
  const TemporaryFolder run;
  for (const std::string text : {"my notes\nand their end", "one line", "{\"step\":1,\"loss\":2}\nmy notes"}) {
    const auto path = run.write("metrics.jsonl", text);
    EXPECT_FALSE(MetricsFile::open(path, Step{0}, {})) << text;
    EXPECT_EQ(read_file(path), text);
  }
}

TEST(LineFile, LinesThatDidNotFitTheDiskAreWrittenLater) {
  const TemporaryFolder run;
  const auto path = run.path() / "lines";
  auto file = LineFile::open(path);
  ASSERT_TRUE(file->append("first"));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto previous = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{10, before.rlim_max};  // a write beyond fails half done, as on a full disk
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto refused = file->append("second line"), again = file->append("third");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, previous);
  EXPECT_THAT(refused.error().message, HasSubstr("1 lines wait in memory"));
  EXPECT_THAT(again.error().message, HasSubstr("2 lines wait in memory"));
  EXPECT_EQ(read_file(path), "first\n") << "nothing half-written";
  ASSERT_TRUE(file->append("fourth"));
  EXPECT_EQ(read_file(path), "first\nsecond line\nthird\nfourth\n");
}

TEST(LineFile, AFunctionChoosesWhereTheFileIsCut) {
  const TemporaryFolder run;
  const auto path = run.write("lines", "a\nb\nc\n");
  ASSERT_TRUE(LineFile::open(path, [](std::string_view line) { return line != "b"; }));
  EXPECT_EQ(read_file(path), "a\n");
}

TEST(Console, TheLineHasTorchtitansForm) {
  ConsoleReporter reporter({}, {.flops_per_token = 1e9}, false);
  EXPECT_EQ(*reporter.add(step(1)), "step:  1  loss:  1.3333  grad_norm:  0.1000  memory:  0.06GiB  tps: 2,000  tflops: 2.00  mfu: N/A");
  ConsoleReporter known({}, {.flops_per_token = 1e9, .peak_flops = 1e13, .memory_bytes = 128U << 20U}, false);
  EXPECT_THAT(*known.add(step(1)), HasSubstr("memory:  0.06GiB(50.00%)  tps: 2,000  tflops: 2.00  mfu: 20.00%"));
}

TEST(Console, AValidationHasTorchtitansFormToo) {
  StepMetrics validated = step(20);
  validated.validation_loss = 2.1034;
  validated.validation_tokens = 16384;
  validated.validation_seconds = 4;
  ConsoleReporter reporter({}, {}, false);
  EXPECT_EQ(reporter.validation(validated), "validate step: 20  loss:  2.1034  memory:  0.06GiB  tps: " + with_thousands(4096.0 / validated.ranks, 0));
  reporter.set_rates({.memory_bytes = 128U << 20U});
  EXPECT_THAT(reporter.validation(validated), HasSubstr("memory:  0.06GiB(50.00%)  tps: "));
}

TEST(MetricsFile, ALineTellsOfAValidationWhereThereWasOne) {
  StepMetrics metrics = step(1);
  EXPECT_THAT(metrics_line(metrics, {}), ::testing::Not(HasSubstr("validation")));
  metrics.validation_loss = 2.5;
  metrics.validation_tokens = 64;
  metrics.validation_seconds = 0.25;
  EXPECT_THAT(metrics_line(metrics, {}), HasSubstr(R"(,"validation_loss":2.5,"validation_tokens":64,"validation_seconds":0.25})"));
}

TEST(Console, ColoursOnATerminalOnlyAndNotWhenDisabled) {
  EXPECT_THAT(*ConsoleReporter({}, {}, true).add(step(1)), HasSubstr("\033[31mstep:"));
  EXPECT_THAT(*ConsoleReporter({}, {}, false).add(step(1)), ::testing::Not(HasSubstr("\033")));
  MetricsSettings plain;
  plain.disable_color_printing = true;
  EXPECT_THAT(*ConsoleReporter(plain, {}, true).add(step(1)), ::testing::Not(HasSubstr("\033")));
}

TEST(Console, LogFreqRulesTheLinesAndRatesCoverTheStepsBetween) {
  MetricsSettings settings;
  settings.log_freq = 5;
  ConsoleReporter reporter(settings, {}, false);
  std::vector<std::uint64_t> shown;
  std::string last;
  for (std::uint64_t n = 1; n <= 12; ++n) {
    StepMetrics metrics = step(n);
    metrics.step_seconds = n == 7 ? 4.25 : 0.25;
    if (const auto line = reporter.add(metrics)) {
      shown.push_back(n);
      last = *line;
    }
  }
  EXPECT_THAT(shown, ElementsAre(1, 5, 10));
  EXPECT_THAT(last, HasSubstr("tps: 476")) << "5000 tokens, 5.25 s, 2 ranks";
}

TEST(Console, ASkippedStepSaysSo) {
  StepMetrics skipped = step(1);
  skipped.outcome = VerdictOutcome::skip;
  skipped.loss = -std::nan("");  // its sign means nothing
  EXPECT_THAT(*ConsoleReporter({}, {}, false).add(skipped), ::testing::AllOf(HasSubstr("loss:     nan"), HasSubstr("(skipped)")));
}

TEST(Console, ThousandsAreGrouped) {
  EXPECT_EQ(with_thousands(0, 0), "0");
  EXPECT_EQ(with_thousands(999, 0), "999");
  EXPECT_EQ(with_thousands(1000, 0), "1,000");
  EXPECT_EQ(with_thousands(1234567.891, 2), "1,234,567.89");
  EXPECT_EQ(with_thousands(-1234, 0), "-1,234");
}

class HandClock final : public Clock {
 public:
  [[nodiscard]] Nanos now() const override { return time; }
  void after(Nanos, std::function<void()>) override {}
  Nanos time{0};
};

TEST(ProgressBar, ATerminalSeesOneLineThatIsRedrawn) {
  HandClock clock;
  std::string out;
  {
    ProgressBar bar("indexing", "MiB", 1048576.0, true, clock, [&](std::string_view text) { out += text; });
    bar.update(1 << 20, 4 << 20);
    EXPECT_EQ(out, "") << "nothing in the first second";
    clock.time = std::chrono::seconds{2};
    bar.update(2 << 20, 4 << 20);
    EXPECT_EQ(out, "\rindexing  [##########----------]   50 %  2 of 4 MiB  2 s left\033[K");
    clock.time += std::chrono::milliseconds{50};
    bar.update(3 << 20, 4 << 20);
    EXPECT_EQ(std::count(out.begin(), out.end(), '\r'), 1) << "at most ten times a second";
    bar.update(4 << 20, 4 << 20);
    EXPECT_THAT(out, HasSubstr("100 %"));
  }
  EXPECT_EQ(out.back(), '\n');
}

TEST(ProgressBar, ElsewhereALineEveryFiveSeconds) {
  HandClock clock;
  std::vector<std::string> lines;
  ProgressBar bar("indexing", "MiB", 1048576.0, false, clock, [&](std::string_view text) { lines.emplace_back(text); });
  for (std::uint64_t second = 1; second <= 11; ++second) {
    clock.time = std::chrono::seconds{second};
    bar.update(second, 12);
  }
  ASSERT_EQ(lines.size(), 3U);  // after 1, 6 and 11 seconds
  EXPECT_THAT(lines[1], ::testing::AllOf(HasSubstr("50 %"), ::testing::EndsWith("\n"), ::testing::Not(HasSubstr("\r"))));
}

}  // namespace
}  // namespace troupe
