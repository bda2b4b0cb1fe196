#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/runtime/runtime.hpp"
#include "src/simulation/causality.hpp"

namespace troupe {

class VirtualWorld;

/// Stands before the real post office and decides, by the world's seed, which letter goes next. It keeps what threads guarantee and no
/// more: whoever writes is preempted between any two letters, letters to one mailbox of the same rank are read in the order in which
/// they were put in, letters between ranks take time and stay in order for each pair alone. One thread.
class SimulatedPostOffice final : public PostOffice {
 public:
  explicit SimulatedPostOffice(VirtualWorld& world) : world_(world) {}
  /// `inner` puts a letter into a mailbox; `settle` lets the actor that got it run.
  void deliver_with(PostOffice& inner, std::function<void()> settle);

  void post(std::shared_ptr<const Parcel> parcel) override;
  /// What a letter between ranks takes beside what the seed draws; those behind it, of the same pair, wait for it.
  void slow(std::function<Nanos(const schema::Envelope::Reader&)> by) { slow_ = std::move(by); }
  /// Delivers one letter, or moves it one stage. False: nothing is under way but what waits for time.
  bool step();
  /// Whoever wrote or got a letter so far.
  [[nodiscard]] const std::set<ActorAddress>& correspondents() const noexcept { return correspondents_; }
  /// The texts of Inspection letters since the last call.
  [[nodiscard]] std::vector<std::string> take_inspections();
  [[nodiscard]] std::uint64_t delivered() const noexcept { return delivered_; }
  /// The rank's process is gone: what it would still say is not said, what is for it is lost; what it sent to others before may yet arrive.
  void kill(Rank rank);
  /// Another process has taken its place: nothing that an earlier one sent arrives any more.
  void revive(Rank rank);
  /// From now on letters vanish.
  void close();

 private:
  struct Item {
    std::shared_ptr<const Parcel> parcel;
    CausalStamp stamp;
    PlaceId to;
    std::uint32_t sender_life = 0, receiver_life = 0;
  };
  struct Life {
    std::uint32_t number = 0;
    bool dead = false;
  };
  struct Place {
    std::deque<Item> outbox, mailbox;
  };

  Place& at(PlaceId place);
  void send_first(PlaceId from);
  void read_first(PlaceId to);
  void arrive(Item item);
  [[nodiscard]] bool lost(const Item& item);

  VirtualWorld& world_;
  PostOffice* inner_ = nullptr;
  std::function<void()> settle_;
  std::function<Nanos(const schema::Envelope::Reader&)> slow_;
  std::deque<Place> places_;
  std::vector<PlaceId> sending_, reading_;  ///< with something in the outbox, in the mailbox
  std::map<std::pair<PlaceId, PlaceId>, Nanos> last_arrival_;
  std::set<ActorAddress> correspondents_;
  std::map<Rank, Life> lives_;
  std::vector<std::string> inspections_;
  std::uint64_t delivered_ = 0;
  bool closed_ = false;
};

}  // namespace troupe
