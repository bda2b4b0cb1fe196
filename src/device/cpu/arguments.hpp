#pragma once
#include <array>
#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "src/device/tensor_view.hpp"

namespace troupe::cpu {

/// The views that one operation was called with, to check them and to name them in an error.
class Arguments {
 public:
  struct Named {
    std::string_view name;
    TensorView view;
  };
  /// Throws std::invalid_argument if a view is not contiguous or not in host memory. `expected`: the rule, for the error's text.
  Arguments(std::string_view operation, std::string_view expected, std::initializer_list<Named> views);
  /// Throws std::invalid_argument naming operation, rule, and each view's shape and type.
  void require(bool condition) const {
    if (!condition) refuse(expected_);
  }
  /// All floating-point views that compute in fp32 (float32 and bfloat16) or in fp64, which the tests use.
  [[nodiscard]] static bool floating(DType dtype) noexcept { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f64; }
  /// What gradients of weights and statistics of `activation` are held in: float32, or float64 beside float64.
  [[nodiscard]] static DType wide(DType activation) noexcept { return activation == DType::f64 ? DType::f64 : DType::f32; }

 private:
  static constexpr std::size_t most = 12;
  [[noreturn]] void refuse(std::string_view rule) const;
  std::string_view operation_, expected_;
  std::array<Named, most> views_{};
  std::size_t count_ = 0;
};

}  // namespace troupe::cpu
