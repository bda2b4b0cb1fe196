#pragma once
#include <initializer_list>
#include <optional>

#include "src/base/result.hpp"
#include "tools/launcher/socket.hpp"

namespace troupe {

/// Signals as something to poll for. Make it before the first thread: threads inherit the blocked mask.
class SignalQueue {
 public:
  explicit SignalQueue(std::initializer_list<int> signals);
  [[nodiscard]] int get() const noexcept { return descriptor_.get(); }
  /// The next one that came, if any. Does not block.
  [[nodiscard]] std::optional<int> next() const;

 private:
  Descriptor descriptor_;
};

}  // namespace troupe
