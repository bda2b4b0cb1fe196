#include "src/simulation/findings.hpp"

#include <algorithm>
#include <utility>

#include "src/base/fnv.hpp"

namespace troupe {
namespace {

/// splitmix64's finaliser: every bit of the input reaches every bit of the result.
std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

}  // namespace

std::string_view name_of(Invariant invariant) noexcept {
  switch (invariant) {
    case Invariant::ordered_slot_access: return "ordered slot access";
    case Invariant::issue_order: return "issue order";
    case Invariant::leases_home: return "leases home";
    case Invariant::step_ledger: return "step ledger";
    case Invariant::equal_verdicts: return "equal verdicts";
    case Invariant::one_epoch: return "one epoch";
    case Invariant::progress: return "progress";
    case Invariant::live_data: return "live data";
    case Invariant::repeatable_trace: return "repeatable trace";
  }
  return "unknown invariant";
}

void Findings::add(Invariant invariant, std::string text) {
  if (found_.size() < limit || !has(invariant)) {
    found_.push_back({invariant, std::move(text)});
  } else {
    ++dropped_;
  }
}

bool Findings::has(Invariant invariant) const noexcept {
  return std::any_of(found_.begin(), found_.end(), [&](const Finding& finding) { return finding.invariant == invariant; });
}

std::string Findings::text() const {
  std::string result;
  for (const Finding& finding : found_) {
    result += name_of(finding.invariant);
    result += ": " + finding.text + "\n";
  }
  if (dropped_ > 0) result += "and " + std::to_string(dropped_) + " more\n";
  return result;
}

void TraceHash::add(Nanos time, std::string_view what, std::uint64_t a, std::uint64_t b, std::uint64_t c) noexcept {
  std::uint64_t entry = fnv1a(what);
  entry = mix(mix(mix(entry ^ a) + b) ^ c);
  order_ = mix(order_ + entry);
  timed_ = mix(timed_ + entry + mix(static_cast<std::uint64_t>(time.count())));
  ++events_;
}

}  // namespace troupe
