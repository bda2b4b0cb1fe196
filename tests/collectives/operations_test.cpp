#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "tests/collectives/members.hpp"

namespace troupe::testing {
namespace {

struct Case {
  Kind kind;
  std::uint32_t size;
};
std::string name_of(const ::testing::TestParamInfo<Case>& info) { return std::to_string(info.param.size) + testing::name_of(info.param.kind); }

/// Elements: none, one, odd, about a chunk of 4096 bytes, and many chunks.
const std::vector<std::size_t> counts{0, 1, 7, 1023, 1024, 1025, 30011};

class Operations : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] static std::uint32_t size() { return GetParam().size; }
  /// Runs and returns the members' results; each test's expectations follow.
  static std::vector<std::vector<std::byte>> results(const Body& body) {
    std::vector<std::vector<std::byte>> all;
    for (auto& member : run(GetParam().kind, size(), body)) {
      EXPECT_EQ(member.error, "");
      EXPECT_FALSE(member.died);
      all.push_back(std::move(member.bytes));
    }
    return all;
  }
};

std::vector<std::byte> part(std::uint32_t rank, std::size_t bytes, unsigned salt) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i * 31 + rank * 101 + salt * 7 + i / 251);
  return values;
}

TEST_P(Operations, AllGatherPutsEveryMembersPartInItsPlaceForEachPiece) {
  const auto gather = [](Communicator& group) {
    std::vector<std::byte> all;
    for (const std::size_t bytes : counts) {
      const std::vector<std::size_t> sizes{bytes, 0, 3, bytes * 2 + 1};
      std::vector<std::vector<std::byte>> buffers;
      std::vector<GatherPiece> pieces;
      for (unsigned i = 0; i < sizes.size(); ++i) {
        auto& buffer = buffers.emplace_back(sizes[i] * group.size());
        const auto own = part(group.rank(), sizes[i], i);
        if (!own.empty()) std::memcpy(buffer.data() + group.rank() * sizes[i], own.data(), own.size());
        pieces.push_back({buffer.data(), sizes[i]});
      }
      Stream stream;
      group.all_gather(stream, pieces);
      for (const auto& buffer : buffers) all.insert(all.end(), buffer.begin(), buffer.end());
    }
    return all;
  };
  std::vector<std::byte> expected;
  for (const std::size_t bytes : counts) {
    const std::vector<std::size_t> sizes{bytes, 0, 3, bytes * 2 + 1};
    for (unsigned i = 0; i < sizes.size(); ++i) {
      for (std::uint32_t rank = 0; rank < size(); ++rank) {
        const auto one = part(rank, sizes[i], i);
        expected.insert(expected.end(), one.begin(), one.end());
      }
    }
  }
  for (const auto& bytes : results(gather)) EXPECT_TRUE(bytes == expected);
}

TEST_P(Operations, ReduceScatterSumsInRankOrderAndAddsToTheOutputWhereAsked) {
  const auto scatter = [](Communicator& group) {
    std::vector<float> all;
    for (const std::size_t count : counts) {
      const auto first = awkward_values<float>(group.rank(), count * group.size());
      const auto second = awkward_values<float>(group.rank() + 50, 5 * group.size());
      std::vector<float> first_out(count, 0.25F), second_out(5, 77.0F);
      const std::vector<ReducePiece> pieces{{first.data(), first_out.data(), count, true}, {second.data(), second_out.data(), 5}};
      Stream stream;
      group.reduce_scatter(stream, pieces);
      all.insert(all.end(), first_out.begin(), first_out.end());
      all.insert(all.end(), second_out.begin(), second_out.end());
    }
    return bytes_of(all);
  };
  const auto members = results(scatter);
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    std::vector<float> expected;
    const auto add = [&](std::uint32_t salt, std::size_t count, bool accumulate) {
      std::vector<std::vector<float>> inputs;
      for (std::uint32_t peer = 0; peer < size(); ++peer) inputs.push_back(awkward_values<float>(peer + salt, count * size()));
      for (std::size_t i = 0; i < count; ++i) {
        float sum = inputs[0][rank * count + i];
        for (std::uint32_t peer = 1; peer < size(); ++peer) sum += inputs[peer][rank * count + i];
        expected.push_back(accumulate ? 0.25F + sum : sum);
      }
    };
    for (const std::size_t count : counts) {
      add(0, count, true);
      add(50, 5, false);
    }
    EXPECT_TRUE(members[rank] == bytes_of(expected)) << "rank " << rank;
  }
}

template <class T>
std::vector<std::byte> reduced(std::uint32_t size, Reduction reduction) {
  std::vector<T> all;
  for (const std::size_t count : counts) {
    std::vector<T> total = awkward_values<T>(0, count);
    for (std::uint32_t rank = 1; rank < size; ++rank) {
      const auto values = awkward_values<T>(rank, count);
      for (std::size_t i = 0; i < count; ++i) total[i] = reduction == Reduction::sum ? total[i] + values[i] : std::max(total[i], values[i]);
    }
    all.insert(all.end(), total.begin(), total.end());
  }
  return bytes_of(all);
}

template <class T>
Body reduce_all(DType dtype, Reduction reduction) {
  return [=](Communicator& group) {
    std::vector<T> all;
    for (const std::size_t count : counts) {
      auto values = awkward_values<T>(group.rank(), count);
      Stream stream;
      group.all_reduce(stream, TensorView::contiguous(values.data(), dtype, {static_cast<std::int64_t>(count)}), reduction);
      all.insert(all.end(), values.begin(), values.end());
    }
    return bytes_of(all);
  };
}

TEST_P(Operations, AllReduceOfFloatsSumsInRankOrder) {
  for (const auto& bytes : results(reduce_all<float>(DType::f32, Reduction::sum))) EXPECT_TRUE(bytes == reduced<float>(size(), Reduction::sum));
}
TEST_P(Operations, AllReduceOfDoublesSumsInRankOrder) {
  for (const auto& bytes : results(reduce_all<double>(DType::f64, Reduction::sum))) EXPECT_TRUE(bytes == reduced<double>(size(), Reduction::sum));
}
TEST_P(Operations, AllReduceFindsTheLargest) {
  for (const auto& bytes : results(reduce_all<float>(DType::f32, Reduction::max))) EXPECT_TRUE(bytes == reduced<float>(size(), Reduction::max));
  for (const auto& bytes : results(reduce_all<double>(DType::f64, Reduction::max))) EXPECT_TRUE(bytes == reduced<double>(size(), Reduction::max));
}

TEST_P(Operations, TheLargestOfNumbersAndANanIsNanOnAllMembers) {
  const auto members = results([](Communicator& group) {
    std::vector<float> values{1.0F, static_cast<float>(group.rank())};
    if (group.rank() == group.size() - 1) values[0] = std::numeric_limits<float>::quiet_NaN();
    Stream stream;
    group.all_reduce(stream, TensorView::contiguous(values.data(), DType::f32, {2}), Reduction::max);
    return bytes_of(values);
  });
  for (const auto& bytes : members) {
    ASSERT_EQ(bytes.size(), 2 * sizeof(float));
    float values[2];
    std::memcpy(values, bytes.data(), sizeof values);
    EXPECT_TRUE(std::isnan(values[0]));
    EXPECT_EQ(values[1], static_cast<float>(size() - 1));
  }
}

TEST_P(Operations, BroadcastCopiesTheRootsBytesWhateverTheRoot) {
  const auto members = results([](Communicator& group) {
    std::vector<std::byte> all;
    for (std::uint32_t root = 0; root < group.size(); ++root) {
      for (const std::size_t bytes : counts) {
        auto data = part(group.rank(), bytes, 1);
        Stream stream;
        group.broadcast(stream, data, root);
        all.insert(all.end(), data.begin(), data.end());
      }
    }
    return all;
  });
  std::vector<std::byte> expected;
  for (std::uint32_t root = 0; root < size(); ++root) {
    for (const std::size_t bytes : counts) {
      const auto data = part(root, bytes, 1);
      expected.insert(expected.end(), data.begin(), data.end());
    }
  }
  for (const auto& bytes : members) EXPECT_TRUE(bytes == expected);
}

TEST_P(Operations, AllToAllTransposesTheParts) {
  const auto members = results([](Communicator& group) {
    std::vector<std::byte> all;
    for (const std::size_t bytes : counts) {
      std::vector<std::byte> input, output(bytes * group.size());
      for (std::uint32_t to = 0; to < group.size(); ++to) {
        const auto one = part(group.rank(), bytes, to);
        input.insert(input.end(), one.begin(), one.end());
      }
      Stream stream;
      group.all_to_all(stream, input, output);
      all.insert(all.end(), output.begin(), output.end());
    }
    return all;
  });
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    std::vector<std::byte> expected;
    for (const std::size_t bytes : counts) {
      for (std::uint32_t from = 0; from < size(); ++from) {
        const auto one = part(from, bytes, rank);
        expected.insert(expected.end(), one.begin(), one.end());
      }
    }
    EXPECT_TRUE(members[rank] == expected) << "rank " << rank;
  }
}

TEST_P(Operations, CallsWithoutPiecesReturn) {
  const auto members = results([](Communicator& group) {
    Stream stream;
    group.all_gather(stream, {});
    group.reduce_scatter(stream, {});
    group.broadcast(stream, {}, 0);
    group.all_to_all(stream, {}, {});
    return std::vector<std::byte>(1);
  });
  for (const auto& bytes : members) EXPECT_EQ(bytes.size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(HostMemory, Operations,
                         ::testing::Values(Case{Kind::threads, 1}, Case{Kind::threads, 2}, Case{Kind::threads, 3}, Case{Kind::threads, 4},
                                           Case{Kind::threads, 8}, Case{Kind::processes, 1}, Case{Kind::processes, 2}, Case{Kind::processes, 4}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Transport, Operations,
                         ::testing::Values(Case{Kind::loopback, 1}, Case{Kind::loopback, 2}, Case{Kind::loopback, 3}, Case{Kind::loopback, 5},
                                           Case{Kind::ucx, 2}, Case{Kind::ucx, 4}),
                         name_of);

TEST(Repeats, ThreadsAndProcessesAndTransportsAndOtherChunkSizesGiveTheSameBits) {
  for (const std::uint32_t size : {2U, 4U}) {
    const auto once = run(Kind::threads, size, train_a_little);
    for (const auto& member : once) EXPECT_TRUE(member.error.empty() && member.bytes == once[0].bytes) << member.error;
    Setting coarse;
    coarse.chunk_bytes = 1 << 16;
    coarse.chunks = 1;
    for (const auto& other :
         {run(Kind::threads, size, train_a_little), run(Kind::processes, size, train_a_little), run(Kind::threads, size, train_a_little, coarse),
          run(Kind::loopback, size, train_a_little), run(Kind::ucx, size, train_a_little, coarse)}) {
      for (const auto& member : other) {
        EXPECT_EQ(member.error, "");
        EXPECT_TRUE(member.bytes == once[0].bytes) << size << " members";
      }
    }
  }
}

}  // namespace
}  // namespace troupe::testing
