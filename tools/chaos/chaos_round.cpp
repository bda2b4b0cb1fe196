#include "tools/chaos/chaos_round.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <random>
#include <string_view>

namespace troupe {
namespace {

using std::chrono::milliseconds;

/// Draws that are the same everywhere: the standard's distributions are not.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  /// In [least, most].
  std::uint64_t between(std::uint64_t least, std::uint64_t most) { return least + engine_() % (most - least + 1); }
  bool one_in(std::uint64_t n) { return engine_() % n == 0; }
  template <class T, std::size_t n>
  T of(const std::array<T, n>& choices) {
    return choices[engine_() % n];
  }

 private:
  std::mt19937_64 engine_;
};

/// Site and kind of an operation that every step of every rank has.
std::string operation(Dice& dice, const ChaosTarget& target) {
  static constexpr std::array<std::string_view, 5> lanes{"forward", "backward", "gather", "reduce", "optimize"};
  static constexpr std::array<std::string_view, 2> collectives{"gather", "reduce"};
  const bool collective = dice.one_in(3);
  const std::string_view kind = collective ? dice.of(collectives) : dice.of(lanes);
  return fmt::format("site={} kind={} unit={}", collective ? "collective" : "lane", kind, dice.between(0, target.units - 1));
}

std::string what_happens(Dice& dice) {
  switch (dice.between(0, 3)) {
    case 0: return "action=fail";
    case 1: return "action=stall";
    case 2: return fmt::format("action=delay for={}ms", dice.between(5, 300));
    default: return "action=crash";
  }
}

/// What becomes of a letter that a rank sends in every step, or now and then.
std::string letter(Dice& dice, Step step) {
  static constexpr std::array<std::string_view, 3> kinds{"StepReport", "Heartbeat", "SnapshotKept"};
  static constexpr std::array<std::string_view, 6> actions{"drop", "delay for=50ms", "duplicate", "corrupt", "reorder", "crash"};
  const std::string_view kind = dice.of(kinds);
  const std::string when = kind == "StepReport" ? fmt::format("step={} ", step.value()) : std::string{};
  return fmt::format("kind={} {}action={}", kind, when, dice.of(actions));
}

/// What becomes of an access to a checkpoint's file.
std::string access(Dice& dice) {
  static constexpr std::array<std::string_view, 3> kinds{"write", "sync", "create"};
  static constexpr std::array<std::string_view, 7> actions{"fail", "full", "torn", "corrupt", "crash", "delay for=200ms", "stall for=1s"};
  const std::string_view kind = dice.of(kinds);
  return fmt::format("kind={} action={}", kind, dice.of(actions));
}

void draw_rule(Dice& dice, const ChaosTarget& target, Disturbance& drawn, ChaosRound& round) {
  const std::string where = fmt::format("rank={} step={}", drawn.rank.value(), drawn.step.value());
  switch (dice.between(0, 8)) {
    case 0: drawn.rule = fmt::format("site=process {} action=crash", where); return;
    case 1:  // while a snapshot is copied to the launcher's memory
      round.memory_interval = static_cast<std::uint32_t>(dice.between(1, 4));
      drawn.rule = fmt::format("site=lane kind=keep {} {}", where, what_happens(dice));
      return;
    case 2:  // while a checkpoint is copied or written
      drawn.at_checkpoint = true;
      drawn.rule = fmt::format("site=lane kind={} rank={} ", dice.one_in(2) ? "snapshot" : "save", drawn.rank.value());
      drawn.rule += what_happens(dice);
      return;
    case 3: drawn.rule = fmt::format("site=letter rank={} ", drawn.rank.value()) + letter(dice, drawn.step); return;
    case 4:
      drawn.at_checkpoint = true;
      drawn.rule = fmt::format("site=storage rank={} ", drawn.rank.value()) + access(dice);
      return;
    default:
      drawn.rule = operation(dice, target) + " " + where + " ";
      drawn.rule += what_happens(dice);
      return;
  }
}

Disturbance draw_disturbance(Dice& dice, const ChaosTarget& target, ChaosRound& round) {
  Disturbance drawn;
  drawn.rank = Rank{static_cast<std::uint32_t>(dice.between(0, target.ranks - 1))};
  drawn.step = Step{dice.between(2, target.steps * 3 / 4)};
  drawn.pause = milliseconds{dice.between(0, 50)};
  switch (dice.between(0, 7)) {
    case 0:
    case 1:
    case 2: drawn.kind = Disturbance::Kind::kill; break;
    case 3: drawn.kind = Disturbance::Kind::stop; break;
    default: draw_rule(dice, target, drawn, round); break;
  }
  return drawn;
}

/// A second one beside the first, at once, or while the run recovers from it.
void draw_second(Dice& dice, const ChaosTarget& target, ChaosRound& round) {
  Disturbance second = draw_disturbance(dice, target, round);
  if (dice.one_in(2)) {
    second.kind = Disturbance::Kind::kill;
    second.rule.clear();
    second.at_checkpoint = false;
    second.while_recovering = true;
    second.step = Step{0};
    second.pause = milliseconds{dice.between(0, 900)};
  } else if (second.kind != Disturbance::Kind::rule && dice.one_in(2)) {
    second.step = round.disturbances.front().step;
    second.pause = round.disturbances.front().pause;
  }
  round.disturbances.push_back(second);
}

}  // namespace

ChaosRound draw_round(std::uint64_t seed, const ChaosTarget& target) {
  static constexpr std::array<std::uint32_t, 4> keeps{0, 1, 4, 10};
  Dice dice(seed);
  ChaosRound round;
  round.seed = seed;
  round.memory_interval = dice.of(keeps);
  if (dice.one_in(2)) round.checkpoint_interval = static_cast<std::uint32_t>(dice.between(3, target.steps / 2));
  if (dice.one_in(8)) {
    Disturbance launcher{.kind = Disturbance::Kind::kill_launcher, .rule = {}, .rank = {}, .step = Step{dice.between(2, target.steps * 3 / 4)}};
    launcher.pause = milliseconds{dice.between(0, 30)};
    launcher.at_checkpoint = dice.one_in(2);
    round.disturbances.push_back(launcher);
  } else {
    round.disturbances.push_back(draw_disturbance(dice, target, round));
    if (dice.one_in(3)) draw_second(dice, target, round);
  }
  for (const Disturbance& each : round.disturbances)
    if ((each.at_checkpoint || each.kind == Disturbance::Kind::kill_launcher) && round.checkpoint_interval == 0)
      round.checkpoint_interval = static_cast<std::uint32_t>(dice.between(3, target.steps / 2));
  return round;
}

std::string describe(const Disturbance& disturbance) {
  const std::string when = disturbance.while_recovering ? "while it recovers" : fmt::format("at step {}", disturbance.step.value());
  switch (disturbance.kind) {
    case Disturbance::Kind::rule: return disturbance.rule;
    case Disturbance::Kind::kill: return fmt::format("kill -9 of rank {} {}", disturbance.rank.value(), when);
    case Disturbance::Kind::stop: return fmt::format("SIGSTOP of rank {} {}", disturbance.rank.value(), when);
    case Disturbance::Kind::kill_launcher:
      return fmt::format("kill -9 of the launcher {}{}", when, disturbance.at_checkpoint ? ", as a checkpoint is written" : "");
  }
  return {};
}

}  // namespace troupe
