#include "src/metrics/progress_bar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace troupe {
namespace {

using namespace std::chrono_literals;
constexpr int bar_width = 20;

}  // namespace

ProgressBar::ProgressBar(std::string what, std::string unit, double unit_size, bool terminal, const Clock& clock, std::function<void(std::string_view)> write)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      unit_size_(unit_size),
      terminal_(terminal),
      clock_(clock),
      write_(std::move(write)),
      began_(clock.now()),
      next_(began_ + 1s) {}

ProgressBar::~ProgressBar() {
  if (drawn_) write_("\n");
}

void ProgressBar::update(std::uint64_t done, std::uint64_t total) {
  const Nanos now = clock_.now();
  const bool last = done == total && drawn_;
  if (now < next_ && !last) return;
  const double seconds = std::chrono::duration<double>(now - began_).count();
  const std::string line = text(static_cast<double>(done), static_cast<double>(std::max<std::uint64_t>(total, 1)), seconds);
  if (terminal_)
    write_("\r" + line + "\033[K");
  else
    write_(line + "\n");
  drawn_ = terminal_;
  next_ = now + (terminal_ ? Nanos(100ms) : Nanos(5s));
}

std::string ProgressBar::text(double done, double total, double seconds) const {
  const double part = std::min(done / total, 1.0);
  const auto filled = static_cast<int>(part * bar_width);
  const std::string left = part > 0 ? fmt::format("{:.0f} s left", seconds / part - seconds) : std::string("…");
  return fmt::format("{}  [{:#<{}}{:-<{}}]  {:3.0f} %  {:.0f} of {:.0f} {}  {}", what_, "", filled, "", bar_width - filled, 100 * part, done / unit_size_,
                     total / unit_size_, unit_, left);
}

}  // namespace troupe
