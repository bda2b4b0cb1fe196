#pragma once
#include <fmt/format.h>

#include <string>
#include <utility>

#include "src/base/clock.hpp"

namespace troupe {

/// What a rank's start takes, part by part. One thread.
class StartTimes {
 public:
  explicit StartTimes(const Clock& clock) : clock_(clock) {}
  /// Runs `part` and remembers how long it took; gives on what it gives.
  template <class Part>
  decltype(auto) timed(const char* name, Part&& part) {
    const Took took{*this, name, clock_.now()};
    return std::forward<Part>(part)();
  }
  /// "device 0.81 s, memory 0.20 s, …", in the order of their ends.
  [[nodiscard]] const std::string& describe() const noexcept { return text_; }

 private:
  struct Took {
    StartTimes& times;
    const char* name;
    Nanos began;
    ~Took() {
      const auto seconds = static_cast<double>((times.clock_.now() - began).count()) * 1e-9;
      times.text_ += fmt::format("{}{} {:.2f} s", times.text_.empty() ? "" : ", ", name, seconds);
    }
  };
  const Clock& clock_;
  std::string text_;
};

}  // namespace troupe
