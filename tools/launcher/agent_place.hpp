#pragma once
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace troupe {

/// Who is the agent of a node, and who else has come to be it: the agent is asked whether it lives, and others come again until this is known. A value, of one
/// thread; processes by host and PID.
class AgentPlace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds limit{10};  ///< for an agent to say that it lives

  explicit AgentPlace(std::string who) : who_(std::move(who)) {}
  [[nodiscard]] const std::string& who() const noexcept { return who_; }

  enum class Visit {
    ask,     ///< the agent is to be asked now, and the visitor comes again
    wait,    ///< it has been asked, and may still answer
    decided  ///< silent() says how
  };
  [[nodiscard]] Visit visited_by(const std::string& rival, Time now) {
    const bool first = rivals_.insert(rival).second;
    if (first && !asked_) {
      asked_ = now;
      return Visit::ask;
    }
    return asked_ && now - *asked_ <= limit ? Visit::wait : Visit::decided;
  }
  /// It said something.
  void lives() { asked_.reset(); }
  /// It was asked, and has said nothing since.
  [[nodiscard]] bool silent() const noexcept { return asked_.has_value(); }
  /// If it comes again, the agent is asked again.
  void refused(const std::string& rival) { rivals_.erase(rival); }

 private:
  std::string who_;
  std::set<std::string> rivals_;
  std::optional<Time> asked_;
};

}  // namespace troupe
