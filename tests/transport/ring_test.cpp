#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "src/transport/ring_payloads.hpp"

namespace troupe::test {
namespace {

std::vector<std::byte> bytes_of(std::size_t count, unsigned seed) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 2654435761U + seed * 97U) >> 11U);
  return bytes;
}

/// Both ends of a ring in this process, and what they said.
class Ring : public testing::Test {
 protected:
  Ring() : name_("troupe-test-" + std::to_string(getpid())) {
    auto made = SharedRing::make(name_);
    auto found = SharedRing::find(ProcessOnHost::self(), name_);
    EXPECT_TRUE(made.ok() && found.ok()) << (found.ok() ? "" : found.error().message);
    header_ = &(*found)->header();
    memory_ = (*found)->data(0).data();
    sender = std::make_unique<RingSender>(std::move(*made), *clock_);
    receiver = std::make_unique<RingReceiver>(std::move(*found));
  }
  RingStep send() {
    return sender->advance({.written = [&](std::uint64_t bytes, std::uint64_t hash) { hashes.emplace_back(bytes, hash); },
                            .taken = [&](std::uint64_t sequence) { taken.push_back(sequence); }});
  }
  RingStep receive() {
    return receiver->advance([&](std::uint64_t sequence, bool intact) { (intact ? arrived : torn).push_back(sequence); });
  }
  /// Until nothing moves; hashes are passed on as the transport's frames would.
  void run() {
    for (bool moved = true; moved;) {
      moved = send() == RingStep::moved;
      for (const auto& [bytes, hash] : hashes) EXPECT_TRUE(receiver->expect(bytes, hash));
      hashes.clear();
      moved = receive() == RingStep::moved || moved;
    }
  }
  [[nodiscard]] SharedRing::Header& header() const { return *header_; }
  [[nodiscard]] std::byte* memory() const { return memory_; }

  const std::string name_;
  std::unique_ptr<RingSender> sender;
  std::unique_ptr<RingReceiver> receiver;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> hashes;
  std::vector<std::uint64_t> taken, arrived, torn;

 private:
  const std::unique_ptr<Clock> clock_ = make_system_clock();
  SharedRing::Header* header_ = nullptr;
  std::byte* memory_ = nullptr;
};

TEST_F(Ring, CarriesPayloadsOfAnyLengthInTheOrderGranted) {
  const std::vector<std::size_t> lengths{1, 4095, 32768, 32769, 1000003, 4 << 20, 64};
  for (unsigned i = 0; i < lengths.size(); ++i) {
    const auto payload = bytes_of(lengths[i], i);
    std::vector<std::byte> slot(payload.size() + 1, std::byte{0xEE});
    sender->add(i + 1, payload);
    ASSERT_TRUE(receiver->may_grant());
    receiver->grant(i + 1, std::span(slot).first(payload.size()));
    run();
    EXPECT_EQ(arrived.size(), i + 1);
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), slot.begin())) << lengths[i];
    EXPECT_EQ(slot.back(), std::byte{0xEE}) << "nothing behind the slot is written";
  }
  EXPECT_EQ(taken, (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(sender->empty());
}

TEST_F(Ring, ASlotIsNamedOnlyWhenThePayloadBeforeIsAllButThrough) {
  const auto payload = bytes_of(2 << 20, 1);
  std::vector<std::byte> slot(payload.size());
  sender->add(7, payload);
  receiver->grant(7, slot);
  EXPECT_FALSE(receiver->may_grant());
  EXPECT_EQ(send(), RingStep::moved);
  EXPECT_FALSE(receiver->may_grant());
  while (!receiver->may_grant()) {
    send();
    if (!receiver->may_grant()) receive();
  }
  EXPECT_TRUE(arrived.empty());
  EXPECT_EQ(hashes.size(), 1U) << "the sender has written it all";
}

TEST_F(Ring, ARefusedPayloadIsTakenWithoutACopy) {
  const auto payload = bytes_of(100000, 1);
  sender->add(3, payload);
  receiver->refuse(3);
  run();
  EXPECT_EQ(taken, std::vector<std::uint64_t>{3});
  EXPECT_EQ(header().written.load(), 0U);
}

TEST_F(Ring, BytesThatChangeOnTheWayAreNoticed) {
  const auto payload = bytes_of(100000, 1);
  std::vector<std::byte> slot(payload.size());
  sender->add(3, payload);
  receiver->grant(3, slot);
  send();
  memory()[50000] ^= std::byte{1};
  run();
  EXPECT_EQ(torn, std::vector<std::uint64_t>{3});
  EXPECT_TRUE(arrived.empty());
}

TEST_F(Ring, AHashOfAnotherLengthOrOfNoPayloadIsNotTaken) {
  std::vector<std::byte> slot(1000);
  EXPECT_FALSE(receiver->expect(1000, 1));
  receiver->grant(3, slot);
  EXPECT_FALSE(receiver->expect(999, 1));
  EXPECT_TRUE(receiver->expect(1000, 1));
  EXPECT_FALSE(receiver->expect(1000, 1)) << "twice";
}

TEST_F(Ring, ASenderThatClaimsMoreThanTheRingHoldsIsBroken) {
  std::vector<std::byte> slot(1 << 20);
  receiver->grant(1, slot);
  header().written = SharedRing::data_bytes + 1;
  EXPECT_EQ(receive(), RingStep::broken);
}

TEST_F(Ring, AReceiverThatTakesWhatWasNotWrittenIsBroken) {
  header().taken = 1;
  EXPECT_EQ(send(), RingStep::broken);
}

TEST_F(Ring, AReceiverThatGrantsWhatNobodyOfferedIsBroken) {
  receiver->refuse(99);
  EXPECT_EQ(send(), RingStep::broken);
}

TEST_F(Ring, AReceiverThatClaimsMoreGrantsThanFitIsBroken) {
  header().granted = SharedRing::grants_at_once + 1;
  EXPECT_EQ(send(), RingStep::broken);
}

TEST_F(Ring, WhoGoesToSleepIsRungForAndWhoHasSomethingToDoDoesNotSleep) {
  const auto payload = bytes_of(100000, 1);
  std::vector<std::byte> slot(payload.size());
  sender->add(3, payload);
  EXPECT_FALSE(sender->set_sleeping(true));
  receiver->grant(3, slot);
  EXPECT_TRUE(receiver->must_ring());
  EXPECT_FALSE(receiver->must_ring()) << "once is enough";
  EXPECT_TRUE(sender->set_sleeping(true)) << "a grant is there";
  EXPECT_FALSE(receiver->set_sleeping(true));
  send();
  EXPECT_TRUE(sender->must_ring());
  EXPECT_TRUE(receiver->set_sleeping(true)) << "a block is there";
}

TEST(SharedRing, OfAnotherSizeOrWithoutSealsIsNotMapped) {
  const std::string name = "troupe-test-unsealed-" + std::to_string(getpid());
  const int descriptor = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(descriptor, 4096 + SharedRing::data_bytes), 0);
  const auto unsealed = SharedRing::find(ProcessOnHost::self(), name);
  ASSERT_FALSE(unsealed.ok()) << "its owner could cut it off under our feet";
  EXPECT_NE(unsealed.error().message.find("has another size, or may change it"), std::string::npos) << unsealed.error().message;
  ASSERT_EQ(ftruncate(descriptor, 4096), 0);
  ASSERT_EQ(fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_FALSE(SharedRing::find(ProcessOnHost::self(), name).ok());
  close(descriptor);
  EXPECT_FALSE(SharedRing::find(ProcessOnHost::self(), name).ok());
}

TEST(ProcessOnHost, IsFoundBehindAnAddressAndOnlyThere) {
  const auto self = ProcessOnHost::self();
  ASSERT_NE(self.host, 0U);
  const auto found = process_in(address_with_process("some address", self));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->host, self.host);
  EXPECT_EQ(found->process, self.process);
  EXPECT_FALSE(process_in("some address that is long enough to hold one"));
  EXPECT_FALSE(process_in(""));
}

}  // namespace
}  // namespace troupe::test
