#pragma once
#include <compare>
#include <cstdint>
#include <functional>

namespace troupe {

/// An integer with a meaning: two ids of different kinds never mix. A value; any thread.
template <class Tag, class Integer>
class Id {
 public:
  using Value = Integer;
  constexpr Id() = default;
  constexpr explicit Id(Integer value) : value_(value) {}
  [[nodiscard]] constexpr Integer value() const noexcept { return value_; }
  constexpr auto operator<=>(const Id&) const = default;
  constexpr Id& operator++() noexcept {
    ++value_;
    return *this;
  }
  [[nodiscard]] constexpr Id next() const noexcept { return Id{static_cast<Integer>(value_ + 1)}; }

 private:
  Integer value_{};
};

using Rank = Id<struct RankTag, std::uint32_t>;
using Step = Id<struct StepTag, std::uint64_t>;    ///< optimizer steps count from 1; 0 is "before the first"
using Micro = Id<struct MicroTag, std::uint32_t>;  ///< micro-batch of a step, from 0
/// What is gathered and reduced together (an FSDP unit): 0 is the embedding, 1…L the blocks, L+1 final norm and head.
using Unit = Id<struct UnitTag, std::uint32_t>;
using EpochId = Id<struct EpochTag, std::uint64_t>;            ///< from 1; an epoch ends at a fault or a reconfiguration
using Incarnation = Id<struct IncarnationTag, std::uint32_t>;  ///< of a worker process: 0, then +1 for each respawn of the rank
using SlotIndex = Id<struct SlotTag, std::uint32_t>;
using OperationIndex = Id<struct OperationTag, std::uint32_t>;  ///< position in a Plan's total order

/// The coordinates that every fact carries.
struct Where {
  EpochId epoch;
  Step step;
  Micro micro;
  Unit unit;
  auto operator<=>(const Where&) const = default;
};

}  // namespace troupe

template <class Tag, class Integer>
struct std::hash<troupe::Id<Tag, Integer>> {
  std::size_t operator()(const troupe::Id<Tag, Integer>& id) const noexcept { return std::hash<Integer>{}(id.value()); }
};
