#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/model/recompute_search.hpp"

namespace troupe {

/// What one activation_checkpoint.memory_budget costs and saves.
struct BudgetPoint {
  double budget = 0;            ///< 0: mode full's memory, 1: none's
  std::size_t arena_bytes = 0;  ///< activations and working memory of one micro-batch
  double again = 0;             ///< estimated time of what runs again, as a part of what mode full runs again
};

/// The fastest plan within each of the budgets 0, 0.05 … 1. Pure; takes as long as the searches of mode memory_budget.
[[nodiscard]] std::vector<BudgetPoint> memory_budget_pareto(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes);

[[nodiscard]] std::string pareto_csv(const std::vector<BudgetPoint>& points);
/// A picture: memory from left to right, what runs again upwards.
[[nodiscard]] std::string pareto_svg(const std::vector<BudgetPoint>& points, const std::string& title);
/// pareto.csv and pareto.svg in `folder`, which is made. The error names the file.
[[nodiscard]] Result<void> write_pareto(const std::filesystem::path& folder, const std::vector<BudgetPoint>& points, const std::string& title);

}  // namespace troupe
