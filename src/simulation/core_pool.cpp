#include "src/simulation/core_pool.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace troupe {

double CorePool::speed() const noexcept { return threads_.empty() ? 1 : std::min(1.0, cores_ / static_cast<double>(threads_.size())); }

void CorePool::advance() {
  const double passed = static_cast<double>((clock_.now() - at_).count()) * speed();
  for (Thread& thread : threads_) thread.left -= passed;
  at_ = clock_.now();
}

void CorePool::spend(Nanos work, std::function<void()> done) {
  advance();
  threads_.push_back({static_cast<double>(work.count()), std::move(done)});
  wait_for_next();
}

void CorePool::wait_for_next() {
  ++round_;
  if (threads_.empty()) return;
  const double least = std::ranges::min_element(threads_, {}, &Thread::left)->left;
  clock_.after(Nanos{std::llround(std::ceil(std::max(least, 0.0) / speed()))}, [this, round = round_] { finish(round); });
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
    thread = threads_.erase(thread);
  }
  wait_for_next();
  for (const auto& then : done) then();
}

}  // namespace troupe
