#include <algorithm>
#include <chrono>
#include <utility>

#include "src/transport/ucx_transport.hpp"

/// What fault rules do to frames on their way out, as a network would: the sealer has numbered them already.
namespace troupe {
namespace {

constexpr Nanos overtaken_for = std::chrono::milliseconds(50);  ///< a letter that others overtake, unless the rule says how long
constexpr std::size_t behind_sender = 24;                       ///< a frame that claims another sender would only wait for that one to connect

}  // namespace

void UcxTransport::flip_a_bit(std::vector<std::byte>& frame, std::uint64_t random) {
  const std::size_t at = behind_sender + random % (frame.size() - behind_sender);
  frame[at] ^= std::byte{1} << static_cast<int>((random >> 32U) % 8);
}

void UcxTransport::put_with(const Fault& fault, UcxOutgoing* outgoing) {
  const Nanos now = clock_.now();
  switch (fault.action) {
    case FaultAction::delay: return hold({outgoing, now + fault.duration, true});
    case FaultAction::reorder: return hold({outgoing, now + std::max(fault.duration, overtaken_for), false});
    case FaultAction::duplicate: {
      auto* again = new UcxOutgoing{outgoing->link, nullptr, outgoing->frame, 0, nullptr, now};
      put(outgoing);
      return put(again);
    }
    default: return put(outgoing);
  }
}

void UcxTransport::hold(Held held) {
  ++held.outgoing->link->pending;
  if (held.blocks) ++held.outgoing->link->held_back;
  held_.push_back(held);
}

/// Behind a letter that is held up: the order of a link stays.
bool UcxTransport::queue_behind(UcxOutgoing* outgoing) {
  if (outgoing->link->held_back == 0) return false;
  const auto last = std::find_if(held_.rbegin(), held_.rend(), [&](const Held& held) { return held.blocks && held.outgoing->link == outgoing->link; });
  hold({outgoing, last->until, true});
  return true;
}

bool UcxTransport::release_held(Nanos until) {
  if (held_.empty()) return false;
  std::vector<Held> due;
  std::copy_if(held_.begin(), held_.end(), std::back_inserter(due), [&](const Held& held) { return held.until <= until; });
  std::erase_if(held_, [&](const Held& held) { return held.until <= until; });
  for (const Held& held : due) {
    --held.outgoing->link->pending;
    if (held.blocks) --held.outgoing->link->held_back;
    hand_over(held.outgoing);
  }
  return !due.empty();
}

}  // namespace troupe
