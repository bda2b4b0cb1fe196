#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/trace/run_timeline.hpp"

namespace troupe {

/// One operation of a lane. Its strings belong to the RunTimeline that it was taken from.
struct LaneSpan {
  std::uint32_t rank = 0;  ///< place in RunTimeline::ranks
  std::string_view lane, name;
  Where where{};
  Nanos issued{0}, started{0}, ended{0};
  std::optional<std::size_t> before;  ///< the operation before it on its lane
  std::optional<Nanos> together;      ///< a collective's: when the last rank had come
  std::uint32_t last_rank = 0;        ///< … and which that was
  [[nodiscard]] std::string_view kind() const noexcept { return name.substr(0, name.find(' ')); }
};

/// Why an operation began no earlier.
struct Cause {
  enum class Kind : std::uint8_t {
    unknown,
    lane,    ///< the operation before it on its lane
    letter,  ///< it was posted when this letter came
    device,  ///< an operation of another lane of its rank, on whose end the device waited
  };
  Kind kind = Kind::unknown;
  std::string_view letter;                 ///< its kind
  std::string_view edge;                   ///< a SlotHome's
  std::optional<std::size_t> predecessor;  ///< the operation that the cause goes back to, or of its rank what ended last before it; missing for the first alone
};

/// A timeline's operations, and what each waited for, found from the letters: an operation is posted inside the handler of the letter
/// that was last to come, and a letter leaves when an operation is done, or out of another handler.
class StepCauses {
 public:
  /// The timeline outlives this.
  explicit StepCauses(const RunTimeline& timeline);
  /// By rank, lane, start.
  [[nodiscard]] std::span<const LaneSpan> operations() const noexcept { return operations_; }
  /// Of one lane of a rank; empty where it has none.
  [[nodiscard]] std::span<const LaneSpan> lane(std::uint32_t rank, std::string_view lane) const;
  [[nodiscard]] std::vector<std::string_view> lanes(std::uint32_t rank) const;
  /// Its predecessor has ended by the operation's start: whoever goes from one to the next comes to the timeline's first.
  [[nodiscard]] Cause cause_of(const LaneSpan& operation) const;
  [[nodiscard]] std::size_t index_of(const LaneSpan& operation) const noexcept { return static_cast<std::size_t>(&operation - operations_.data()); }

 private:
  struct Handler {
    std::string_view letter;
    Where where{};
    Nanos started{0}, ended{0};
    std::uint64_t flow = 0;
  };
  struct Sent {
    std::uint32_t rank = 0;
    std::string_view track;
    Nanos at{0};
    Where where{};
  };
  struct SlotChange {
    Nanos at;
    std::string_view edge;
    std::uint64_t in_use;
  };
  void read(std::uint32_t rank, const RankTrace& trace);
  void find_collectives();
  [[nodiscard]] const Handler* posting(const LaneSpan& operation) const;
  [[nodiscard]] const Handler* handler_at(std::uint32_t rank, std::string_view track, Nanos at) const;
  [[nodiscard]] Cause what_it_waited_for(const LaneSpan& operation) const;
  [[nodiscard]] std::optional<std::size_t> told_by_lane(const Sent& sent, const Where& where) const;
  [[nodiscard]] std::optional<std::size_t> newest_before(const LaneSpan& operation) const;
  [[nodiscard]] std::optional<std::size_t> origin(const Handler& handler, int depth = 0) const;
  [[nodiscard]] std::optional<std::size_t> done_before(std::uint32_t rank, std::string_view lane, Nanos at, const Where* where) const;
  [[nodiscard]] std::string_view edge_of(std::uint32_t rank, const Handler& handler) const;

  std::vector<LaneSpan> operations_;
  std::map<std::pair<std::uint32_t, std::string_view>, std::pair<std::size_t, std::size_t>> lanes_;  ///< first, past the last
  std::map<std::pair<std::uint32_t, std::string_view>, std::vector<Handler>> handlers_;
  std::unordered_map<std::uint64_t, Sent> sent_;
  std::map<std::uint32_t, std::vector<SlotChange>> slots_;
};

}  // namespace troupe
