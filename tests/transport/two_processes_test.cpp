#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <string>

#include "tests/transport/node.hpp"
#include "tests/transport/peer_process.hpp"

namespace troupe::test {
namespace {

constexpr Rank tester{0}, peer{1};
constexpr std::size_t mebibyte = std::size_t{1} << 20;

void meet(Node& node, PeerProcess& process) {
  const std::string address = from_hex(process.read_line());
  process.write_line(to_hex(node.transport().address()));
  const auto connected = node.transport().connect(peer, Incarnation{0}, address);
  ASSERT_TRUE(connected.ok()) << connected.error().message;
}

std::uint64_t all_refused(Transport& transport) {
  std::uint64_t sum = 0;
  for (const auto count : transport.counters().refused) sum += count;
  return sum;
}

class TwoProcesses : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] std::string tls() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Over, TwoProcesses, testing::Values("sysv,cma,tcp", "tcp"),
                         [](const auto& test) { return std::string(test.param) == "tcp" ? "Tcp" : "SharedMemory"; });

TEST_P(TwoProcesses, SmallLettersArriveInTheOrderSent) {
  PeerProcess process("source", {tls(), "2000", "0", "0"});
  Node node(tester, tls());
  meet(node, process);
  ASSERT_TRUE(node.wait([](const Node& n) { return n.letters.size() == 2000; }));
  for (std::size_t i = 0; i < node.letters.size(); ++i) ASSERT_EQ(node.letters[i]->envelope().getWhere().getStep(), i + 1);
  EXPECT_EQ(all_refused(node.transport()), 0U);
}

TEST_P(TwoProcesses, PayloadsArriveIntactInTheReceiversSlots) {
  PeerProcess process("sink", {tls(), "2", std::to_string(16 * mebibyte), "1"});
  Node node(tester, tls());
  meet(node, process);
  std::size_t before = 0;  // payloads that go by UCX until the peer has mapped the memory, which may take it a while
  for (; tls() != "tcp" && node.transport().counters().payload_bytes_shared == 0; ++before) {
    ASSERT_LT(before, 10000U) << "the memory is never used";
    node.send(peer, batch(tester, peer, 1000, 16 * mebibyte));
    EXPECT_EQ(process.read_line(), "1000 payload intact");
  }
  ASSERT_TRUE(node.wait([&](const Node& n) { return n.sent == before; }));
  for (std::uint64_t step = 1; step <= 10; ++step) {
    node.send(peer, batch(tester, peer, step, 16 * mebibyte));
    node.send(peer, batch(tester, peer, 100 + step));
  }
  ASSERT_TRUE(node.wait([&](const Node& n) { return n.sent + n.failed == before + 20; }));
  EXPECT_EQ(node.failed, 0U);
  std::vector<std::string> payloads, plain;
  for (int i = 0; i < 20; ++i) {
    const std::string line = process.read_line();
    (line.find("payload") != std::string::npos ? payloads : plain).push_back(line);
  }
  ASSERT_EQ(payloads.size(), 10U);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(payloads[i], std::to_string(i + 1) + " payload intact");
    EXPECT_EQ(plain[i], std::to_string(101 + i) + " plain intact");
  }
  EXPECT_EQ(node.transport().counters().payload_bytes_sent, (10 + before) * 16 * mebibyte);
  const auto shared = node.transport().counters().payload_bytes_shared;
  EXPECT_EQ(shared >= 160 * mebibyte, tls() != "tcp") << shared;
  EXPECT_EQ(node.transport().counters().in_flight_bytes, 0U);
}

TEST_P(TwoProcesses, APayloadWaitsAtItsSenderForASlotAndHoldsNothingElseUp) {
  PeerProcess process("source", {tls(), "3", std::to_string(mebibyte), "0"});
  Node node(tester, tls(), 1, mebibyte);
  meet(node, process);
  ASSERT_TRUE(node.wait([](const Node& n) { return n.letters.size() == 1; }));
  const auto two_wait = [&](const Node&) { return node.transport().counters().parked == 2; };
  while (!node.wait(two_wait, std::chrono::milliseconds(5))) {}
  EXPECT_EQ(node.letters.size(), 1U);
  for (std::size_t next = 2; next <= 3; ++next) {
    EXPECT_TRUE(is_batch_payload(node.letters.back()->lease().bytes(), next - 1));
    std::vector<std::shared_ptr<const Parcel>> read;
    ASSERT_TRUE(node.wait([&](const Node& n) {
      read = n.letters;
      node.letters.clear();
      return true;
    }));
    read.clear();
    ASSERT_TRUE(node.wait([](const Node& n) { return n.letters.size() == 1; }));
  }
  EXPECT_TRUE(is_batch_payload(node.letters.back()->lease().bytes(), 3));
  EXPECT_EQ(node.slots_used_at_once, 1U);
}

TEST_P(TwoProcesses, APayloadLongerThanItsSlotIsDroppedAndCountedAndWhatFollowsArrives) {
  PeerProcess process("sink", {tls(), "1", std::to_string(mebibyte), "1"});
  Node node(tester, tls());
  meet(node, process);
  for (const std::size_t payload : {4 * mebibyte, mebibyte + 8, mebibyte}) {
    node.send(peer, batch(tester, peer, payload, payload));
    node.send(peer, batch(tester, peer, payload + 1));
  }
  ASSERT_TRUE(node.wait([](const Node& n) { return n.sent + n.failed == 6; })) << node.sent << " sent, " << node.failed << " failed";
  std::set<std::string> said;
  for (int i = 0; i < 4; ++i) said.insert(process.read_line());
  EXPECT_EQ(said, (std::set<std::string>{"4194305 plain intact", "1048585 plain intact", "1048577 plain intact", "1048576 payload intact"}));
  process.write_line("refused");
  const std::string counts = process.read_line();  // by reason; payload is the last
  EXPECT_TRUE(counts.ends_with(" 2 ")) << counts;
  EXPECT_EQ(node.transport().counters().in_flight_bytes, 0U);
  EXPECT_EQ(node.close(peer, CloseMode::flush), "");
}

TEST_P(TwoProcesses, APayloadThatWaitedForASlotWhichIsTooShortIsDroppedToo) {
  PeerProcess process("source", {tls(), "3", std::to_string(mebibyte), "1", std::to_string(2 * mebibyte)});
  Node node(tester, tls(), 1, mebibyte);
  meet(node, process);
  ASSERT_TRUE(node.wait([](const Node& n) { return n.letters.size() == 1; }));
  const auto two_wait = [&](const Node&) { return node.transport().counters().parked == 2; };
  while (!node.wait(two_wait, std::chrono::milliseconds(5))) {}
  std::vector<std::shared_ptr<const Parcel>> read;
  ASSERT_TRUE(node.wait([&](const Node&) {
    read.swap(node.letters);
    return true;
  }));
  read.clear();
  ASSERT_TRUE(node.wait([](const Node& n) { return n.left.size() == 1; })) << "the sender's close waits for what was dropped";
  EXPECT_EQ(node.transport().counters().refused[static_cast<std::size_t>(FrameProblem::payload)], 2U);
  EXPECT_TRUE(node.letters.empty());
  EXPECT_EQ(process.read_line(), "closed ");
}

TEST_P(TwoProcesses, ADeadIdlePeerIsNoticedThoughNothingIsSent) {
  PeerProcess process("sink", {tls(), "0", "0", "0"});
  Node node(tester, tls());
  meet(node, process);
  node.send(peer, batch(tester, peer, 1));
  ASSERT_TRUE(node.wait([](const Node& n) { return n.sent == 1; }));
  process.signal(SIGKILL);
  process.wait();
  EXPECT_TRUE(node.wait([](const Node& n) { return n.lost.size() == 1; }));
  node.send(peer, batch(tester, peer, 2));
  ASSERT_TRUE(node.wait([](const Node& n) { return n.failed == 1; }));
  EXPECT_NE(node.errors.back().find("cannot send BatchReady to rank 1: it was lost"), std::string::npos) << node.errors.back();
  EXPECT_EQ(node.close(peer, CloseMode::flush), "");
}

TEST_P(TwoProcesses, APeerThatDiesInLargeSendsFailsThemAll) {
  PeerProcess process("sink", {tls(), "1", std::to_string(32 * mebibyte), "1"});
  Node node(tester, tls());
  meet(node, process);
  const auto big = batch(tester, peer, 1, 32 * mebibyte);
  for (int i = 0; i < 16; ++i) node.send(peer, big);
  EXPECT_EQ(process.read_line(), "1 payload intact");
  process.signal(SIGKILL);
  for (std::uint64_t i = 0; i < 200; ++i) node.send(peer, batch(tester, peer, i));
  process.wait();
  EXPECT_TRUE(node.wait([](const Node& n) { return n.lost.size() == 1; }));
  EXPECT_TRUE(node.wait([](const Node& n) { return n.sent + n.failed == 216; })) << node.sent << " sent, " << node.failed << " failed";
  EXPECT_GT(node.failed, 0U);
  EXPECT_EQ(node.transport().counters().in_flight_bytes, 0U);
  EXPECT_EQ(node.close(peer, CloseMode::force), "");
}

TEST_P(TwoProcesses, APeerThatDiesWhileWeReceiveGivesTheSlotBack) {
  PeerProcess process("source", {tls(), "64", std::to_string(32 * mebibyte), "0"});
  Node node(tester, tls(), 2, 32 * mebibyte, [](Node&, const std::shared_ptr<const Parcel>&) {});
  meet(node, process);
  ASSERT_TRUE(node.wait([](const Node& n) { return n.letters.size() >= 3; }));
  process.signal(SIGKILL);
  process.wait();
  EXPECT_TRUE(node.wait([](const Node& n) { return n.lost.size() == 1; }));
  EXPECT_EQ(node.close(peer, CloseMode::flush), "");
  // Both slots are usable by the peer's next incarnation.
  PeerProcess next("source", {tls(), "8", std::to_string(32 * mebibyte), "0"});
  const auto before = node.letters.size();
  meet(node, next);
  EXPECT_TRUE(node.wait([&](const Node& n) { return n.letters.size() == before + 8; }));
  EXPECT_TRUE(node.wait([](const Node& n) { return n.slots_in_use() == 0; }));
}

TEST_P(TwoProcesses, TheLastLetterBeforeACleanCloseAlwaysArrives) {
  const char* const wanted = std::getenv("TROUPE_CLEAN_CLOSES");  // each over either transport; the long tests ask for more
  const int runs = wanted != nullptr ? std::stoi(wanted) : 25;
  for (int run = 0; run < runs; ++run) {
    PeerProcess process("source", {tls(), "2", run % 2 == 0 ? "0" : "65536", "1"});
    Node node(tester, tls(), 2, 65536);
    meet(node, process);
    EXPECT_EQ(process.read_line(), "closed ");
    EXPECT_EQ(process.wait(), 0);
    ASSERT_TRUE(node.wait([](const Node& n) { return n.letters.size() == 2 && n.left.size() == 1; })) << "run " << run << ": " << node.letters.size();
    EXPECT_TRUE(node.lost.empty()) << node.lost.front();
    EXPECT_EQ(node.close(peer, CloseMode::flush), "");
  }
}

TEST_P(TwoProcesses, AForcedCloseAnswersLettersThatTheReceiverNeverTook) {
  PeerProcess process("sink", {tls(), "0", "0", "0"});  // no slots: payloads wait
  Node node(tester, tls());
  meet(node, process);
  for (std::uint64_t step = 1; step <= 4; ++step) node.send(peer, batch(tester, peer, step, mebibyte));
  node.send(peer, batch(tester, peer, 5));
  ASSERT_TRUE(node.wait([](const Node& n) { return n.sent == 1; }));
  EXPECT_NE(node.close(peer, CloseMode::flush, std::chrono::milliseconds(200)).find("did not take everything in"), std::string::npos);
  EXPECT_TRUE(node.wait([](const Node& n) { return n.failed == 4; })) << node.failed;
  EXPECT_EQ(node.transport().counters().in_flight_bytes, 0U);
}

TEST_P(TwoProcesses, BothMayCloseAtOnce) {
  PeerProcess process("sink", {tls(), "0", "0", "0"});
  Node node(tester, tls());
  meet(node, process);
  for (std::uint64_t i = 1; i <= 10; ++i) node.send(peer, batch(tester, peer, i));
  process.write_line("close");
  EXPECT_EQ(node.close(peer, CloseMode::flush), "");
  EXPECT_EQ(process.read_line(), "closed ");
  EXPECT_TRUE(node.lost.empty());
}

TEST_P(TwoProcesses, AnIdleTransportUsesLessThanOnePercentOfACore) {
  PeerProcess process("sink", {tls(), "0", "0", "0"});
  Node node(tester, tls());
  meet(node, process);
  node.send(peer, batch(tester, peer, 1));
  ASSERT_TRUE(node.wait([](const Node& n) { return n.sent == 1; }));
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + 1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  double least = 1;
  for (int second = 0; second < 10 && least >= 0.01; ++second) {  // what the meeting leaves to be done may fall into the first
    const double before = used();
    EXPECT_FALSE(node.wait([](const Node&) { return false; }, std::chrono::seconds(1)));  // the second over which it is measured
    least = std::min(least, used() - before);
  }
  EXPECT_LT(least, 0.01);
}

TEST_P(TwoProcesses, MoreThanTheLimitInFlightIsRefusedAndLaterAcceptedAgain) {
  PeerProcess process("sink", {tls(), "1", std::to_string(mebibyte), "1"});
  Node node(tester, tls(), 0, 0, {}, 4 * mebibyte);
  meet(node, process);
  process.signal(SIGSTOP);  // nothing arrives meanwhile, however long these letters take to write
  for (std::uint64_t step = 1; step <= 64; ++step) node.send(peer, batch(tester, peer, step, mebibyte));
  EXPECT_TRUE(node.wait([](const Node& n) { return n.failed >= 60; }));
  process.signal(SIGCONT);
  ASSERT_TRUE(node.wait([](const Node& n) { return n.sent + n.failed == 64; }));
  EXPECT_GE(node.sent, 3U);
  EXPECT_GT(node.failed, 0U);
  EXPECT_NE(node.errors.front().find("the limit is 4194304"), std::string::npos) << node.errors.front();
  EXPECT_LE(node.transport().counters().in_flight_peak, 4 * mebibyte);
  const auto sent = node.sent;
  node.send(peer, batch(tester, peer, 65, mebibyte));
  EXPECT_TRUE(node.wait([&](const Node& n) { return n.sent == sent + 1; }));
}

TEST_P(TwoProcesses, ALetterTooLongForAFrameIsRefusedByName) {
  PeerProcess process("sink", {tls(), "0", "0", "0"});
  Node node(tester, tls());
  meet(node, process);
  const std::string text(9000, 'x');
  node.send(peer, write<schema::FaultReport>({.to = {peer, ActorKind::supervisor}, .from = {tester, ActorKind::compute}, .where = {}, .operation = {}},
                                             [&](auto body) { body.setCause(text.c_str()); }));
  ASSERT_TRUE(node.wait([](const Node& n) { return n.failed == 1; }));
  EXPECT_NE(node.errors.front().find("FaultReport"), std::string::npos) << node.errors.front();
  EXPECT_NE(node.errors.front().find("the limit between processes is 8000"), std::string::npos) << node.errors.front();
}

}  // namespace
}  // namespace troupe::test
