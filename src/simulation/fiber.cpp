#include "src/simulation/fiber.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace troupe {
namespace {

constexpr std::size_t stack_bytes = std::size_t{1} << 20;  // reserved, committed as touched
constexpr std::size_t guard_bytes = std::size_t{1} << 14;

}  // namespace

struct Fiber::State {
  ucontext_t inside{}, outside{};
  void* stack = nullptr;
  std::function<void()> work;
  bool working = false, unwinding = false;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_inside = nullptr;
  void* fake_outside = nullptr;
  const void* outer_stack = nullptr;
  std::size_t outer_size = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan_inside = __tsan_create_fiber(0);
  void* tsan_outside = nullptr;
#endif

  /// Address and thread sanitizers follow a switch of stacks only when told.
  void enter() {
#if defined(__SANITIZE_THREAD__)
    tsan_outside = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_inside, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_outside, static_cast<std::byte*>(stack) + guard_bytes, stack_bytes);
#endif
    swapcontext(&outside, &inside);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_outside, nullptr, nullptr);
#endif
  }

  void leave() {
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(tsan_outside, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_inside, outer_stack, outer_size);
#endif
    swapcontext(&inside, &outside);
    entered();
  }

  void entered() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_inside, &outer_stack, &outer_size);
#endif
  }

  void loop() {
    entered();
    while (true) {
      try {
        work();
      } catch (const FiberUnwound&) {  // the simulation is over
      }
      work = nullptr;
      working = false;
      leave();
    }
  }

  /// makecontext passes ints alone: the pointer travels in two.
  static void trampoline(unsigned high, unsigned low) {
    const auto address = (static_cast<std::uintptr_t>(high) << 32U) | low;
    reinterpret_cast<State*>(address)->loop();
  }
};

Fiber::Fiber() : state_(std::make_unique<State>()) {
  void* memory = mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, guard_bytes, PROT_NONE);
  state_->stack = memory;
  getcontext(&state_->inside);
  state_->inside.uc_stack.ss_sp = static_cast<std::byte*>(memory) + guard_bytes;
  state_->inside.uc_stack.ss_size = stack_bytes;
  state_->inside.uc_link = nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(state_.get());
  makecontext(&state_->inside, reinterpret_cast<void (*)()>(&State::trampoline), 2, static_cast<unsigned>(address >> 32U), static_cast<unsigned>(address));
}

Fiber::~Fiber() {
  if (state_->working) {
    state_->unwinding = true;
    state_->enter();
  }
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(state_->tsan_inside);
#endif
  munmap(state_->stack, guard_bytes + stack_bytes);
}

void Fiber::start(std::function<void()> work) {
  state_->work = std::move(work);
  state_->working = true;
  state_->enter();
}

void Fiber::resume() { state_->enter(); }

void Fiber::wait() {
  state_->leave();
  if (state_->unwinding) throw FiberUnwound{};
}

bool Fiber::at_rest() const noexcept { return !state_->working; }

}  // namespace troupe
