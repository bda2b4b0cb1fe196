#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "src/model/family_llama3.hpp"
#include "src/model/recompute_pareto.hpp"
#include "src/model/recompute_search.hpp"
#include "src/model/tape_plan.hpp"
#include "src/model/training_model.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelDescription model(const char* name, std::int64_t layers = 2) {
  Llama3Flavour flavour = llama3_flavour(name).value();
  flavour.layers = layers;
  return describe_llama3(flavour);
}

TrainingOptions options(RecomputePolicy policy, DType compute = DType::f32) {
  TrainingOptions o;
  o.batch = {2, 64};
  o.compute = compute;
  o.recompute = std::move(policy);
  return o;
}

/// Names of the linears of the first block that run again before its backward.
std::vector<std::string> products_again(const RecomputePolicy& policy) {
  const ModelDescription m = model("tiny");
  const KeptSteps kept = keep_by_rule(m, policy);
  const Tape& tape = m.units[1].tape;
  const std::vector<bool> again = steps_to_run_again(tape, kept[1]);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < again.size(); ++i) {
    if (again[i] && tape.steps[i].type == OperationType::linear) names.push_back(tape.values[tape.steps[i].out[0]].name);
  }
  return names;
}

TEST(Recompute, OperationsKeepsAttentionAndEverySecondProductAsTorchtitanDoes) {
  EXPECT_THAT(products_again(Recompute::operations), ElementsAre("k", "o", "up"));
  const ModelDescription m = model("tiny");
  const std::vector<bool> again = steps_to_run_again(m.units[1].tape, keep_by_rule(m, Recompute::operations)[1]);
  for (std::size_t i = 0; i < again.size(); ++i) {
    if (m.units[1].tape.steps[i].type == OperationType::attention) {
      EXPECT_FALSE(again[i]);
    }
  }
}

TEST(Recompute, AProductOfAShapeThatIsAlwaysComputedAgainIsNotCounted) {
  RecomputePolicy policy = Recompute::operations;
  policy.always_again = {"layers.0.feed_forward.w1"};
  EXPECT_THAT(products_again(policy), ElementsAre("k", "o", "gate", "up")) << "w3 has w1's shape; w2 is the fifth that counts, and kept";
  policy.always_again = {"moe.router.gate"};
  EXPECT_THAT(products_again(policy), ElementsAre("k", "o", "up"));
}

TEST(Recompute, EveryNthBlockComputesAllAgainAndTheOthersNothing) {
  RecomputePolicy policy = Recompute::every;
  policy.every = 3;
  const ModelDescription m = model("tiny", 7);
  const KeptSteps kept = keep_by_rule(m, policy);
  for (std::size_t u = 0; u < m.units.size(); ++u) {
    const bool again = u == 3 || u == 6;
    EXPECT_EQ(std::count(kept[u].begin(), kept[u].end(), true), again ? 0 : static_cast<std::ptrdiff_t>(kept[u].size())) << u;
  }
}

TEST(Recompute, ARotatedProductThatIsKeptIsNotRotatedAgain) {
  const ModelDescription m = model("tiny");
  const TapePlan plan = estimate_training(m, options(Recompute::operations)).tapes;
  const auto rotations =
      std::count_if(plan.backward[1].begin(), plan.backward[1].end(), [](const Instruction& i) { return i.code == InstructionCode::rotary; });
  EXPECT_EQ(rotations, 1) << "of k alone";
}

TEST(Recompute, MemoryFallsAndWorkRisesFromNoneToFull) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    std::size_t arena = std::numeric_limits<std::size_t>::max();
    double flops = -1;
    for (const Recompute mode : {Recompute::none, Recompute::every, Recompute::operations, Recompute::full}) {
      const TrainingEstimate e = estimate_training(model("quickstart", 8), options(mode, compute));
      double again = 0;
      for (const UnitCost& unit : e.units) again += unit.recomputed_flops;
      EXPECT_LT(e.tapes.arena_bytes, arena);
      EXPECT_GT(again, flops);
      arena = e.tapes.arena_bytes;
      if (mode != Recompute::every) flops = again;  // operations computes less again than every second block does
    }
  }
}

/// A block whose sets of kept steps can all be tried: norm, two products, their swiglu, a product back.
ModelDescription small_blocks(std::int64_t layers) {
  ModelDescription m = model("tiny", layers);
  for (std::size_t u = 1; u + 1 < m.units.size(); ++u) {
    TapeBuilder t;
    const ValueIndex x = t.input("x", 32);
    const ValueIndex h = t.rms_norm("h", x, 8, 1e-5);
    const ValueIndex s = t.swiglu("s", t.linear("gate", h, 4, 96), t.linear("up", h, 6, 96));
    m.units[u].tape = t.finish(t.add("y", x, t.linear("down", s, 5, 32)));
  }
  return m;
}

struct Planned {
  std::size_t peak;
  double nanos;
};

Planned plan(const ModelDescription& m, const WeightLayout& layout, const TapeSizes& sizes, const KeptSteps& kept) {
  Planned planned{plan_tapes(m, layout, sizes, {.kept = kept}).peak_bytes, 0};
  for (std::size_t u = 0; u < m.units.size(); ++u) planned.nanos += cost_of_running_again(m.units[u], sizes, kept[u]).nanos;
  return planned;
}

std::vector<std::vector<UnitOption>> all_options(const ModelDescription& m, const WeightLayout& layout, const TapeSizes& sizes) {
  std::vector<std::vector<UnitOption>> all;
  for (std::size_t u = 0; u < m.units.size(); ++u) all.push_back(options_of_unit(m, layout, sizes, u));
  return all;
}

TEST(RecomputeSearch, FindsWhatTryingEveryPlanFinds) {
  const ModelDescription m = small_blocks(3);
  const TapeSizes sizes{2, 16, DType::f32};
  const WeightLayout layout = lay_out_weights(m, sizes, {}, 1);
  std::vector<std::size_t> matter;
  const std::vector<bool> again = steps_to_run_again(m.units[1].tape, std::vector<bool>(m.units[1].tape.steps.size(), false));
  for (std::size_t i = 0; i < again.size(); ++i) {
    if (again[i]) matter.push_back(i);
  }
  ASSERT_EQ(matter.size(), 4U);
  std::vector<Planned> tried;
  KeptSteps kept = keep_by_rule(m, Recompute::none);
  for (std::size_t set = 0; set < std::size_t{1} << (3 * matter.size()); ++set) {
    for (std::size_t bit = 0; bit < 3 * matter.size(); ++bit) kept[1 + bit / matter.size()][matter[bit % matter.size()]] = (set >> bit & 1U) != 0;
    tried.push_back(plan(m, layout, sizes, kept));
  }
  std::vector<std::size_t> limits;
  for (const Planned& p : tried) limits.push_back(p.peak);
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  ASSERT_GT(limits.size(), 10U);
  const auto all = all_options(m, layout, sizes);
  EXPECT_FALSE(fastest_within(all, limits.front() - 1));
  for (const std::size_t limit : limits) {
    double best = std::numeric_limits<double>::max();
    for (const Planned& p : tried) best = p.peak <= limit ? std::min(best, p.nanos) : best;
    const auto found = fastest_within(all, limit);
    ASSERT_TRUE(found) << limit;
    const Planned planned = plan(m, layout, sizes, *found);
    EXPECT_LE(planned.peak, limit);
    EXPECT_DOUBLE_EQ(planned.nanos, best) << limit;
  }
}

TEST(RecomputeSearch, NoPlanOfAWholeLlamaDrawnAtRandomThatFitsIsFaster) {
  std::mt19937_64 random(3);
  for (const bool float8 : {false, true}) {
    const ModelDescription m = model("tiny", 3);
    const TapeSizes sizes{2, 32, DType::bf16};
    const WeightLayout layout = lay_out_weights(m, sizes, {.enable = float8, .filter_fqns = {"output"}, .all_gather = true}, 1);
    const auto all = all_options(m, layout, sizes);
    const std::size_t least = plan(m, layout, sizes, keep_by_rule(m, Recompute::full)).peak,
                      most = plan(m, layout, sizes, keep_by_rule(m, Recompute::none)).peak;
    for (int i = 0; i < 300; ++i) {
      KeptSteps kept = keep_by_rule(m, Recompute::none);
      for (std::size_t u = 1; u + 1 < m.units.size(); ++u) {
        for (std::size_t s = 0; s < kept[u].size(); ++s) kept[u][s] = random() % 4 != 0;
      }
      const Planned drawn = plan(m, layout, sizes, kept);
      const auto found = fastest_within(all, drawn.peak);
      ASSERT_TRUE(found);
      const Planned planned = plan(m, layout, sizes, *found);
      EXPECT_LE(planned.peak, drawn.peak);
      EXPECT_LE(planned.nanos, drawn.nanos * (1 + 1e-12));
    }
    EXPECT_LT(least, most);
  }
}

TEST(RecomputeSearch, ABudgetIsKeptAndMoreOfItIsFaster) {
  const std::size_t least = estimate_training(model("quickstart", 4), options(Recompute::full)).tapes.arena_bytes;
  const std::size_t most = estimate_training(model("quickstart", 4), options(Recompute::none)).tapes.arena_bytes;
  double nanos = std::numeric_limits<double>::max();
  for (const double budget : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    RecomputePolicy policy = Recompute::budget;
    policy.memory_budget = budget;
    const ModelDescription m = model("quickstart", 4);
    const TrainingEstimate e = estimate_training(m, options(policy));
    EXPECT_LE(static_cast<double>(e.tapes.arena_bytes), static_cast<double>(least) + budget * static_cast<double>(most - least) + 1);
    double again = 0;
    for (std::size_t u = 0; u < m.units.size(); ++u) again += cost_of_running_again(m.units[u], e.tapes.sizes, e.kept[u]).nanos;
    EXPECT_LT(again, nanos) << budget;
    nanos = again;
  }
  EXPECT_EQ(nanos, 0);
}

TEST(RecomputeSearch, ThePictureOfTheBudgetsIsWhatEachOfThemDoes) {
  const ModelDescription m = model("tiny", 3);
  const TrainingEstimate full = estimate_training(m, options(Recompute::full)), none = estimate_training(m, options(Recompute::none));
  const std::vector<BudgetPoint> points = memory_budget_pareto(m, none.layout, none.tapes.sizes);
  ASSERT_EQ(points.size(), 21U);
  EXPECT_LE(points.front().arena_bytes, full.tapes.arena_bytes);
  EXPECT_EQ(points.back().arena_bytes, none.tapes.arena_bytes);
  EXPECT_EQ(points.back().again, 0);
  EXPECT_LE(points.front().again, 1);
  EXPECT_GT(points.front().again, points[10].again);
  for (std::size_t i = 1; i < points.size(); ++i) {
    RecomputePolicy policy = Recompute::budget;
    policy.memory_budget = points[i].budget;
    EXPECT_EQ(points[i].arena_bytes, estimate_training(m, options(policy)).tapes.arena_bytes) << points[i].budget;
  }
  const std::string csv = pareto_csv(points), svg = pareto_svg(points, "tiny");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 22);
  EXPECT_NE(csv.find("memory_budget,arena_bytes,time_again\n0,"), std::string::npos);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

TEST(RecomputeSearch, AutomaticKeepsAllWhereItFitsAndSaysWhatTheLeastTakesWhereNothingDoes) {
  const TrainingEstimate none = estimate_training(model("quickstart", 4), options(Recompute::none));
  RecomputePolicy policy = Recompute::automatic;
  EXPECT_EQ(estimate_training(model("quickstart", 4), options(policy)).kept, none.kept) << "no limit";
  policy.arena_limit = none.tapes.arena_bytes;
  EXPECT_EQ(estimate_training(model("quickstart", 4), options(policy)).kept, none.kept);
  policy.arena_limit = none.tapes.arena_bytes * 3 / 4;
  const TrainingEstimate within = estimate_training(model("quickstart", 4), options(policy));
  EXPECT_LE(within.tapes.arena_bytes, policy.arena_limit);
  EXPECT_GT(within.tapes.arena_bytes, policy.arena_limit * 9 / 10) << "what is there is used";
  policy.arena_limit = 1000;
  try {
    (void)estimate_training(model("quickstart", 4), options(policy));
    FAIL() << "1000 bytes are enough";
  } catch (const std::invalid_argument& problem) {
    EXPECT_THAT(problem.what(), HasSubstr("may take 1000 bytes, but take "));
    EXPECT_THAT(problem.what(), HasSubstr(std::to_string(none.tapes.arena_bytes) + " with none"));
  }
}

TEST(RecomputeSearch, AModelOfDozensOfLayersUsesItsBudget) {
  TrainingOptions o = options(Recompute::none, DType::bf16);
  o.batch = {1, 8192};
  o.world = 8;
  const ModelDescription m = describe_llama3(llama3_flavour("8B").value());
  const auto arena_of = [&](Recompute mode) {
    o.recompute = mode;
    return static_cast<double>(estimate_training(m, o).tapes.arena_bytes);
  };
  const double least = arena_of(Recompute::full), most = arena_of(Recompute::none), found = arena_of(Recompute::budget);
  EXPECT_LE(found, (least + most) / 2);
  EXPECT_GT(found, least + 0.45 * (most - least));
}

}  // namespace
}  // namespace troupe
