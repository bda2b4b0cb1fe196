#include <algorithm>
#include <cstring>

#include "src/device/cpu/arguments.hpp"
#include "src/device/cpu/conversion.hpp"
#include "src/device/cpu/cpu_kernels.hpp"
#include "src/device/cpu/vectorise.hpp"

namespace troupe::cpu {
namespace {

template <class From>
void convert_to(const TensorView& from, const TensorView& to) {
  with_floating(to.dtype, [&]<class To>(Type<To>) {
    if constexpr (!std::is_same_v<From, To>) convert(from.as<const From>(), to.as<To>(), from.shape.elements());
  });
}

}  // namespace

void CpuKernels::fill(Stream&, TensorView x, double value) {
  const Arguments arguments("fill", "any type for zero, a floating or integer type for other values", {{"x", x}});
  const std::int64_t count = x.shape.elements();
  if (count == 0) return;
  if (value == 0.0) {
    std::memset(x.data, 0, x.bytes());
    return;
  }
  switch (x.dtype) {
    case DType::i32: std::fill_n(x.as<std::int32_t>(), count, static_cast<std::int32_t>(value)); return;
    case DType::i64: std::fill_n(x.as<std::int64_t>(), count, static_cast<std::int64_t>(value)); return;
    case DType::u8: std::fill_n(x.as<std::uint8_t>(), count, static_cast<std::uint8_t>(value)); return;
    default: arguments.require(Arguments::floating(x.dtype));
  }
  with_floating(x.dtype, [&]<class T>(Type<T>) {
    T one;
    narrow(value, one);
    std::fill_n(x.as<T>(), count, one);
  });
}

void CpuKernels::cast(Stream&, TensorView from, TensorView to) {
  const Arguments arguments("cast", "from, to of one shape, both floating or of one type", {{"from", from}, {"to", to}});
  arguments.require(from.shape == to.shape && (from.dtype == to.dtype || (Arguments::floating(from.dtype) && Arguments::floating(to.dtype))));
  if (from.dtype == to.dtype) {
    if (from.bytes() != 0) std::memmove(to.data, from.data, from.bytes());
    return;
  }
  with_floating(from.dtype, [&]<class From>(Type<From>) { convert_to<From>(from, to); });
}

}  // namespace troupe::cpu
