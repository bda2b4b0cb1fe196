#include <gtest/gtest.h>

#include <atomic>

#include "tests/transport/node.hpp"

namespace troupe::test {
namespace {

constexpr Rank tester{0}, peer{1};
constexpr std::size_t payload_bytes = std::size_t{64} << 20;  ///< hashing takes milliseconds, during which the transport goes

/// A transport whose one slot tells it when it is free, as an owner of slots does.
struct Receiver {
  Receiver() : clock(make_system_clock()) {
    TransportHandlers handlers;
    handlers.letter = [](std::shared_ptr<const Parcel>) {};
    handlers.slot_for = [this](schema::Envelope::Reader, std::uint64_t) {
      return Lease{SlotIndex{0}, memory, [this] {
                     freed = !told->address().empty();  // asked of a worker that must still be there
                     told->slot_available();
                   }};
    };
    handlers.peer_lost = [](Rank, const std::string&) {};
    TransportOptions options;
    options.session = test_session();
    options.self = {peer, Incarnation{0}};
    transport = make_ucx_transport(options, *clock, std::move(handlers));
    told = transport.get();
  }
  std::unique_ptr<Clock> clock;
  std::vector<std::byte> memory = std::vector<std::byte>(payload_bytes);
  std::atomic<bool> freed{false};
  Transport* told = nullptr;
  std::unique_ptr<Transport> transport;
};

TEST(ShutDown, GivesTheSlotBackWhosePayloadIsStillBeingHashed) {
  for (int round = 0; round < 5; ++round) {
    Node sender(tester, "tcp");  // what goes over a network is hashed by a thread beside
    Receiver receiver;
    ASSERT_TRUE(receiver.transport->connect(tester, Incarnation{0}, sender.transport().address()).ok());
    ASSERT_TRUE(sender.transport().connect(peer, Incarnation{0}, receiver.transport->address()).ok());
    sender.send(peer, batch(tester, peer, 1, payload_bytes));
    ASSERT_TRUE(sender.wait([](const Node& n) { return n.sent == 1; })) << "the payload does not stand in the receiver's slot";
    receiver.transport.reset();
    EXPECT_TRUE(receiver.freed);
  }
}

}  // namespace
}  // namespace troupe::test
