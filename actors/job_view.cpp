#include "actors/job_view.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace troupe {
namespace {

using std::chrono::seconds;

double in_seconds(Nanos time) { return std::chrono::duration<double>(time).count(); }

constexpr Nanos silence = seconds{3};   ///< of a rank, whose heart beats every second
constexpr Nanos patience = seconds{1};  ///< before anybody is said to hold others up

}  // namespace

std::string JobView::headline(Nanos now) const {
  Membership members;
  for (const RankView& rank : ranks) {
    members.joined(rank.joined);
    Pulse pulse = rank.pulse;
    if (!pulse.oldest.empty()) pulse.oldest_age += now - pulse.heard;  // it was pending then, and nothing has come since
    members.heard(rank.joined.rank, pulse);
  }
  const bool waits = now - progress_at > patience;
  if (phase == "running" && waits) {
    if (const auto culprit = members.culprit(now, silence)) return culprit->text;
    return fmt::format("no step was told for {:.1f} s; {}", in_seconds(now - progress_at), members.describe_slowest());
  }
  if (!absent.empty()) {
    std::string names;
    for (const Rank rank : absent) names += fmt::format("{}{}", names.empty() ? "" : ", ", rank.value());
    return fmt::format("{}: rank {} {} not here{}", phase, names, absent.size() == 1 ? "is" : "are", phase == "recovering" ? " yet again" : " yet");
  }
  return fmt::format("{}: step {} of {}, epoch {}, {} ranks{}", phase, newest.value(), last.value(), epoch.value(), world_size,
                     steps_per_second > 0 ? fmt::format(", {:.1f} steps/s", steps_per_second) : "");
}

std::string ChangeView::line() const {
  const char* const how = state == State::refused ? "; refused: " : state == State::waits ? "; waits for its epoch" : "";
  return fmt::format("from step {} on: {} ({}){}{}", from.value(), text, by, how, state == State::refused ? problem : std::string{});
}

std::string JobView::text(Nanos now) const {
  std::string out = headline(now) + "\n";
  out += fmt::format("  a fault would go back to {}; {} process{} started again so far\n", restore.empty() ? "the start" : restore, respawns,
                     respawns == 1 ? " was" : "es were");
  if (rollbacks > 0) out += fmt::format("  training was rolled back {} time{} (training.guard)\n", rollbacks, rollbacks == 1 ? "" : "s");
  for (const ChangeView& change : changes) out += "  changed: " + change.line() + "\n";
  for (const RankView& rank : ranks) {
    const Nanos quiet = now - rank.pulse.heard;
    out += fmt::format("rank {}  pid {} on {}{}  step {}  {:.1f} MiB  heard {:.1f} s ago{}\n", rank.joined.rank.value(), rank.joined.pid, rank.joined.host,
                       rank.joined.incarnation == Incarnation{0} ? "" : fmt::format(" (incarnation {})", rank.joined.incarnation.value()),
                       rank.pulse.step.value(), static_cast<double>(rank.pulse.resident_bytes) / 1048576.0, in_seconds(quiet),
                       quiet > silence ? "  SILENT"
                       : rank.resting  ? "  at rest"
                                       : "");
    if (!rank.pulse.oldest.empty())
      out += fmt::format("  oldest      {} for {:.3f} s\n", rank.pulse.oldest.substr(0, rank.pulse.oldest.find(';')), in_seconds(rank.pulse.oldest_age));
    for (const ActorPulse& actor : rank.pulse.actors) {
      out += fmt::format("  {:<11} {}\n", name_of(actor.actor), actor.text);
      if (!actor.waiting.empty()) out += fmt::format("  {:<11}   waits for {}\n", "", actor.waiting);
    }
  }
  return out;
}

}  // namespace troupe
