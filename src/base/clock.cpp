#include "src/base/clock.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace troupe {
namespace {

class SystemClock final : public Clock {
 public:
  SystemClock() : thread_([this] { run(); }) {}
  ~SystemClock() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  SystemClock(const SystemClock&) = delete;
  SystemClock& operator=(const SystemClock&) = delete;

  [[nodiscard]] Nanos now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }

  void after(Nanos delay, std::function<void()> then) override {
    {
      const std::lock_guard lock(mutex_);
      pending_.emplace(now() + delay, std::move(then));
    }
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (pending_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const auto due = pending_.begin()->first;
      if (now() < due) {
        changed_.wait_until(lock, std::chrono::steady_clock::time_point(due));
        continue;
      }
      auto then = std::move(pending_.begin()->second);
      pending_.erase(pending_.begin());
      lock.unlock();
      then();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Nanos, std::function<void()>> pending_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Clock> make_system_clock() { return std::make_unique<SystemClock>(); }

}  // namespace troupe
