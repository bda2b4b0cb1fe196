#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/model/model_description.hpp"
#include "src/model/weight_layout.hpp"

namespace troupe {

/// Which of a block's values backward finds saved, and which it computes again from the block's input (activation checkpointing).
///   none        all are kept
///   full        none is: a block keeps its input alone
///   every       of every n-th block none, of the others all
///   operations  torchtitan's list: attention and, of a block's matrix products, the first, third, fifth …
///   budget      the fastest that takes a given share of the memory between full and none
///   automatic   the fastest that fits
enum class Recompute : std::uint8_t { none, full, every, operations, budget, automatic };

struct RecomputePolicy {
  RecomputePolicy(Recompute m = Recompute::none) : mode(m) {}
  Recompute mode;
  std::uint32_t every = 2;                ///< mode every: blocks n, 2n, … counted from 1
  std::vector<std::string> always_again;  ///< mode operations: products of weights that have the shape of one whose name contains one of these
                                          ///< are computed again and do not count
  double memory_budget = 0.5;             ///< mode budget: 0 the arena of full, 1 that of none
  std::size_t arena_limit = 0;            ///< mode automatic: bytes that the arena may take; 0: no limit
};

/// [unit][step of its tape]: whether backward finds the step's results as forward left them. What backward does not read is kept by nobody.
using KeptSteps = std::vector<std::vector<bool>>;

/// Whether the unit may compute again: it begins with a value and ends with one.
[[nodiscard]] bool is_block(const Tape& tape) noexcept;

/// Whether `value` is overwritten by a later step (a rotation), so that backward cannot find it: the step that overwrites it is kept instead.
[[nodiscard]] std::vector<bool> overwritten_values(const Tape& tape);

/// Steps that run again before the unit's backward, so that all that it reads is there.
[[nodiscard]] std::vector<bool> steps_to_run_again(const Tape& tape, const std::vector<bool>& kept);

/// The policies that need no search: none, full, every, operations. Pure.
[[nodiscard]] KeptSteps keep_by_rule(const ModelDescription& model, const RecomputePolicy& policy);

/// Estimated time of a step's forward, for comparisons alone: the longer of arithmetic and traffic at nominal rates, the same everywhere.
[[nodiscard]] double nominal_nanos(const OperationCost& cost) noexcept;

/// A unit's steps that run again: arithmetic of one micro-batch, and its estimated time.
struct RecomputeCost {
  double flops = 0, nanos = 0;
};
[[nodiscard]] RecomputeCost cost_of_running_again(const UnitDescription& unit, const TapeSizes& sizes, const std::vector<bool>& kept);

}  // namespace troupe
