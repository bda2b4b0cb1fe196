#pragma once
#include <array>
#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "src/device/cuda/kernels/element.hpp"
#include "src/device/tensor_view.hpp"

namespace troupe::cuda {

/// The views that one operation was called with, to check them and to name them in an error.
class Arguments {
 public:
  struct Named {
    std::string_view name;
    TensorView view;
  };
  /// Throws std::invalid_argument if a view is not contiguous or not on device `index`. `expected`: the rule, for the error's text.
  Arguments(int index, std::string_view operation, std::string_view expected, std::initializer_list<Named> views);
  /// Throws std::invalid_argument naming operation, rule, and each view's shape and type.
  void require(bool condition) const {
    if (!condition) refuse(expected_);
  }
  /// All floating-point activations of this device.
  [[nodiscard]] static bool floating(DType dtype) noexcept { return dtype == DType::f32 || dtype == DType::bf16; }

 private:
  static constexpr std::size_t most = 12;
  [[noreturn]] void refuse(std::string_view rule) const;
  std::string_view operation_, expected_;
  std::array<Named, most> views_{};
  std::size_t count_ = 0;
};

/// The kernels' name of a type; the two enumerations have one order.
[[nodiscard]] constexpr Element element_of(DType dtype) noexcept { return static_cast<Element>(dtype); }
static_assert(element_of(DType::f32) == Element::f32 && element_of(DType::bf16) == Element::bf16 && element_of(DType::f64) == Element::f64 &&
              element_of(DType::e4m3) == Element::e4m3 && element_of(DType::e5m2) == Element::e5m2 && element_of(DType::i64) == Element::i64 &&
              element_of(DType::i32) == Element::i32 && element_of(DType::u8) == Element::u8);

}  // namespace troupe::cuda
