#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "src/device/lane.hpp"

namespace troupe {

const char* name_of(LaneKind lane) noexcept {
  switch (lane) {
    case LaneKind::compute: return "compute";
    case LaneKind::comm: return "comm";
    case LaneKind::optimizer: return "optimizer";
    case LaneKind::disk: return "disk";
    case LaneKind::copy: return "copy";
    case LaneKind::storage: return "storage";
  }
  return "unknown";
}

namespace {

class ThreadLane final : public Lane {
 public:
  ThreadLane(LaneKind kind, Rank rank, const Clock& clock, LaneObserver* observer)
      : kind_(kind), clock_(clock), observer_(observer), thread_([this] { run(); }) {
    const std::string name = std::string(name_of(kind)).substr(0, 10) + " " + std::to_string(rank.value());
    pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
  }

  ~ThreadLane() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  ThreadLane(const ThreadLane&) = delete;
  ThreadLane& operator=(const ThreadLane&) = delete;

  void post(LaneOperation operation) override {
    {
      const std::lock_guard lock(mutex_);
      ++posted_;
      queue_.push_back({std::move(operation), clock_.now()});
    }
    changed_.notify_all();
  }

  void halt(std::string cause) override {
    const std::lock_guard lock(mutex_);
    if (halted_) return;
    halted_ = true;
    cause_ = std::move(cause);
  }

  [[nodiscard]] LaneProgress progress() const override {
    const std::lock_guard lock(mutex_);
    LaneProgress result{posted_, completed_, {}, Nanos{0}};
    if (running_) {
      result.oldest_pending = running_name_;
      result.pending_since = running_since_;
    } else if (!queue_.empty()) {
      result.oldest_pending = queue_.front().operation.name;
      result.pending_since = queue_.front().posted;
    }
    return result;
  }

  [[nodiscard]] bool drain(Nanos limit) override {
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, limit, [this] { return queue_.empty() && !running_; });
  }

 private:
  struct Entry {
    LaneOperation operation;
    Nanos posted;
  };

  void run() {
    Stream stream;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;  // stopping, and nothing is left: what was posted still ends, as halted or done
      Entry entry = std::move(queue_.front());
      queue_.pop_front();
      Outcome outcome = halted_ ? Outcome{Outcome::Kind::halted, cause_} : Outcome{};
      running_ = true;
      running_name_ = entry.operation.name;
      running_since_ = clock_.now();
      lock.unlock();

      const Nanos started = clock_.now();
      if (outcome.ok() && entry.operation.work) outcome = run_work(entry.operation, stream);
      const Nanos ended = clock_.now();
      {
        const std::lock_guard relock(mutex_);
        if (halted_ && outcome.ok()) outcome = {Outcome::Kind::halted, cause_};
        if (!halted_ && !outcome.ok() && entry.operation.failure_halts_lane) {
          halted_ = true;
          cause_ = outcome.cause;
        }
      }
      if (observer_) observer_->finished(kind_, entry.operation, entry.posted, started, ended, outcome);
      finish(entry.operation, outcome);

      lock.lock();
      running_ = false;
      ++completed_;
      if (queue_.empty()) idle_.notify_all();
    }
  }

  static Outcome run_work(const LaneOperation& operation, Stream& stream) {
    try {
      operation.work(stream);
      return {};
    } catch (const std::exception& problem) {
      return {Outcome::Kind::failed, operation.name + ": " + problem.what()};
    } catch (...) {
      return {Outcome::Kind::failed, operation.name + ": unknown exception"};
    }
  }

  /// The completion letter leaves first, then the slots go home, so a reader of both sees the fact before the free slot.
  static void finish(LaneOperation& operation, const Outcome& outcome) {
    operation.work = nullptr;
    if (operation.done) operation.done(outcome);
    operation.done = nullptr;
    operation.leases.clear();
  }

  const LaneKind kind_;
  const Clock& clock_;
  LaneObserver* const observer_;
  mutable std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<Entry> queue_;
  std::uint64_t posted_ = 0, completed_ = 0;
  bool running_ = false, halted_ = false, stopping_ = false;
  std::string running_name_, cause_;
  Nanos running_since_{0};
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Lane> make_thread_lane(LaneKind kind, Rank rank, const Clock& clock, LaneObserver* observer) {
  return std::make_unique<ThreadLane>(kind, rank, clock, observer);
}

}  // namespace troupe
