#pragma once
#include <httplib.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

/// Serves the connections of an HTTP server on threads of its own, which are started as they are needed. Both threads and waiting connections are
/// bounded: whoever opens more waits in the listening socket and takes neither memory nor descriptors of this process.
class ConnectionQueue final : public httplib::TaskQueue {
 public:
  /// Starts the first thread. Throws std::system_error where the system gives none.
  ConnectionQueue(std::size_t most_threads, std::size_t most_waiting) : most_threads_(most_threads), most_waiting_(most_waiting) { start_thread(); }
  ~ConnectionQueue() override { end(); }
  ConnectionQueue(const ConnectionQueue&) = delete;
  ConnectionQueue& operator=(const ConnectionQueue&) = delete;

  /// By the thread that accepts; blocks while as many wait as may. Nothing or bool, as the version of the library wants it.
  auto enqueue(std::function<void()> serve) -> decltype(std::declval<httplib::TaskQueue&>().enqueue(std::function<void()>{})) override {
    std::unique_lock lock(mutex_);
    ++held_back_;
    room_.wait(lock, [this] { return waiting_.size() < most_waiting_; });
    --held_back_;
    waiting_.push_back(std::move(serve));
    if (idle_ < waiting_.size() && threads_.size() < most_threads_) start_thread();
    work_.notify_one();
    using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue(std::function<void()>{}));
    return static_cast<Taken>(true);
  }
  /// Whether a thread stands in `enqueue` for want of room. Any thread.
  [[nodiscard]] bool holds_back() const {
    const std::lock_guard lock(mutex_);
    return held_back_ > 0;
  }
  /// What waits is served, or ends by itself where the server is stopped; then the threads end.
  void shutdown() override { end(); }

 private:
  /// Where the system gives no thread, those that are there serve what waits; a server without any does not begin.
  void start_thread() {
    try {
      threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
    }
  }
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      work_.wait(lock, [this] { return over_ || !waiting_.empty(); });
      --idle_;
      if (waiting_.empty()) return;
      const std::function<void()> serve = std::move(waiting_.front());
      waiting_.pop_front();
      room_.notify_one();
      lock.unlock();
      serve();
      lock.lock();
    }
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  const std::size_t most_threads_, most_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable work_, room_;
  std::list<std::function<void()>> waiting_;
  std::vector<std::thread> threads_;  ///< of the thread that accepts alone
  std::size_t idle_ = 0, held_back_ = 0;
  bool over_ = false;
};

}  // namespace troupe
