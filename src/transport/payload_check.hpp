#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <thread>

namespace troupe {

/// Hashes large payloads on a thread of its own, so that the transport's goes on moving the next one meanwhile.
class PayloadCheck {
 public:
  PayloadCheck();
  ~PayloadCheck();  ///< answers what it was given first
  PayloadCheck(const PayloadCheck&) = delete;
  PayloadCheck& operator=(const PayloadCheck&) = delete;
  /// `answer(intact)` is called on this object's thread; the payload must stay until then.
  void check(std::span<const std::byte> payload, std::uint64_t hash, std::function<void(bool)> answer);

 private:
  struct Task {
    std::span<const std::byte> payload;
    std::uint64_t hash;
    std::function<void(bool)> answer;
  };
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace troupe
