#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>

#include "src/metrics/crc32c.hpp"
#include "src/metrics/logged_metrics.hpp"
#include "src/metrics/tensorboard_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TemporaryFolder;

constexpr double noon = 1.8e9;

/// The Event messages of a file; fails on a length or payload whose checksum does not fit. A cut last record ends the list.
std::vector<std::string> events_in(const std::string& bytes) {
  const auto number = [&]<class T>(std::size_t at, T value) {
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  };
  const auto masked = [](std::string_view text) {
    const std::uint32_t crc = crc32c(text);
    return ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U;
  };
  std::vector<std::string> events;
  for (std::size_t at = 0; at + 12 <= bytes.size();) {
    const auto length = number(at, std::uint64_t{});
    EXPECT_EQ(number(at + 8, std::uint32_t{}), masked(bytes.substr(at, 8)));
    if (at + 16 + length > bytes.size()) break;
    events.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(number(at + 12 + length, std::uint32_t{}), masked(events.back()));
    at += 16 + length;
  }
  return events;
}

TEST(Crc32c, IsThatOfTheStandard) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU) << "RFC 3720, B.4";
  EXPECT_EQ(crc32c(""), 0U);
}

// B143, B145: version first, then the session's start; each record is framed and checked
TEST(TensorBoardFile, EachFileBeginsWithItsVersionAndTheStartOfASession) {
  const TemporaryFolder folder;
  auto file = TensorBoardFile::open(folder.path() / "tb", Step{11}, noon);
  ASSERT_TRUE(file) << file.error().message;
  const std::vector<Scalar> scalars{{"lr", 0.5}, {"loss", std::numeric_limits<double>::quiet_NaN()}};
  ASSERT_TRUE((*file)->write(Step{11}, noon + 1, scalars));
  const auto events = events_in(read_file((*file)->path()));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_THAT(events[0], HasSubstr("brain.Event:2"));
  EXPECT_EQ(events[1].substr(9), std::string("\x10\x0b\x3a\x02\x08\x01", 6)) << "step 11, session_log {status: START}";
  EXPECT_THAT(events[2], HasSubstr("lr"));
  EXPECT_THAT(events[2], HasSubstr(std::string("\x15\x00\x00\x00\x3f", 5))) << "0.5 as fixed32 of field 2";
  EXPECT_THAT(events[2], HasSubstr(std::string("\x00\x00\xc0\x7f", 4))) << "NaN is stored as such";
}

TEST(TensorBoardFile, AStartNeverWritesIntoAnEarlierFile) {
  const TemporaryFolder folder;
  auto first = TensorBoardFile::open(folder.path(), Step{1}, noon);
  auto second = TensorBoardFile::open(folder.path(), Step{1}, noon);
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_NE((*first)->path(), (*second)->path());
  EXPECT_EQ(events_in(read_file((*second)->path())).size(), 2U);
}

// B145: killed while it writes, ten times
TEST(TensorBoardFile, AKilledWriterTearsNothingButTheTail) {
  const TemporaryFolder folder;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const auto tb = folder.path() / std::to_string(attempt);
    const pid_t writer = ::fork();
    if (writer == 0) {
      auto file = TensorBoardFile::open(tb, Step{1}, noon);
      const std::vector<Scalar> scalars(50, {"a tag of some length", 1.0});
      for (std::uint64_t step = 1; file; ++step)
        if (!(*file)->write(Step{step}, noon, scalars)) ::_exit(1);
      ::_exit(1);
    }
    std::filesystem::path file;
    std::error_code none;
    while (file.empty() || std::filesystem::file_size(file, none) < 100000U + 40000U * static_cast<unsigned>(attempt)) {
      for (const auto& entry : std::filesystem::directory_iterator(tb, none)) file = entry.path();
    }
    ::kill(writer, SIGKILL);
    int status = 0;
    ::waitpid(writer, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    const std::string bytes = read_file(file);
    const auto events = events_in(bytes);  // checks every sum
    std::size_t whole = 0;
    for (const std::string& event : events) whole += event.size() + 16;
    EXPECT_LT(bytes.size() - whole, 2000U) << "at most one record is cut";
    EXPECT_THAT(events.front(), HasSubstr("brain.Event:2"));
  }
}

TEST(TensorBoardFile, AFolderThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  const auto blocked = folder.write("tb", "a file");
  const auto file = TensorBoardFile::open(blocked, Step{1}, noon);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr(blocked));
}

TEST(TensorBoardFolder, AResumedRunGoesOnInTheNewestOne) {
  const TemporaryFolder folder;
  for (const char* name : {"20260101-0900", "20260102-0800", "notes"}) std::filesystem::create_directories(folder.path() / name);
  EXPECT_EQ(tensorboard_folder(folder.path(), true, noon), folder.path() / "20260102-0800");
  EXPECT_NE(tensorboard_folder(folder.path(), false, noon), folder.path() / "20260102-0800");
  EXPECT_EQ(tensorboard_folder(folder.path() / "none", false, noon).filename().string().size(), 13U);
}

DeviceRates rates_of(double peak, double peak_fp8, std::uint64_t memory) {
  return {.flops_per_token = 1e9, .flops_per_token_causal = 0.5e9, .peak_flops = peak, .peak_flops_fp8 = peak_fp8, .memory_bytes = memory};
}

TEST(Scalars, HaveTorchtitansNamesAndLeaveOutSharesOfTheUnknown) {
  LogWindow window(2);
  StepMetrics metrics;
  metrics.step = Step{1};
  metrics.loss = 2;
  metrics.step_tokens = 100;
  metrics.ranks = 2;
  metrics.step_seconds = 0.5;
  metrics.wait_batch_seconds = 0.25;
  metrics.max_loss = 2.5;
  metrics.arena_peak_bytes = 1U << 30U;
  ASSERT_TRUE(window.add(metrics));
  metrics.step = Step{2};
  const auto logged = window.add(metrics);
  ASSERT_TRUE(logged);
  const auto value = [](const std::vector<Scalar>& scalars, std::string_view tag) -> std::optional<double> {
    for (const Scalar& scalar : scalars)
      if (scalar.tag == tag) return scalar.value;
    return std::nullopt;
  };
  const auto unknown = scalars_of(*logged, rates_of(0, 0, 0));
  EXPECT_EQ(value(unknown, "loss_metrics/global_avg_loss"), 2);
  EXPECT_EQ(value(unknown, "loss_metrics/global_max_loss"), 2.5);
  EXPECT_EQ(value(unknown, "throughput(tps)"), 100);
  EXPECT_EQ(value(unknown, "tflops"), 0.1);
  EXPECT_EQ(value(unknown, "tflops_causal"), 0.05);
  EXPECT_EQ(value(unknown, "time_metrics/data_loading(%)"), 50);
  EXPECT_EQ(value(unknown, "memory/max_reserved(GiB)"), 1);
  EXPECT_EQ(value(unknown, "mfu(%)"), std::nullopt);
  EXPECT_EQ(value(unknown, "memory/max_reserved(%)"), std::nullopt);
  const auto known = scalars_of(*logged, rates_of(1e12, 2e12, 4ULL << 30U));
  EXPECT_EQ(value(known, "mfu(%)"), 10);
  EXPECT_EQ(value(known, "mfu_causal(%)"), 5);
  EXPECT_EQ(value(known, "mfu_fp8(%)"), 5);
  EXPECT_EQ(value(known, "memory/max_reserved(%)"), 25);
  metrics.validation_loss = 3;
  metrics.validation_tokens = 400;
  metrics.validation_seconds = 2;
  const auto validation = validation_scalars(metrics, rates_of(0, 0, 4ULL << 30U));
  EXPECT_EQ(value(validation, "validation_metrics/loss"), 3);
  EXPECT_EQ(value(validation, "validation_metrics/throughput(tps)"), 100) << "of each of two devices";
  EXPECT_EQ(value(validation, "validation_metrics/memory/max_active(GiB)"), 1);
  EXPECT_EQ(value(validation, "validation_metrics/memory/max_reserved(%)"), 25);
  EXPECT_EQ(value(validation_scalars(metrics, {}), "validation_metrics/memory/max_reserved(%)"), std::nullopt);
}

}  // namespace
}  // namespace troupe
