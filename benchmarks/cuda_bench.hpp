#pragma once
#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "benchmarks/cuda_random.hpp"
#include "src/device/cuda/kernels/element.hpp"

namespace troupe::cuda {

inline constexpr double memory_limit = 4.8e12;  ///< bytes/s of an H200's memory, its data sheet

/// Device memory for the length of the program, random.
template <class T>
T* random_array(std::int64_t count, float size = 1) {
  static std::uint64_t seed = 0;
  void* data = nullptr;
  check(cudaMalloc(&data, static_cast<std::size_t>(count) * sizeof(T)), "benchmark memory");
  if constexpr (sizeof(T) == 1) {
    random_fill(nullptr, data, Element::bf16, count / 2, size, ++seed);
  } else {
    random_fill(nullptr, data, sizeof(T) == 4 ? Element::f32 : Element::bf16, count, size, ++seed);
  }
  return static_cast<T*>(data);
}

/// Milliseconds a call: the median of `batches` batches that take about `batch_ms` each, back to back on a hot device. call(i) works on set i.
inline double time_of(const std::function<void(int)>& call, double batch_ms = 25, int batches = 5) {
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  const auto run = [&](int count) {
    check(cudaEventRecord(begin), "event");
    for (int i = 0; i < count; ++i) call(i);
    check(cudaEventRecord(end), "event");
    check(cudaEventSynchronize(end), "the kernels measured");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    return static_cast<double>(ms) / count;
  };
  run(2);
  const int count = std::max(2, static_cast<int>(batch_ms / std::max(1e-3, run(3))));
  std::vector<double> times;
  for (int i = 0; i < batches; ++i) times.push_back(run(count));
  std::sort(times.begin(), times.end());
  check(cudaEventDestroy(begin), "event");
  check(cudaEventDestroy(end), "event");
  return times[times.size() / 2];
}

/// One line: time, bytes a second, share of the memory's limit.
inline double report_bytes(const char* name, double bytes, const std::function<void(int)>& call) {
  const double ms = time_of(call), rate = bytes / ms * 1e3;
  std::printf("%-52s %8.1f us  %7.1f MB  %5.2f TB/s  %3.0f %%\n", name, ms * 1e3, bytes / 1e6, rate / 1e12, 100 * rate / memory_limit);
  std::fflush(stdout);
  return ms;
}

}  // namespace troupe::cuda
