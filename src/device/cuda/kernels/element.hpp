#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace troupe::cuda {

/// Element types of device memory, in the order of troupe::DType (whose header is C++20; nvcc compiles this folder as C++17).
enum class Element : std::uint8_t { f32, bf16, f64, e4m3, e5m2, i64, i32, u8 };

[[nodiscard]] constexpr std::size_t size_of(Element element) noexcept {
  switch (element) {
    case Element::f64:
    case Element::i64: return 8;
    case Element::f32:
    case Element::i32: return 4;
    case Element::bf16: return 2;
    default: return 1;
  }
}

/// A call of the CUDA runtime that failed, with the kernel or call that was asked.
class CudaError : public std::runtime_error {
 public:
  CudaError(const char* what, cudaError_t code)
      : std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ")"), code_(code) {}
  [[nodiscard]] cudaError_t code() const noexcept { return code_; }

 private:
  cudaError_t code_;
};

/// Throws CudaError unless `code` is cudaSuccess.
inline void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw CudaError(what, code);
}

/// Throws if the launch that came before was refused (a wrong grid, no code for this architecture).
inline void check_launch(const char* what) { check(cudaGetLastError(), what); }

/// Throws std::invalid_argument: the operation, and the rule that its arguments break.
[[noreturn]] inline void refuse(const char* operation, const std::string& rule) { throw std::invalid_argument(std::string(operation) + ": expected " + rule); }

/// Streaming multiprocessors of the current device (132 on an H200); asked once a process and device.
[[nodiscard]] int multiprocessors();
/// Of the current device, ten times the major version and the minor one: 90 for Hopper.
[[nodiscard]] int compute_capability();
/// Whether the current device is of compute capability 9.x: thread-block clusters and sm_90a code.
[[nodiscard]] inline bool hopper() { return compute_capability() / 10 == 9; }

}  // namespace troupe::cuda
