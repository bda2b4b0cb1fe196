#include "src/simulation/virtual_world.hpp"

#include "src/runtime/send.hpp"

namespace troupe {

VirtualWorld::VirtualWorld(const WorldOptions& options) : options_(options), random_(options.seed + 0x5eed), clock_(options.seed) {
  post_office_.deliver_with(actors_.directory(), [this] {
    while (actors_.run_one(0)) {}
  });
}

VirtualWorld::~VirtualWorld() { close(); }

double VirtualWorld::draw() { return options_.seed == 0 ? 0 : static_cast<double>(random_() >> 11U) * 0x1p-53; }

Nanos VirtualWorld::letter_delay() { return Nanos{static_cast<Nanos::rep>(static_cast<double>(options_.letter_delay.count()) * draw())}; }

/// Everything of this instant: actors that want to run, letters under way. False: it never ends.
bool VirtualWorld::settle() {
  const Nanos latest = clock_.now() + options_.handler_delay;
  for (std::uint64_t steps = 0; steps < options_.max_letters; ++steps) {
    if (actors_.jobs() > 0) {
      (void)actors_.run_one(options_.seed == 0 ? 0 : pick(actors_.jobs()));
      continue;
    }
    if (options_.seed != 0 && !clock_.idle() && clock_.next() <= latest && pick(4) == 0) {
      clock_.advance();  // what ends at about one instant does not wait for the letters of what ended before
      continue;
    }
    if (!post_office_.step()) return true;
  }
  return false;
}

RunEnd VirtualWorld::run(const std::function<bool()>& finished, Nanos limit) {
  const Nanos deadline = clock_.now() + limit;
  while (true) {
    if (!settle()) return not_finished(RunEnd::How::livelock, "letters of one instant never end");
    if (finished()) return {};
    if (clock_.idle()) return not_finished(RunEnd::How::stuck, "nothing is left to do and the run has not finished");
    if (clock_.next() > deadline)
      return not_finished(RunEnd::How::out_of_time, "not finished within " + std::to_string(limit.count() / 1000000) + " ms of virtual time");
    clock_.advance();
  }
}

RunEnd VirtualWorld::not_finished(RunEnd::How how, const std::string& why) {
  std::string report = why + " (seed " + std::to_string(options_.seed) + ", at " + std::to_string(clock_.now().count() / 1000) + " us)\n";
  for (const auto& line : reports_) {
    if (const std::string text = line(); !text.empty()) report += "  " + text + "\n";
  }
  if (how != RunEnd::How::livelock) {
    (void)post_office_.take_inspections();
    auto log = make_null_log();
    Runtime runtime{clock_, *log, post_office_};
    for (const ActorAddress& address : std::set<ActorAddress>(post_office_.correspondents())) {
      send<schema::Inspect>(runtime, Heading{address, {address.rank, ActorKind::supervisor}, {}, {}, Nanos{0}, 0}, [](auto) {});
    }
    (void)settle();
    for (const std::string& text : post_office_.take_inspections()) report += "  " + text + "\n";
  }
  findings_.add(Invariant::progress, report);
  return {how, report};
}

void VirtualWorld::close() {
  post_office_.close();
  clock_.clear();
}

}  // namespace troupe
