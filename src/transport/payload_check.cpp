#include "src/transport/payload_check.hpp"

#include <utility>

#include "messages/frame.hpp"

namespace troupe {

PayloadCheck::PayloadCheck() : thread_([this] { run(); }) {}

PayloadCheck::~PayloadCheck() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void PayloadCheck::check(std::span<const std::byte> payload, std::uint64_t hash, std::function<void(bool)> answer) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({payload, hash, std::move(answer)});
  }
  changed_.notify_one();
}

void PayloadCheck::run() {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task.answer(payload_hash(task.payload) == task.hash);
  }
}

}  // namespace troupe
