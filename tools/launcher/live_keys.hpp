#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.hpp"

namespace troupe {

/// How a key of a run that is going on is changed.
enum class LiveKind : std::uint8_t {
  step,  ///< the launcher alone decides, step by step; ranks are told its consequence with the permission for each step
  epoch  ///< the ranks build what follows from it anew, in the same processes, between two steps
};

/// The error names the key and says why it cannot be changed, or the key that may have been meant.
[[nodiscard]] Result<LiveKind> live_kind(std::string_view written);
/// The keys that are changed so, with commas between.
[[nodiscard]] std::string live_keys(LiveKind kind);
/// Its full name, whatever alias was written; what was written, if no key has the name.
[[nodiscard]] std::string canonical_key(std::string_view written);

}  // namespace troupe
