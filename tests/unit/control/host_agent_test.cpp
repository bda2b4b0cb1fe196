#include "tools/launcher/host_agent.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using testing::TemporaryFolder;

/// Its workers are programs of the system. Signals are blocked in a test that queues them, and unblocked at its end.
class HostAgentTest : public ::testing::Test {
 protected:
  HostAgentTest() { ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_); }
  ~HostAgentTest() override { ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr); }
  void start(const char* text) {
    const WorkerCommand command{
        .executable = "/bin/sh", .arguments = {"-c", text}, .environment = {}, .log = folder_.path() / "log", .first = Rank{0}, .ranks = 1};
    const auto started = agent_.start(command);
    ASSERT_TRUE(started.ok()) << started.error().message;
  }

  TemporaryFolder folder_;
  sigset_t mask_{};
  HostAgent agent_;
};

TEST_F(HostAgentTest, SaysHowItsWorkersEnded) {
  start("exit 3");
  start("kill -9 $$");
  const auto ends = agent_.stop(std::chrono::seconds{60});
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_EQ(ends[0].code + ends[1].code, 3);
  EXPECT_EQ(ends[0].signal + ends[1].signal, SIGKILL);
}

TEST_F(HostAgentTest, EndsTheLogOfAKilledWorkerWithWhatKilledIt) {
  start("echo begun; kill -9 $$");
  const auto ends = agent_.stop(std::chrono::seconds{60});
  ASSERT_EQ(ends.size(), 1U);
  const std::string log = tail_of(ends[0].log, 2);
  EXPECT_TRUE(log.starts_with("begun\n[troupe] ")) << log;
  EXPECT_NE(log.find(" - launcher - error - " + ends[0].describe()), std::string::npos) << log;
}

TEST_F(HostAgentTest, KillsWhatDoesNotEndWhenASignalCutsItsPatienceShort) {
  const SignalQueue signals{SIGTERM};
  start("exec sleep 1000");
  ASSERT_EQ(::kill(::getpid(), SIGTERM), 0);
  const auto ends = agent_.stop(std::chrono::hours{1}, &signals);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].signal, SIGKILL);
  EXPECT_TRUE(ends[0].on_our_demand);
  EXPECT_EQ(agent_.cut_short(), SIGTERM);
}

TEST_F(HostAgentTest, KeepsItsPatienceAtTheSignalOfAnEndedWorker) {
  const SignalQueue signals{SIGCHLD, SIGUSR1};
  ASSERT_EQ(::kill(::getpid(), SIGUSR1), 0);
  start("exit 0");
  start("sleep 0.2");
  const auto ends = agent_.stop(std::chrono::hours{1}, &signals);
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_TRUE(ends[0].clean() && ends[1].clean()) << ends[0].describe() << ends[1].describe();
  EXPECT_FALSE(agent_.cut_short());
}

TEST_F(HostAgentTest, SeesTheEndOfAWorkerThatTheSystemReapedUnseen) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  start("exit 0");
  const auto ends = agent_.stop(std::chrono::hours{1});
  std::signal(SIGCHLD, before);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_TRUE(ends[0].lost);
  EXPECT_FALSE(ends[0].clean());
  EXPECT_EQ(agent_.running(), 0U);
}

}  // namespace
}  // namespace troupe
