#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace troupe {

enum class DType : std::uint8_t { f32, bf16, f64, e4m3, e5m2, i64, i32, u8 };
[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16: return 2;
    default: return 1;
  }
}
[[nodiscard]] std::string_view name_of(DType dtype) noexcept;

enum class DeviceKind : std::uint8_t { cpu, cuda };
struct DeviceId {
  DeviceKind kind = DeviceKind::cpu;
  std::int16_t index = 0;
  bool operator==(const DeviceId&) const = default;
};

/// Up to four dimensions, outermost first.
struct Shape {
  static constexpr std::size_t max_rank = 4;
  std::array<std::int64_t, max_rank> size{};
  std::uint8_t rank = 0;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes);  ///< throws std::length_error over four
  [[nodiscard]] std::int64_t elements() const noexcept;
  [[nodiscard]] std::int64_t operator[](std::size_t i) const noexcept { return size[i]; }
  bool operator==(const Shape&) const = default;
};

/// A strided window on memory that somebody else owns: the only tensor that crosses the Device seam. Strides in elements.
struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  std::array<std::int64_t, Shape::max_rank> strides{};
  DeviceId device;

  [[nodiscard]] static TensorView contiguous(void* data, DType dtype, const Shape& shape, DeviceId device = {}) noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept { return static_cast<std::size_t>(shape.elements()) * size_of(dtype); }
  /// Rows [first, first + count) of dimension 0.
  [[nodiscard]] TensorView rows(std::int64_t first, std::int64_t count) const noexcept;
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace troupe
