#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/collectives/members.hpp"

namespace troupe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void reduce(Communicator& group, std::int64_t rows, std::int64_t columns, DType dtype = DType::f32) {
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  Stream stream;
  group.all_reduce(stream, TensorView::contiguous(values.data(), dtype, {rows, columns}), Reduction::sum);
}

void gather(Communicator& group, std::size_t bytes) {
  std::vector<std::byte> data(bytes * group.size());
  const GatherPiece piece{data.data(), bytes};
  Stream stream;
  group.all_gather(stream, {&piece, 1});
}

class Failures : public ::testing::TestWithParam<Kind> {
 protected:
  static std::vector<std::string> errors(std::uint32_t size, const std::function<void(Communicator&)>& body, const Setting& setting = {}) {
    std::vector<std::string> all;
    const auto members = run(
        GetParam(), size,
        [&](Communicator& group) {
          body(group);
          return std::vector<std::byte>{};
        },
        setting);
    std::ranges::transform(members, std::back_inserter(all), [](const auto& member) { return member.error; });
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Every, Failures, ::testing::Values(Kind::threads, Kind::processes, Kind::loopback, Kind::ucx),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(Failures, DifferentSizesAreAnErrorOnAllMembersThatNamesBothCalls) {
  for (const auto& error : errors(3, [](Communicator& group) { reduce(group, group.rank() == 2 ? 200 : 100, 2560); }))
    EXPECT_THAT(error, AllOf(HasSubstr("call 1"), HasSubstr("rank 0 calls all_reduce(sum, float32, 1 piece, 1024000 bytes"),
                             HasSubstr("rank 2 calls all_reduce(sum, float32, 1 piece, 2048000 bytes")));
}

TEST_P(Failures, DifferentTypesAreAnErrorOnAllMembersThatNamesBothCalls) {
  for (const auto& error : errors(2, [](Communicator& group) { reduce(group, 10, 10, group.rank() == 0 ? DType::f32 : DType::bf16); }))
    EXPECT_THAT(error, AllOf(HasSubstr("rank 0 calls all_reduce(sum, float32"), HasSubstr("rank 1 calls all_reduce(sum, bfloat16")));
}

TEST_P(Failures, DifferentOperationsAreAnErrorOnAllMembersThatNamesBothCalls) {
  for (const auto& error : errors(2, [](Communicator& group) {
         reduce(group, 4, 4);
         if (group.rank() == 0)
           reduce(group, 4, 4);
         else
           gather(group, 64);
       }))
    EXPECT_THAT(error, AllOf(HasSubstr("call 2"), HasSubstr("rank 0 calls all_reduce"), HasSubstr("rank 1 calls all_gather")));
}

TEST_P(Failures, DifferentRootsAndReductionsAndPiecesAreErrors) {
  const auto broadcast = [](Communicator& group) {
    std::vector<std::byte> data(10);
    Stream stream;
    group.broadcast(stream, data, group.rank());
  };
  for (const auto& error : errors(2, broadcast)) EXPECT_THAT(error, AllOf(HasSubstr("root 0"), HasSubstr("root 1")));
  const auto mixed = [](Communicator& group) {
    std::vector<float> data(10);
    Stream stream;
    group.all_reduce(stream, TensorView::contiguous(data.data(), DType::f32, {10}), group.rank() == 0 ? Reduction::sum : Reduction::max);
  };
  for (const auto& error : errors(2, mixed)) EXPECT_THAT(error, AllOf(HasSubstr("sum"), HasSubstr("max")));
  const auto pieces = [](Communicator& group) {
    std::vector<std::byte> data(64);
    const std::size_t first = group.rank() == 0 ? 8 : 16;
    const std::vector<GatherPiece> both{{data.data(), first}, {data.data() + 32, 24 - first}};
    Stream stream;
    group.all_gather(stream, both);
  };
  for (const auto& error : errors(2, pieces)) EXPECT_THAT(error, HasSubstr("other sizes of the single pieces"));
}

TEST_P(Failures, SizesThatAgreeInTheirLower32BitsAreStillDifferent) {
  const auto body = [](Communicator& group) {
    const std::size_t bytes = (std::size_t{1} << 32) * (group.rank() == 0 ? 1 : 0) + 8;
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);  // never touched but in its first page
    if (memory == MAP_FAILED) throw std::runtime_error("mmap");
    Stream stream;
    try {
      group.broadcast(stream, {static_cast<std::byte*>(memory), bytes}, 1);
    } catch (...) {
      munmap(memory, bytes);
      throw;
    }
  };
  for (const auto& error : errors(2, body)) EXPECT_THAT(error, AllOf(HasSubstr("4294967304 bytes"), HasSubstr(" 8 bytes")));
}

TEST_P(Failures, ATypeThatCannotBeSummedIsRefusedByAll) {
  for (const auto& error : errors(2, [](Communicator& group) { reduce(group, 2, 2, DType::bf16); }))
    EXPECT_THAT(error, HasSubstr("all_reduce takes float32 and float64, not bfloat16"));
}

TEST_P(Failures, AfterAnErrorEveryCallThrowsTheFirstCause) {
  const auto body = [](Communicator& group) {
    EXPECT_THROW(reduce(group, 1, group.rank() + 1), CollectiveError);
    gather(group, 8);
  };
  for (const auto& error : errors(2, body)) EXPECT_THAT(error, HasSubstr("call 1 differs between members"));
}

TEST_P(Failures, ASilentMemberIsNamedWhenTheTimeoutPasses) {
  Setting setting;
  setting.timeout = std::chrono::seconds(2);  // within it they must have met
  const auto all = errors(
      2,
      [](Communicator& group) {
        if (group.rank() == 0) gather(group, 8);
      },
      setting);
  EXPECT_THAT(all[0], AllOf(HasSubstr("rank 1 did not join in"), HasSubstr("all_gather")));
  EXPECT_EQ(all[1], "");
}

TEST_P(Failures, AMemberThatNeverComesIsNamed) {
  Setting setting;
  setting.timeout = std::chrono::milliseconds(300);
  setting.change = [](SharedMemoryOptions& options) {
    if (options.rank == 1) options.tag += "-elsewhere";
  };
  const auto all = errors(2, [](Communicator&) {}, setting);
  EXPECT_THAT(all[0], HasSubstr("rank 1"));
  EXPECT_THAT(all[1], HasSubstr("rank 0"));
}

TEST_P(Failures, MembersWithOtherChunksAreRefusedOnBothSides) {
  Setting setting;
  setting.change = [](SharedMemoryOptions& options) {
    if (options.rank == 1) options.chunk_bytes = 8192;
  };
  for (const auto& error : errors(2, [](Communicator&) {}, setting)) EXPECT_THAT(error, AllOf(HasSubstr("4096 bytes"), HasSubstr("8192 bytes")));
}

TEST_P(Failures, ANewCommunicatorUnderAnotherTagWorksAfterAFailure) {
  const std::string tag = fresh_tag();
  for (int epoch = 0; epoch < 3; ++epoch) {
    Setting setting;
    setting.tag = tag + "-epoch-" + std::to_string(epoch);
    for (const auto& error : errors(
             2,
             [](Communicator& group) {
               reduce(group, 10, 10);
               if (group.rank() == 0) group.abort("the epoch ends");
               for (;;) gather(group, 8);
             },
             setting))
      EXPECT_THAT(error, HasSubstr("the epoch ends"));
  }
}

const std::vector<std::pair<std::string, std::function<void(Communicator&)>>> operations{
    {"all_gather", [](Communicator& group) { gather(group, 100'000); }},
    {"reduce_scatter",
     [](Communicator& group) {
       std::vector<float> input(50'000 * group.size()), output(50'000);
       const ReducePiece piece{input.data(), output.data(), 50'000};
       Stream stream;
       group.reduce_scatter(stream, {&piece, 1});
     }},
    {"all_reduce", [](Communicator& group) { reduce(group, 300, 300); }},
    {"broadcast",
     [](Communicator& group) {
       std::vector<std::byte> data(100'000);
       Stream stream;
       group.broadcast(stream, data, 0);
     }},
    {"all_to_all",
     [](Communicator& group) {
       std::vector<std::byte> input(100'000 * group.size()), output(input.size());
       Stream stream;
       group.all_to_all(stream, input, output);
     }},
};

class Abort : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Every, Abort, ::testing::Values(Kind::threads, Kind::loopback, Kind::ucx),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(Abort, FreesEveryMemberWhateverItIsIn) {
  for (const auto& [name, operation] : operations) {
    SCOPED_TRACE(name);
    std::atomic<int> blocked_thread{0};
    std::atomic<Communicator*> absent{nullptr};
    std::jthread outside([&] {
      while (blocked_thread == 0 || !absent) std::this_thread::yield();
      wait_until_asleep(blocked_thread);
      absent.load()->abort("pulled from outside");
      absent = nullptr;
    });
    const auto members = run(GetParam(), 3, [&, &call = operation](Communicator& group) {
      if (group.rank() == 2) {  // never joins in, so nobody can finish
        absent = &group;
        while (absent) std::this_thread::yield();
        return std::vector<std::byte>{};
      }
      if (group.rank() == 0) blocked_thread = gettid();
      call(group);
      return std::vector<std::byte>{};
    });
    EXPECT_THAT(members[0].error, HasSubstr("pulled from outside"));
    EXPECT_THAT(members[1].error, HasSubstr("pulled from outside"));
  }
}

TEST(Rendezvous, EndsItsWaitForAMemberThatHasNotCome) {
  for (const Kind kind : {Kind::threads, Kind::processes}) {
    std::stop_source stop;
    SharedMemoryRegistry registry;
    SharedMemoryOptions options{.tag = fresh_tag(), .rank = 0, .size = 2, .registry = kind == Kind::threads ? &registry : nullptr, .stop = stop.get_token()};
    std::atomic<int> waiting{0};
    std::string error;
    std::thread member([&] {
      const auto clock = make_system_clock();
      waiting = gettid();
      try {
        (void)make_shared_memory_communicator(options, *clock);
      } catch (const CollectiveError& problem) {
        error = problem.what();
      }
    });
    while (waiting == 0) std::this_thread::yield();
    wait_until_asleep(waiting);
    stop.request_stop();
    member.join();
    EXPECT_THAT(error, HasSubstr("stopped while waiting"));
  }
}

/// Names in /dev/shm and of this user's abstract sockets that hold `tag`.
std::vector<std::string> left_behind(const std::string& tag) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.push_back(entry.path().filename());
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) names.push_back(line);
  std::erase_if(names, [&](const std::string& name) { return name.find(tag) == std::string::npos && name.find("troupe-communicator") == std::string::npos; });
  return names;
}

TEST(Death, AKilledMembersPeersAreFreedByAnAbortAndNothingIsLeftBehind) {
  Setting setting;
  setting.tag = fresh_tag();
  const auto members = run(
      Kind::processes, 3,
      [](Communicator& group) {
        reduce(group, 300, 300);
        if (group.rank() == 2) kill(getpid(), SIGKILL);
        std::jthread supervisor;
        if (group.rank() == 0) {
          const int blocked = gettid();
          supervisor = std::jthread([&group, blocked] {
            wait_until_asleep(blocked);
            group.abort("rank 2 was killed by signal 9");
          });
        }
        for (;;) reduce(group, 300, 300);
        return std::vector<std::byte>{};
      },
      setting);
  EXPECT_THAT(members[0].error, HasSubstr("rank 2 was killed by signal 9"));
  EXPECT_THAT(members[1].error, HasSubstr("rank 2 was killed by signal 9"));
  EXPECT_TRUE(members[2].died);
  EXPECT_THAT(left_behind(setting.tag), ::testing::IsEmpty());
}

TEST(Death, AMemberKilledWhileItWaitsForTheOthersLeavesNothingAndItsTagCanBeUsedAgain) {
  const std::string tag = fresh_tag();
  const pid_t lonely = fork();
  if (lonely == 0) {
    const auto clock = make_system_clock();
    (void)make_shared_memory_communicator({.tag = tag, .rank = 0, .size = 2}, *clock);
    _exit(0);
  }
  while (left_behind(tag).empty()) std::this_thread::yield();  // it listens
  kill(lonely, SIGKILL);
  waitpid(lonely, nullptr, 0);
  EXPECT_THAT(left_behind(tag), ::testing::IsEmpty());
  Setting setting;
  setting.tag = tag;
  for (const auto& member : run(
           Kind::processes, 2,
           [](Communicator& group) {
             gather(group, 8);
             return std::vector<std::byte>(1);
           },
           setting))
    EXPECT_EQ(member.error, "");
}

TEST(Options, ThatMakeNoSenseAreRefused) {
  const auto clock = make_system_clock();
  EXPECT_THROW((void)make_shared_memory_communicator({.tag = "t", .rank = 2, .size = 2}, *clock), std::invalid_argument);
  EXPECT_THROW((void)make_shared_memory_communicator({.tag = "", .rank = 0, .size = 1}, *clock), std::invalid_argument);
  EXPECT_THROW((void)make_shared_memory_communicator({.tag = "t", .rank = 0, .size = 1, .chunk_bytes = 0}, *clock), std::invalid_argument);
}

}  // namespace
}  // namespace troupe::testing
