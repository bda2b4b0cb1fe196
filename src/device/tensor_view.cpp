#include "src/device/tensor_view.hpp"

#include <algorithm>
#include <stdexcept>

namespace troupe {

std::string_view name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f64: return "float64";
    case DType::e4m3: return "float8_e4m3";
    case DType::e5m2: return "float8_e5m2";
    case DType::i64: return "int64";
    case DType::i32: return "int32";
    case DType::u8: return "uint8";
  }
  return "unknown";
}

Shape::Shape(std::initializer_list<std::int64_t> sizes) : rank(static_cast<std::uint8_t>(sizes.size())) {
  if (sizes.size() > max_rank) throw std::length_error("a shape has at most four dimensions");
  std::copy(sizes.begin(), sizes.end(), size.begin());
}

std::int64_t Shape::elements() const noexcept {
  std::int64_t n = 1;
  for (std::size_t i = 0; i < rank; ++i) n *= size[i];
  return n;
}

TensorView TensorView::contiguous(void* data, DType dtype, const Shape& shape, DeviceId device) noexcept {
  TensorView view{static_cast<std::byte*>(data), dtype, shape, {}, device};
  std::int64_t stride = 1;
  for (std::size_t i = shape.rank; i-- > 0;) {
    view.strides[i] = stride;
    stride *= shape[i];
  }
  return view;
}

TensorView TensorView::rows(std::int64_t first, std::int64_t count) const noexcept {
  TensorView part = *this;
  part.data += static_cast<std::size_t>(first * strides[0]) * size_of(dtype);
  part.shape.size[0] = count;
  return part;
}

}  // namespace troupe
