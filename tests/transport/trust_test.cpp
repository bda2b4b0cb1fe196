#include <gtest/gtest.h>

#include "tests/transport/node.hpp"
#include "tests/transport/peer_process.hpp"

namespace troupe::test {
namespace {

constexpr Rank tester{0}, peer{1};

TEST(Trust, ReplayedFlippedAndForeignFramesOverUcxAreDroppedAndCounted) {
  PeerProcess process("forger", {"sysv,cma,tcp"});
  Node node(tester, "sysv,cma,tcp");
  const std::string address = from_hex(process.read_line());
  process.write_line(to_hex(node.transport().address()));
  ASSERT_TRUE(node.transport().connect(peer, Incarnation{0}, address).ok());
  ASSERT_TRUE(node.wait([](const Node& n) { return n.letters.size() >= 2; }));
  const auto flipped = std::stoull(process.read_line());
  EXPECT_EQ(node.letters[0]->envelope().getWhere().getStep(), 1U);
  EXPECT_EQ(node.letters[1]->envelope().getWhere().getStep(), 2U);
  EXPECT_EQ(node.letters.size(), 2U);
  const auto refused = node.transport().counters().refused;
  const auto of = [&](FrameProblem problem) { return refused[static_cast<std::size_t>(problem)]; };
  EXPECT_EQ(of(FrameProblem::sequence), 1U);
  EXPECT_EQ(of(FrameProblem::job), 1U);
  EXPECT_EQ(of(FrameProblem::incarnation), 1U);
  // A flipped byte of the sender's rank makes it a frame of an unknown peer: held back for a connect that never comes, and never opened.
  const std::uint64_t of_unknown_peers = 4;
  EXPECT_EQ(of(FrameProblem::mac) + of(FrameProblem::magic), flipped - of_unknown_peers);
}

TEST(Trust, LettersSentBeforeTheReceiverKnowsTheSenderWaitForItsConnect) {
  PeerProcess process("source", {"sysv,cma,tcp", "20", "65536", "0"});
  Node node(tester, "sysv,cma,tcp", 2, 65536);
  const std::string address = from_hex(process.read_line());
  process.write_line(to_hex(node.transport().address()));
  EXPECT_FALSE(node.wait([](const Node& n) { return !n.letters.empty(); }, std::chrono::milliseconds(300)));
  ASSERT_TRUE(node.transport().connect(peer, Incarnation{0}, address).ok());
  ASSERT_TRUE(node.wait([](const Node& n) { return n.letters.size() == 2; }));
  EXPECT_TRUE(is_batch_payload(node.letters[0]->lease().bytes(), 1));
  EXPECT_TRUE(is_batch_payload(node.letters[1]->lease().bytes(), 2));
}

TEST(Trust, FramesOfAnEarlierLifeOfAPeerAreNotTakenForItsPresentOne) {
  PeerProcess process("source", {"sysv,cma,tcp", "5", "0", "0"});  // incarnation 0
  Node node(tester, "sysv,cma,tcp");
  const std::string address = from_hex(process.read_line());
  process.write_line(to_hex(node.transport().address()));
  ASSERT_TRUE(node.transport().connect(peer, Incarnation{1}, address).ok());
  const auto all_refused = [&](const Node&) { return node.transport().counters().refused[static_cast<std::size_t>(FrameProblem::incarnation)] >= 5; };
  for (int i = 0; i < 2000 && !node.wait(all_refused, std::chrono::milliseconds(5)); ++i) {}
  EXPECT_TRUE(node.wait(all_refused, Nanos{0}));
  EXPECT_TRUE(node.letters.empty());
}

}  // namespace
}  // namespace troupe::test
