#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "src/model/recompute.hpp"

namespace troupe {

/// One way to run a unit. A plan's live memory is the sum over its units: at any moment of unit u's forward or backward, what the units
/// before it have saved, and what lives of u's own.
struct UnitOption {
  std::vector<bool> kept;  ///< by step
  std::size_t saved = 0;   ///< bytes that live from the unit's forward into its backward, its input included
  std::size_t peak = 0;    ///< the most that lives during either, without what units before it have saved
  double nanos = 0;        ///< estimated time of what runs again
};

/// All ways to run unit `u` that are worth a thought: no other has less of all three of saved, peak and nanos. Every set of kept steps is
/// tried where there are at most `exact_steps` that matter; else steps are kept one after the other, the most time saved a byte first.
[[nodiscard]] std::vector<UnitOption> options_of_unit(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes, std::size_t u);
inline constexpr std::size_t exact_steps = 12;

/// The kept steps of the fastest plan (least estimated time of what runs again; then least memory) whose live memory never exceeds `limit`;
/// nothing: none fits. Units from first to last, of the partial plans those that no other betters in saved bytes and time at once: exact while
/// those are at most a few thousand, which they are up to dozens of layers; beyond, every so manieth is followed, so that the plan found
/// still fits and may be a little slower than the best. `options`: by unit.
[[nodiscard]] std::optional<KeptSteps> fastest_within(const std::vector<std::vector<UnitOption>>& options, std::size_t limit);

/// The search for one model, with what it measures once. What it is made with outlives it.
class RecomputeSearch {
 public:
  RecomputeSearch(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes);
  /// The arena of a budget: part of the way from mode full's (0) to none's (1).
  [[nodiscard]] std::size_t bytes_of_budget(double budget) const noexcept;
  /// Of the fastest plan whose arena, with its fragmentation, is at most this. Throws std::invalid_argument if none is, saying what the smallest takes.
  [[nodiscard]] KeptSteps within(std::size_t arena_bytes) const;

 private:
  [[nodiscard]] std::size_t arena_of(const KeptSteps& kept) const;

  const ModelDescription& model_;
  const WeightLayout& layout_;
  const TapeSizes& sizes_;
  KeptSteps all_, inputs_;
  std::size_t most_, least_;                              ///< their arenas
  mutable std::vector<std::vector<UnitOption>> options_;  ///< by unit, once they are asked for
};

/// The kept steps for this policy, whatever its mode: the rules as they stand, budget and automatic by search, held to the size of the real
/// arena with its fragmentation. Throws std::invalid_argument if nothing fits, saying what the smallest takes.
[[nodiscard]] KeptSteps choose_kept(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes, const RecomputePolicy& policy);

}  // namespace troupe
