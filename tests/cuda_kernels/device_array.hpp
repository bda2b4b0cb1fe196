#pragma once
#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "src/device/cpu/float8_bits.hpp"
#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

using BFloat16 = __nv_bfloat16;

/// Device memory of `T`, poisoned with NaN (all bits set) so that what no kernel wrote is seen.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    void* data = nullptr;
    check(cudaMalloc(&data, std::max<std::size_t>(1, count) * sizeof(T)), "test memory");
    data_ = static_cast<T*>(data);
    check(cudaMemset(data_, 0xff, count * sizeof(T)), "test memory");
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    check(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "test memory");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::vector<T> host() const {
    std::vector<T> values(count_);
    check(cudaDeviceSynchronize(), "the kernels under test");
    check(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "test memory");
    return values;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

template <class T>
constexpr Element element_of = std::is_same_v<T, float>    ? Element::f32
                               : std::is_same_v<T, double> ? Element::f64
                                                           : Element::bf16;

inline double wide(float x) { return x; }
inline double wide(double x) { return x; }
inline double wide(BFloat16 x) { return static_cast<double>(__bfloat162float(x)); }
template <class T>
T to(double x) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return __float2bfloat16_rn(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

/// Reproducible numbers, about normal with this deviation.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
  std::uint32_t bits() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  double normal(double deviation) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += bits() / 4294967296.0 - 0.5;
    return sum * 1.7320508 * deviation;
  }
  template <class T>
  std::vector<T> values(std::size_t count, double deviation = 1) {
    std::vector<T> result(count);
    for (T& value : result) value = to<T>(normal(deviation));
    return result;
  }

 private:
  std::uint64_t state_;
};

/// ‖found − wanted‖ / ‖wanted‖, NaN unless all are finite.
template <class T>
double relative_error(const std::vector<T>& found, const std::vector<double>& wanted) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += (wide(found[i]) - wanted[i]) * (wide(found[i]) - wanted[i]);
    size += wanted[i] * wanted[i];
  }
  return found.size() == wanted.size() ? std::sqrt(difference / size) : std::numeric_limits<double>::quiet_NaN();
}

/// What one rounding to T may cost: half a unit in the last place (2⁻⁹ of a bf16), and fp32 arithmetic before it.
template <class T>
constexpr double rounding = std::is_same_v<T, BFloat16> ? 2.5e-3 : 2e-6;

template <class T>
void expect_close(const std::vector<T>& found, const std::vector<double>& wanted, const char* what, double tolerance = rounding<T>) {
  EXPECT_LT(relative_error(found, wanted), tolerance) << what;
}

/// max |x| as the kernels keep it.
template <class T>
float largest_of(const std::vector<T>& values) {
  float result = 0;
  for (const T& value : values) result = std::max(result, std::fabs(static_cast<float>(wide(value))));
  return result;
}

inline std::uint8_t float8_code(Element format, float x) { return format == Element::e4m3 ? cpu::to_float8<cpu::E4m3>(x) : cpu::to_float8<cpu::E5m2>(x); }
inline float float8_value(Element format, std::uint8_t code) {
  return format == Element::e4m3 ? cpu::from_float8<cpu::E4m3>(code) : cpu::from_float8<cpu::E5m2>(code);
}
inline float scale_of(Element format, float amax) {
  return static_cast<float>((format == Element::e4m3 ? 448.0 : 57344.0) / std::max(1e-12, static_cast<double>(amax)));
}

inline constexpr cudaStream_t stream = nullptr;

}  // namespace troupe::cuda
