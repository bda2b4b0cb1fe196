#pragma once
// From run-time element types to template arguments. Host code of .cu files.
#include "src/device/cuda/kernels/vector.cuh"

namespace troupe::cuda {

/// Calls `f` with a value of the type: fp32 or bf16.
template <class F>
void with_floating(const char* operation, Element element, F f) {
  switch (element) {
    case Element::f32: return f(float{});
    case Element::bf16: return f(BFloat16{});
    default: refuse(operation, "fp32 or bf16");
  }
}

/// Calls `f` with an integral constant of the fp8 format.
template <class F>
void with_float8(const char* operation, Element element, F f) {
  switch (element) {
    case Element::e4m3: return f(std::integral_constant<Element, Element::e4m3>{});
    case Element::e5m2: return f(std::integral_constant<Element, Element::e5m2>{});
    default: refuse(operation, "e4m3 or e5m2");
  }
}

[[nodiscard]] inline bool aligned(const void* pointer, std::size_t bytes = 16) { return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0; }
[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
/// A grid's size in x.
[[nodiscard]] inline unsigned grid(std::int64_t blocks) { return static_cast<unsigned>(blocks); }

}  // namespace troupe::cuda
