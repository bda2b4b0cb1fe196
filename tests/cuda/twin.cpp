#include "tests/cuda/twin.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tools/worker/cuda_plugin_loader.hpp"

namespace troupe::test {
namespace {

double value_at(const std::byte* data, DType dtype, std::size_t i) {
  const auto read = [&]<class T>(T) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::f32: return static_cast<double>(read(float{}));
    case DType::f64: return read(double{});
    case DType::i32: return read(std::int32_t{});
    case DType::i64: return static_cast<double>(read(std::int64_t{}));
    case DType::bf16: {
      const std::uint32_t bits = static_cast<std::uint32_t>(read(std::uint16_t{})) << 16U;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return static_cast<double>(value);
    }
    default: return static_cast<double>(read(std::uint8_t{}));
  }
}

void put(std::byte* data, DType dtype, std::size_t i, double value) {
  const auto write = [&]<class T>(T converted) { std::memcpy(data + i * sizeof(T), &converted, sizeof(T)); };
  switch (dtype) {
    case DType::f32: return write(static_cast<float>(value));
    case DType::f64: return write(value);
    case DType::i32: return write(static_cast<std::int32_t>(value));
    case DType::i64: return write(static_cast<std::int64_t>(value));
    case DType::bf16: {
      const auto single = static_cast<float>(value);
      std::uint32_t bits;
      std::memcpy(&bits, &single, sizeof bits);
      return write(static_cast<std::uint16_t>(bits >> 16U));
    }
    default: return write(static_cast<std::uint8_t>(value));
  }
}

}  // namespace

const CudaPlugin& plugin() {
  const auto loaded = cuda_plugin();
  if (!loaded) throw std::runtime_error(loaded.error().message);
  return **loaded;
}

Twin::Twin(Devices& devices, DType dtype, const Shape& shape, double deviation)
    : devices_(devices),
      dtype_(dtype),
      shape_(shape),
      host_(devices.cpu->allocate(static_cast<std::size_t>(shape.elements()) * size_of(dtype), Placement::host)),
      device_(devices.gpu->allocate(host_->bytes().size(), Placement::device)) {
  static std::mt19937_64 random(11);
  std::normal_distribution<double> normal(0.0, deviation);
  if (dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f64) set([&](std::size_t) { return normal(random); });
}

void Twin::set(const std::function<double(std::size_t)>& value) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(shape_.elements()); ++i) put(host_->bytes().data(), dtype_, i, value(i));
  upload();
}

void Twin::upload() { devices_.gpu->upload_now(host_->bytes(), device_->bytes()); }

std::vector<std::byte> Twin::gpu_bytes() const {
  std::vector<std::byte> bytes(device_->bytes().size());
  devices_.gpu->download_now(device_->bytes(), bytes);
  return bytes;
}

std::vector<double> Twin::found() const {
  const std::vector<std::byte> bytes = gpu_bytes();
  std::vector<double> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(shape_.elements()); ++i) values.push_back(value_at(bytes.data(), dtype_, i));
  return values;
}

double Twin::difference() const {
  const std::vector<double> gpu = found();
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < gpu.size(); ++i) {
    const double cpu = value_at(host_->bytes().data(), dtype_, i);
    apart += (gpu[i] - cpu) * (gpu[i] - cpu);
    size += cpu * cpu;
  }
  return size > 0 ? std::sqrt(apart / size) : std::sqrt(apart);
}

bool Twin::same_bits() const {
  const std::vector<std::byte> gpu = gpu_bytes();
  return std::memcmp(gpu.data(), host_->bytes().data(), gpu.size()) == 0;
}

}  // namespace troupe::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::setenv("TROUPE_CACHE", "none", 0);  // shapes of tests are no use to runs
  if (const auto loaded = troupe::cuda_plugin(); !loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return 1;
  }
  return RUN_ALL_TESTS();
}
