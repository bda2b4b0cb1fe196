#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/collectives/communicator.hpp"
#include "src/simulation/causality.hpp"

namespace troupe {

class SimulatedLane;
class VirtualWorld;

/// The collectives of simulated ranks: a rendezvous in virtual time that really moves the bytes. A member's lane stays busy until the last
/// member has come and the longest of their operations' times has passed. Members call from lanes with LaneModel::collectives.
/// One thread; the world outlives it.
class SimulatedGroup {
 public:
  SimulatedGroup(VirtualWorld& world, std::string name, std::uint32_t size);
  ~SimulatedGroup();
  SimulatedGroup(const SimulatedGroup&) = delete;
  SimulatedGroup& operator=(const SimulatedGroup&) = delete;

  /// The member's end; keeps the group alive no longer than the group's owner does.
  [[nodiscard]] std::unique_ptr<Communicator> member(std::uint32_t rank);
  void abort(const std::string& cause) noexcept;
  /// The member's process is gone: no collective ends any more, and nobody is told but by abort().
  void lose(std::uint32_t rank);
  /// Called when all members of a collective have come; throwing makes it fail for all. For faults.
  void on_round(std::function<void(std::uint64_t round)> hook) { on_round_ = std::move(hook); }
  [[nodiscard]] std::uint64_t rounds() const noexcept { return round_; }
  /// "gather: ranks 0, 2 are here, 1 is missing"; empty when nobody waits.
  [[nodiscard]] std::string waiting() const;

  enum class Kind : std::uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, all_to_all };
  /// One member's call, with the memory that it lends until the call returns.
  struct Call {
    Kind kind{};
    std::uint64_t bytes = 0;
    std::string type;  ///< "f32 sum", "u8 from 0"
    std::span<const GatherPiece> gathers = {};
    std::span<const ReducePiece> reduces = {};
    TensorView values = {};
    Reduction reduction = Reduction::sum;
    std::span<const std::byte> input = {};
    std::span<std::byte> output = {};
    std::uint32_t root = 0;
  };
  /// Returns when the collective is over; throws CollectiveError.
  void call(std::uint32_t rank, Stream& stream, const Call& call);

 private:
  struct Arrival {
    const Call* call = nullptr;
    SimulatedLane* lane = nullptr;
    Nanos cost{0};
    CausalStamp stamp;
  };

  void compare(std::uint32_t rank, const Call& call);
  void close_round();
  void end_round(std::uint64_t round);
  void move_bytes();
  void wake_all();

  VirtualWorld& world_;
  const std::string name_;
  std::vector<Arrival> arrivals_;
  std::uint32_t here_ = 0;
  std::uint64_t round_ = 0;
  std::optional<std::string> dead_;
  CausalStamp together_;  ///< what every member knows after the round
  std::function<void(std::uint64_t)> on_round_;
};

}  // namespace troupe
