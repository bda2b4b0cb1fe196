#pragma once
#include <functional>
#include <memory>

namespace troupe {

/// A stack of its own for work that waits in the middle (a collective) while one thread simulates every rank. Not for other threads.
class Fiber {
 public:
  Fiber();
  ~Fiber();  ///< what is suspended is unwound: its wait throws
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs `work` until it ends or waits; only when the fiber is at rest. `work` lets no exception out.
  void start(std::function<void()> work);
  /// Goes on where `wait` stood. From outside the fiber.
  void resume();
  /// Back to whoever called start() or resume(). From inside. Throws FiberUnwound when the fiber is being destroyed.
  void wait();
  [[nodiscard]] bool at_rest() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Ends suspended work of a simulation that is over.
struct FiberUnwound {};

}  // namespace troupe
