#include "tools/launcher/letter_link.hpp"

#include <gtest/gtest.h>

#include "src/runtime/send.hpp"

namespace troupe {
namespace {

struct KeptLog final : Log {
  void write(LogLevel level, std::string_view text) override {
    if (level == LogLevel::error) errors.emplace_back(text);
  }
  std::vector<std::string> errors;
};

TEST(LetterLink, ALetterTooLongForAFrameIsToldAsAnError) {
  KeptLog log;
  Directory directory;
  const auto clock = make_system_clock();
  TransportOptions options;
  options.self = {Rank{0}, Incarnation{0}};
  LetterLink link(directory, *clock, log, options, [](Rank, const std::string&) {});
  directory.set_remote(&link);
  Runtime runtime{*clock, log, directory};
  const auto fault_of = [&](std::size_t length) {
    send<schema::FaultReport>(runtime, Heading{coordinator_address, {Rank{0}, ActorKind::supervisor}, {}, {}, Nanos{0}, 0},
                              [&](auto body) { body.setCause(std::string(length, 'x')); });
  };
  fault_of(4000);
  EXPECT_TRUE(log.errors.empty()) << log.errors.front();
  fault_of(9000);
  ASSERT_EQ(log.errors.size(), 1U);
  EXPECT_NE(log.errors.front().find("a letter FaultReport to rank 4294967295 of 9"), std::string::npos) << log.errors.front();
  EXPECT_NE(log.errors.front().find("the limit between processes is 8000"), std::string::npos) << log.errors.front();
  directory.clear();
}

}  // namespace
}  // namespace troupe
