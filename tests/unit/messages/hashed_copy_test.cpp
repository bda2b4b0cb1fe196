#include "messages/hashed_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "messages/frame.hpp"

namespace troupe {
namespace {

std::vector<std::byte> bytes_of(std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::uint32_t state = 12345;
  for (auto& byte : bytes) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

void expect_same(std::size_t total, std::size_t piece) {
  const auto from = bytes_of(total);
  for (const auto way : {&HashedCopy::copy, &HashedCopy::copy_to_shared}) {
    for (const Stores stores : {Stores::through_cache, Stores::beside_cache}) {
      std::vector<std::byte> memory(total + 64);
      const std::span to(memory.data() + 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64, total);
      HashedCopy copy(total);
      for (std::size_t done = 0; done < total; done += piece)
        (copy.*way)(to.data() + done, std::span(from).subspan(done, std::min(piece, total - done)), stores);
      EXPECT_EQ(copy.hash(), payload_hash(from)) << total << " bytes in pieces of " << piece;
      EXPECT_TRUE(std::ranges::equal(to, from)) << total << " bytes in pieces of " << piece;
    }
  }
}

TEST(HashedCopy, GivesTheHashOfTheWholeForEveryLength) {
  for (std::size_t total = 1; total <= 2400; ++total) expect_same(total, 1024);
}

TEST(HashedCopy, GivesTheSameForWhateverPieces) {
  for (const std::size_t total : {64U, 241U, 1024U, 1088U, 1089U, 2048U, 65536U, 1000003U}) {
    for (const std::size_t piece : {1U, 63U, 64U, 1023U, 1024U, 1025U, 32768U, 40000U}) {
      if (total / piece < 100000) expect_same(total, piece);
    }
  }
}

TEST(HashedCopy, OfNothingIsZero) { EXPECT_EQ(HashedCopy(0).hash(), payload_hash({})); }

}  // namespace
}  // namespace troupe
