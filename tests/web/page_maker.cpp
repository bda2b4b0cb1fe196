// page_maker FILE SPANS: a timeline page of four made-up ranks with about so many spans, for the tests in a browser.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <unordered_map>

#include "tools/web/timeline_page.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t ranks = 4, layers = 16;

/// One rank's steps: gathers a layer ahead, forwards, backwards, reduces, a verdict; each operation told by a letter to a handler.
class MadeUpRank {
 public:
  MadeUpRank(std::uint32_t rank, std::uint32_t seed) : dice_(seed) { trace_.rank = Rank{rank}; }

  void step(std::uint64_t step, Nanos start) {
    step_ = Step{step};
    comm_ = compute_ = start;
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      gather(layer);
      compute("forward", layer, 300);
    }
    for (std::uint32_t layer = layers; layer-- > 0;) {
      gather(layer);
      compute("backward", layer, 620);
      reduce(layer);
    }
    comm_ = std::max(comm_, compute_);
    operation("comm", "verdict", 0, comm_, 60);
  }
  [[nodiscard]] Nanos now() const { return comm_; }
  [[nodiscard]] std::size_t spans() const { return spans_; }
  void mark(const std::string& text, Nanos at) { trace_.events.push_back({.kind = TraceEvent::Kind::mark, .name = id(text), .started = at}); }
  RankTrace take() { return std::move(trace_); }

 private:
  std::uint32_t id(const std::string& text) {
    const auto [found, fresh] = ids_.try_emplace(text, static_cast<std::uint32_t>(trace_.names.size()));
    if (fresh) trace_.names.push_back(text);
    return found->second;
  }
  Nanos about(int microseconds) { return Nanos{microseconds * 800 + static_cast<std::int64_t>(dice_() % 400U) * microseconds}; }

  Nanos operation(const char* lane, const std::string& kind, std::uint32_t layer, Nanos& at, int microseconds) {
    const Nanos length = about(microseconds);
    const Where where{EpochId{1}, step_, {}, Unit{layer}};
    trace_.events.push_back({.track = id(lane),
                             .name = id(kind + " L" + std::to_string(layer)),
                             .outcome = id("ok"),
                             .where = where,
                             .issued = at - Nanos{2000},
                             .started = at,
                             .ended = at + length});
    at += length;
    ++spans_;
    return at;
  }
  /// A letter that leaves at `at`, and its handler.
  void letter(const char* from, const char* to, const char* kind, std::uint32_t layer, Nanos at) {
    const Where where{EpochId{1}, step_, {}, Unit{layer}};
    const std::uint64_t flow = (std::uint64_t{trace_.rank.value()} << 36U) + ++flows_;
    const Nanos handled = at + about(20);
    trace_.events.push_back({.kind = TraceEvent::Kind::letter_sent, .track = id(from), .name = id(kind), .where = where, .started = at, .value = flow});
    trace_.events.push_back({.kind = TraceEvent::Kind::letter_received, .track = id(to), .name = id(kind), .where = where, .started = handled, .value = flow});
    trace_.events.push_back(
        {.track = id(to), .name = id(kind), .outcome = id("ok"), .where = where, .issued = at, .started = handled, .ended = handled + about(8)});
    ++spans_;
  }
  void slots(const char* edge, std::uint64_t count, Nanos at) {
    trace_.events.push_back({.kind = TraceEvent::Kind::slots, .track = id(edge), .name = id(edge), .started = at, .value = count});
  }

  void gather(std::uint32_t layer) {
    slots("weights", 1 + layer % 2, comm_);
    letter("sharding actor", "compute actor", "WeightsGathered", layer, operation("comm", "gather", layer, comm_, 210));
  }
  void compute(const char* kind, std::uint32_t layer, int microseconds) {
    compute_ = std::max(compute_, comm_ - Nanos{100'000});
    const Nanos end = operation("compute", kind, layer, compute_, microseconds);
    letter("compute actor", "sharding actor", kind[0] == 'f' ? "SlotHome" : "GradientReady", layer, end);
  }
  void reduce(std::uint32_t layer) {
    comm_ = std::max(comm_, compute_);
    slots("gradients", layer % 3, comm_);
    letter("sharding actor", "sharding actor", "GradientReduced", layer, operation("comm", "reduce", layer, comm_, 260));
  }

  RankTrace trace_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::mt19937 dice_;
  Step step_;
  Nanos comm_{0}, compute_{0};
  std::uint64_t flows_ = 0;
  std::size_t spans_ = 0;
};

RunTimeline made_up(std::size_t spans) {
  RunTimeline timeline;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    MadeUpRank made(rank, rank + 1);
    std::uint64_t step = 0;
    while (made.spans() < spans / ranks)
      made.step(step + 1, std::chrono::milliseconds{1} + std::chrono::milliseconds{24} * static_cast<std::int64_t>(step)), ++step;
    if (rank == 2) {
      made.mark("fault_fired: {\"rank\":2,\"operation\":\"reduce L5\"}", std::chrono::milliseconds{30});
      made.mark("changed: {\"changes\":[\"optimizer.lr=1e-4\"]}", std::chrono::milliseconds{60});
    }
    timeline.ranks.push_back(made.take());
    timeline.clocks.push_back(
        {.rank = Rank{rank}, .known = true, .offset = Nanos{rank * 1'500'000}, .error = Nanos{31'000}, .letters = rank * 400, .applied = rank > 0});
  }
  return timeline;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::ofstream out(argv[1], std::ios::binary);
  out << troupe::timeline_page(troupe::made_up(static_cast<std::size_t>(std::atoll(argv[2]))), "outputs/made_up");
  out.flush();
  return out ? 0 : 1;
}
