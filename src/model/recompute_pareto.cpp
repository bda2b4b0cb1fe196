#include "src/model/recompute_pareto.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "src/model/tape_plan.hpp"

namespace troupe {
namespace {

constexpr int budgets = 20;  // steps from 0 to 1
constexpr double mebibyte = 1048576.0;

}  // namespace

std::vector<BudgetPoint> memory_budget_pareto(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes) {
  const auto nanos_of = [&](const KeptSteps& kept) {
    double nanos = 0;
    for (std::size_t u = 0; u < model.units.size(); ++u) nanos += cost_of_running_again(model.units[u], sizes, kept[u]).nanos;
    return nanos;
  };
  const double most = nanos_of(keep_by_rule(model, Recompute::full));
  const RecomputeSearch search(model, layout, sizes);
  std::vector<BudgetPoint> points;
  for (int i = 0; i <= budgets; ++i) {
    const double budget = static_cast<double>(i) / budgets;
    const KeptSteps kept = search.within(search.bytes_of_budget(budget));
    points.push_back({budget, plan_tapes(model, layout, sizes, {.kept = kept}).arena_bytes, most > 0 ? nanos_of(kept) / most : 0.0});
  }
  return points;
}

std::string pareto_csv(const std::vector<BudgetPoint>& points) {
  std::string text = "memory_budget,arena_bytes,time_again\n";
  for (const BudgetPoint& p : points) text += fmt::format("{},{},{}\n", p.budget, p.arena_bytes, p.again);
  return text;
}

std::string pareto_svg(const std::vector<BudgetPoint>& points, const std::string& title) {
  constexpr double width = 640, height = 400, left = 70, bottom = 50, top = 40, right = 20;
  const auto [least, most] = std::ranges::minmax_element(points, {}, &BudgetPoint::arena_bytes);
  const double low = static_cast<double>(least->arena_bytes), span = std::max(1.0, static_cast<double>(most->arena_bytes) - low);
  const double highest = std::max(1e-9, std::ranges::max_element(points, {}, &BudgetPoint::again)->again);
  const auto x = [&](const BudgetPoint& p) { return left + (static_cast<double>(p.arena_bytes) - low) / span * (width - left - right); };
  const auto y = [&](const BudgetPoint& p) { return height - bottom - p.again / highest * (height - bottom - top); };
  std::string line, dots;
  for (const BudgetPoint& p : points) {
    line += fmt::format("{:.1f},{:.1f} ", x(p), y(p));
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>memory_budget {}: {:.1f} MiB, {:.1f} % of what full runs again</title></circle>\n",
                        x(p), y(p), p.budget, static_cast<double>(p.arena_bytes) / mebibyte, 100 * p.again);
  }
  const auto label = [](double at_x, double at_y, const char* anchor, const std::string& text) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", at_x, at_y, anchor, text);
  };
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" "
             "height=\"{1}\" fill=\"white\"/>\n<path d=\"M{2} {3}V{4}H{5}\" fill=\"none\" stroke=\"black\"/>\n",
             width, height, left, top, height - bottom, width - right) +
         label(width / 2, 20, "middle", title) + label(left, height - bottom + 18, "middle", fmt::format("{:.1f}", low / mebibyte)) +
         label(width - right, height - bottom + 18, "end", fmt::format("{:.1f}", (low + span) / mebibyte)) +
         label((left + width - right) / 2, height - 12, "middle", "MiB of activations and working memory") +
         label(left - 8, top + 4, "end", fmt::format("{:.1f} %", 100 * highest)) + label(left - 8, height - bottom, "end", "0 %") +
         label(left + 10, top + 4, "start", "of what mode full runs again, in time") +
         fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"#1f5fbf\"/>\n<g fill=\"#1f5fbf\">\n{}</g>\n</svg>\n", line, dots);
}

Result<void> write_pareto(const std::filesystem::path& folder, const std::vector<BudgetPoint>& points, const std::string& title) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) return Error{folder.string() + ": " + problem.message()};
  for (const auto& [name, text] : {std::pair{"pareto.csv", pareto_csv(points)}, std::pair{"pareto.svg", pareto_svg(points, title)}}) {
    std::ofstream file(folder / name);
    file << text;
    if (!file.flush()) return Error{(folder / name).string() + ": cannot be written"};
  }
  return {};
}

}  // namespace troupe
