#include "src/collectives/shared_region.hpp"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <system_error>

namespace troupe {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free, "counters lie in memory shared by processes");

/// Zeroed memory is the valid first state of everything here.
struct SharedRegion::Header {
  enum : std::uint32_t { unset, writing, set };
  std::atomic<std::uint32_t> aborted;
  std::atomic<std::uint32_t> cause_state;
  char cause[1024 - 2 * sizeof(std::uint32_t)];  ///< zero-terminated, valid once cause_state is `set`
};

namespace {

constexpr std::uint64_t alignment = 64;
constexpr int spins = 400;                  ///< of about 40 cycles: a few microseconds, less than a sleep and a wake-up cost
constexpr Nanos longest_sleep{50'000'000};  ///< so that a clock that is not the machine's is asked often enough

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void wake(std::atomic<std::uint32_t>& word) noexcept { syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

void* map(int descriptor, std::uint64_t bytes) {
  const int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "cannot map " + std::to_string(bytes) + " bytes of shared memory");
  return memory;
}

}  // namespace

std::uint64_t RegionShape::bytes() const noexcept {
  return 1024 + std::uint64_t{members} * (rounded(sizeof(SharedRegion::Member)) + std::uint64_t{slots} * chunk_bytes);
}

std::shared_ptr<SharedRegion> SharedRegion::anonymous(const RegionShape& shape) {
  return std::shared_ptr<SharedRegion>(new SharedRegion(map(-1, shape.bytes()), shape));
}

std::shared_ptr<SharedRegion> SharedRegion::of_file(int descriptor, const RegionShape& shape) {
  return std::shared_ptr<SharedRegion>(new SharedRegion(map(descriptor, shape.bytes()), shape));
}

SharedRegion::SharedRegion(void* memory, const RegionShape& shape)
    : shape_(shape),
      memory_(static_cast<std::byte*>(memory)),
      header_(static_cast<Header*>(memory)),
      members_(reinterpret_cast<Member*>(memory_ + 1024)),
      chunks_(memory_ + 1024 + std::uint64_t{shape.members} * rounded(sizeof(Member))) {
  static_assert(sizeof(Header) == 1024);
}

SharedRegion::~SharedRegion() { munmap(memory_, shape_.bytes()); }

std::span<std::byte> SharedRegion::slot(std::uint32_t rank, std::uint64_t chunk) const noexcept {
  const std::uint64_t index = std::uint64_t{rank} * shape_.slots + chunk % shape_.slots;
  return {chunks_ + index * shape_.chunk_bytes, shape_.chunk_bytes};
}

// A waiter says "sleeping" before it looks at the counter for the last time, a writer writes the counter before it looks at
// "sleeping"; both orders are sequentially consistent, so one of the two sees the other and no wake-up is lost.
void SharedRegion::advance(std::uint32_t rank, Counter counter, std::uint64_t value) noexcept {
  (members_[rank].*counter).store(value, std::memory_order_seq_cst);
  for (std::uint32_t peer = 0; peer < shape_.members; ++peer) {
    if (peer == rank || members_[peer].sleeping.load(std::memory_order_seq_cst) == 0) continue;
    members_[peer].doorbell.fetch_add(1, std::memory_order_seq_cst);
    wake(members_[peer].doorbell);
  }
}

SharedRegion::Wait SharedRegion::wait(std::uint32_t rank, std::uint32_t of, Counter counter, std::uint64_t value, const Clock& clock, Nanos limit) const {
  const auto& word = members_[of].*counter;
  const auto reached = [&](std::memory_order order) { return word.load(order) >= value; };
  for (int i = 0; i < spins; ++i) {
    if (aborted()) return Wait::aborted;
    if (reached(std::memory_order_acquire)) return Wait::reached;
    pause();
  }
  Member& self = members_[rank];
  const Nanos deadline = clock.now() + limit;
  while (true) {
    const std::uint32_t seen = self.doorbell.load(std::memory_order_seq_cst);
    self.sleeping.store(1, std::memory_order_seq_cst);
    const Nanos left = deadline - clock.now();
    const bool arrived = reached(std::memory_order_seq_cst);
    if (!arrived && !aborted() && left > Nanos{0}) sleep_on(self.doorbell, seen, std::min(left, longest_sleep));
    self.sleeping.store(0, std::memory_order_relaxed);
    if (aborted()) return Wait::aborted;
    if (arrived || reached(std::memory_order_acquire)) return Wait::reached;
    if (left <= Nanos{0}) return Wait::late;
  }
}

void SharedRegion::sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen, Nanos limit) noexcept {
  const timespec time{.tv_sec = limit.count() / 1'000'000'000, .tv_nsec = limit.count() % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &time, nullptr, 0);
}

void SharedRegion::abort(const std::string& cause) noexcept {
  std::uint32_t expected = Header::unset;
  if (header_->cause_state.compare_exchange_strong(expected, Header::writing)) {
    const std::size_t length = std::min(cause.size(), sizeof(header_->cause) - 1);
    std::memcpy(header_->cause, cause.data(), length);
    header_->cause_state.store(Header::set, std::memory_order_release);
  }
  header_->aborted.store(1, std::memory_order_seq_cst);
  for (std::uint32_t peer = 0; peer < shape_.members; ++peer) {
    members_[peer].doorbell.fetch_add(1, std::memory_order_seq_cst);
    wake(members_[peer].doorbell);
  }
}

bool SharedRegion::aborted() const noexcept { return header_->aborted.load(std::memory_order_seq_cst) != 0; }

std::string SharedRegion::cause() const {
  // A member that died between the two stores leaves `writing` for ever; the abort still holds.
  for (int i = 0; i < spins && header_->cause_state.load(std::memory_order_acquire) == Header::writing; ++i) pause();
  if (header_->cause_state.load(std::memory_order_acquire) != Header::set) return "aborted by a member that died while it did so";
  return header_->cause;
}

}  // namespace troupe
