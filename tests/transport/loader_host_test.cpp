#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "messages/edge_kind.hpp"
#include "src/transport/payload_slots.hpp"
#include "tests/transport/node.hpp"
#include "tests/transport/peer_process.hpp"

namespace troupe::test {
namespace {

constexpr Rank trainer{0}, loader{1};
constexpr std::uint32_t slot_count = 2;
constexpr std::size_t batch_bytes = 256 * 1024;

/// What Compute's process does with batches from a loader host: its `batches` slots, and a SlotHome for each that it has read.
class BatchReceiver {
 public:
  explicit BatchReceiver(const std::string& transports)
      : clock_(make_system_clock()), slots_(slot_count, batch_bytes, [this](SlotIndex slot) { freed(slot); }) {
    TransportHandlers handlers;
    handlers.letter = [this](std::shared_ptr<const Parcel> parcel) {
      const std::lock_guard lock(mutex_);
      arrived_.push_back(std::move(parcel));
      most_unread = std::max(most_unread, arrived_.size());
      changed_.notify_all();
    };
    handlers.slot_for = [this](schema::Envelope::Reader envelope, std::uint64_t bytes) {
      return envelope.getBody().isBatchReady() ? slots_.take(bytes) : Lease{};
    };
    handlers.peer_lost = [](Rank, const std::string&) {};
    TransportOptions options;
    options.session = test_session();
    options.self = {trainer, Incarnation{0}};
    options.transports = transports;
    transport = make_ucx_transport(options, *clock_, std::move(handlers));
  }
  ~BatchReceiver() {
    slots_.close();
    transport.reset();
  }

  std::shared_ptr<const Parcel> next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return !arrived_.empty(); })) return nullptr;
    auto parcel = std::move(arrived_.front());
    arrived_.pop_front();
    return parcel;
  }
  [[nodiscard]] std::uint32_t most_slots() const { return slots_.peak(); }

  std::unique_ptr<Transport> transport;
  std::size_t most_unread = 0;

 private:
  void freed(SlotIndex slot) {
    transport->slot_available();
    const Heading heading{.to = {loader, ActorKind::data_loader}, .from = {trainer, ActorKind::compute}, .where = {}, .operation = {}};
    transport->send(loader,
                    write<schema::SlotHome>(heading,
                                            [&](auto body) {
                                              body.setEdge(static_cast<std::uint16_t>(EdgeKind::batches));
                                              body.setSlot(slot.value());
                                            }),
                    {});
  }

  std::unique_ptr<Clock> clock_;
  PayloadSlots slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<const Parcel>> arrived_;
};

class LoaderHost : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, LoaderHost, testing::Values("posix,cma,tcp", "tcp"),
                         [](const auto& test) { return std::string(test.param) == "tcp" ? "Tcp" : "SharedMemory"; });

TEST_P(LoaderHost, SendsNoMoreBatchesThanComputeHasSlotsForAndAllArriveIntact) {
  PeerProcess process("loader", {GetParam(), "100", std::to_string(slot_count), std::to_string(batch_bytes)});
  BatchReceiver receiver(GetParam());
  const std::string address = from_hex(process.read_line());
  process.write_line(to_hex(receiver.transport->address()));
  ASSERT_TRUE(receiver.transport->connect(loader, Incarnation{0}, address).ok());
  for (std::uint64_t step = 1; step <= 100; ++step) {
    const auto parcel = receiver.next();
    ASSERT_NE(parcel, nullptr) << step;
    ASSERT_EQ(parcel->envelope().getWhere().getStep(), step);
    ASSERT_EQ(parcel->envelope().getBody().getBatchReady().getTokens(), step);
    ASSERT_TRUE(is_batch_payload(parcel->lease().bytes(), step)) << step;
  }
  EXPECT_EQ(receiver.most_slots(), slot_count);
  EXPECT_LE(receiver.most_unread, slot_count);
  EXPECT_EQ(receiver.transport->counters().parked, 0U) << "with credit no batch has to wait at its sender";
  EXPECT_EQ(process.wait(), 0);
}

TEST(PayloadSlots, AreGivenOncePerLeaseAndTooLongAPayloadGetsNone) {
  std::vector<std::uint32_t> freed;
  PayloadSlots slots(2, 100, [&](SlotIndex slot) { freed.push_back(slot.value()); });
  EXPECT_FALSE(slots.take(101));
  Lease first = slots.take(100), second = slots.take(1);
  EXPECT_NE(first.slot(), second.slot());
  EXPECT_FALSE(slots.take(1));
  first.reset();
  EXPECT_EQ(freed, std::vector<std::uint32_t>{0});
  EXPECT_TRUE(slots.take(1));
  EXPECT_EQ(slots.in_use(), 1U);
}

TEST(SlotCredit, NeverExceedsTheSlots) {
  SlotCredit credit(2);
  EXPECT_TRUE(credit.take());
  EXPECT_TRUE(credit.take());
  EXPECT_FALSE(credit.take());
  EXPECT_TRUE(credit.give_back());
  EXPECT_TRUE(credit.give_back());
  EXPECT_FALSE(credit.give_back()) << "a SlotHome that came twice";
  EXPECT_EQ(credit.free(), 2U);
}

}  // namespace
}  // namespace troupe::test
