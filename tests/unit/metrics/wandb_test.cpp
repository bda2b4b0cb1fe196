#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <limits>

#include "src/metrics/wandb_process.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::TemporaryFolder;

/// A stand-in for W&B's client, which writes down what it is told.
constexpr const char* client = R"python(
import json, os
class Run:
    id = "run-of-the-test"
    def log(self, values, step): print(json.dumps([step, values]), file=self.file, flush=True)
    def finish(self): print("finished", file=self.file, flush=True)
def init(**arguments):
    run = Run()
    run.file = open(os.environ["TOLD"], "a")
    print(json.dumps({"id": arguments["id"], "project": arguments["project"], "lr": arguments["config"]["optimizer"]["lr"]}), file=run.file, flush=True)
    return run
)python";

struct WandbTest : ::testing::Test {
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);  // as programs that train do
    ::setenv("PYTHONPATH", folder.path().c_str(), 1);
    ::setenv("TOLD", (folder.path() / "told").c_str(), 1);
    ::unsetenv("WANDB_RUN_ID");
    ::unsetenv("WANDB_PROJECT");
  }
  TemporaryFolder folder;
  WandbProcess::Options options{.python = "python3", .run_folder = folder.path() / "run", .config = "[optimizer]\nlr = 0.5\n"};
};

TEST_F(WandbTest, TheClientGetsConfigurationAndNumbersAndIsFinished) {
  folder.write("wandb.py", client);
  for (const char* start : {"first", "resumed"}) {
    auto process = WandbProcess::start(options);
    ASSERT_TRUE(process) << start << ": " << process.error().message;
    const std::vector<Scalar> scalars{{"lr", 0.25}, {"loss", std::numeric_limits<double>::infinity()}};
    ASSERT_TRUE((*process)->write(Step{3}, 0, scalars));
    const auto closed = (*process)->close();
    ASSERT_TRUE(closed) << closed.error().message;
  }
  const std::string one = "[3, {\"loss\": NaN, \"lr\": 0.25}]\nfinished\n";
  EXPECT_EQ(read_file(folder.path() / "told"),
            "{\"id\": null, \"project\": \"troupe\", \"lr\": 0.5}\n" + one + "{\"id\": \"run-of-the-test\", \"project\": \"troupe\", \"lr\": 0.5}\n" + one);
}

TEST_F(WandbTest, AMissingClientIsRefusedWithTheCommandThatInstallsIt) {
  folder.write("wandb.py", "raise ImportError('not today')\n");
  const auto process = WandbProcess::start(options);
  ASSERT_FALSE(process);
  EXPECT_THAT(process.error().message, HasSubstr("`python3 -m pip install wandb`"));
  EXPECT_THAT(process.error().message, HasSubstr("not today"));
}

TEST_F(WandbTest, APythonThatIsNotThereIsNamed) {
  options.python = "/nowhere/python";
  EXPECT_THAT(WandbProcess::start(options).error().message, HasSubstr("/nowhere/python"));
}

TEST_F(WandbTest, AClientThatFailsInTheEndIsTold) {
  folder.write("wandb.py", "import os\ndef init(**arguments): os._exit(7)\n");
  auto process = WandbProcess::start(options);
  ASSERT_TRUE(process) << process.error().message;
  EXPECT_THAT((*process)->close().error().message, HasSubstr("code 7"));
}

TEST_F(WandbTest, AClientThatDiesIsToldOnceAndTrainingGoesOn) {
  folder.write("wandb.py", "import os\ndef init(**arguments): os._exit(1)\n");
  auto process = WandbProcess::start(options);
  ASSERT_TRUE(process) << process.error().message;
  std::vector<Scalar> scalars;
  for (int i = 0; i < 1000; ++i) scalars.push_back({"a name that fills the pipe soon " + std::to_string(i), 1.0});
  int errors = 0;
  for (std::uint64_t step = 1; step <= 50; ++step) errors += (*process)->write(Step{step}, 0, scalars) ? 0 : 1;
  errors += (*process)->close() ? 0 : 1;
  EXPECT_EQ(errors, 1);
}

}  // namespace
}  // namespace troupe
