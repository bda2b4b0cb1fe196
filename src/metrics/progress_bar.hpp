#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "src/base/clock.hpp"

namespace troupe {

/// Progress of set-up work that takes long. On a terminal one line that is redrawn at most ten times a second:
///   indexing text  [#########---------]  48 %  121 of 252 MiB  3 s left
/// elsewhere a plain line every five seconds. Work that ends within the first second shows nothing. One thread.
class ProgressBar {
 public:
  /// `write` gets what is to be printed; `clock` outlives the bar. `unit_size`: work units that make one of `unit`.
  ProgressBar(std::string what, std::string unit, double unit_size, bool terminal, const Clock& clock, std::function<void(std::string_view)> write);
  /// Ends the line if one was drawn.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void update(std::uint64_t done, std::uint64_t total);

 private:
  [[nodiscard]] std::string text(double done, double total, double seconds) const;
  std::string what_, unit_;
  double unit_size_;
  bool terminal_, drawn_ = false;
  const Clock& clock_;
  std::function<void(std::string_view)> write_;
  Nanos began_, next_;
};

}  // namespace troupe
