#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "src/base/ids.hpp"

namespace troupe {

/// The right to use one slot of an edge, and the slot's memory. Copies share the right; when the last copy goes, `release`
/// runs once, on whatever thread that happens, and must not block (it posts a letter to the slot's owner).
/// An empty Lease holds nothing. Memory may be a device's: only lanes touch `bytes()`.
class Lease {
 public:
  Lease() = default;
  Lease(SlotIndex slot, std::span<std::byte> bytes, std::function<void()> release) : hold_(std::make_shared<Hold>(slot, bytes, std::move(release))) {}
  [[nodiscard]] explicit operator bool() const noexcept { return hold_ != nullptr; }
  [[nodiscard]] SlotIndex slot() const noexcept { return hold_->slot; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return hold_->bytes; }
  void reset() noexcept { hold_.reset(); }

 private:
  struct Hold {
    Hold(SlotIndex s, std::span<std::byte> b, std::function<void()> r) : slot(s), bytes(b), release(std::move(r)) {}
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() {
      if (release) release();
    }
    SlotIndex slot;
    std::span<std::byte> bytes;
    std::function<void()> release;
  };
  std::shared_ptr<Hold> hold_;
};

}  // namespace troupe
