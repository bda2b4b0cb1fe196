#include "src/simulation/core_pool.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace troupe {

CorePool::CorePool(VirtualClock& clock, double capacity)
    : clock_(clock), capacity_(capacity), load_(static_cast<std::size_t>(std::max(1.0, std::ceil(capacity - 1e-9)))) {}

double CorePool::speed(const Thread& thread) const noexcept {
  const auto cores = static_cast<double>(load_.size()), working = cores - static_cast<double>(std::ranges::count(load_, std::size_t{0}));
  const double loss = cores > 1 ? (1 - capacity_ / cores) * (working - 1) / (cores - 1) : 1 - capacity_;  // of each core, as more are busy
  return (1 - std::max(loss, 0.0)) / static_cast<double>(load_[thread.core]);
}

std::size_t CorePool::place(const void* who) {
  const auto idle = std::ranges::find(load_, std::size_t{0});
  const auto before = last_core_.find(who);
  std::size_t core = static_cast<std::size_t>(std::ranges::min_element(load_) - load_.begin());
  if (who != nullptr && before != last_core_.end() && (load_[before->second] == 0 || idle == load_.end())) core = before->second;
  if (who != nullptr) last_core_[who] = core;
  return core;
}

void CorePool::advance() {
  const auto passed = static_cast<double>((clock_.now() - at_).count());
  for (Thread& thread : threads_) thread.left -= passed * speed(thread);
  at_ = clock_.now();
}

void CorePool::spend(Nanos work, std::function<void()> done, const void* who) {
  advance();
  const std::size_t core = place(who);
  ++load_[core];
  threads_.push_back({static_cast<double>(work.count()), core, std::move(done)});
  wait_for_next();
}

void CorePool::wait_for_next() {
  ++round_;
  if (threads_.empty()) return;
  double soonest = std::numeric_limits<double>::max();
  for (const Thread& thread : threads_) soonest = std::min(soonest, std::max(thread.left, 0.0) / speed(thread));
  clock_.after(Nanos{std::llround(std::ceil(soonest))}, [this, round = round_] { finish(round); });
}

void CorePool::finish(std::uint64_t round) {
  if (round != round_) return;
  advance();
  std::vector<std::function<void()>> done;
  for (auto thread = threads_.begin(); thread != threads_.end();) {
    if (thread->left > 0.5) {
      ++thread;
      continue;
    }
    done.push_back(std::move(thread->done));
    --load_[thread->core];
    thread = threads_.erase(thread);
  }
  wait_for_next();
  for (const auto& then : done) then();
}

}  // namespace troupe
