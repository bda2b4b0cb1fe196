#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/device/draws_values.hpp"
#include "src/model/initialise.hpp"
#include "tests/cuda/twin.hpp"

namespace troupe::test {
namespace {

/// Nearly all to the last bit: the two logarithms may differ in fp64's last place, which seldom reaches fp32's.
TEST(CudaMemory, InitialValuesAreTheHostsWhereverAShardBegins) {
  Devices devices;
  auto* draws = dynamic_cast<DrawsValues*>(&devices.gpu->kernels());
  ASSERT_NE(draws, nullptr);
  constexpr std::size_t count = std::size_t{1} << 22U;
  for (const auto& [rule, first] :
       {std::pair{Initialisation{.std = 0.02, .cut = 0.06}, std::uint64_t{0}}, std::pair{Initialisation{.std = 1.0}, std::uint64_t{5000000011}}}) {
    const InitialValues initial(rule, 42, "layers.3.attention.wq.weight");
    std::vector<float> host(count), device(count);
    initial.fill(first, host);
    const auto memory = devices.gpu->allocate(count * sizeof(float), Placement::device);
    draws->draw(devices.gpu->setup_stream(),
                TensorView::contiguous(memory->bytes().data(), DType::f32, {static_cast<std::int64_t>(count)}, devices.gpu->info().id), *initial.draw(), first);
    devices.gpu->download_now(memory->bytes(), std::as_writable_bytes(std::span(device)));
    std::size_t others = 0;
    for (std::size_t i = 0; i < count; ++i) {
      others += host[i] != device[i] ? 1 : 0;
      ASSERT_NEAR(device[i], host[i], 1.2e-7 * std::abs(host[i])) << "value " << first + i;
    }
    EXPECT_LE(others, 4U) << "of " << count;
  }
}

}  // namespace
}  // namespace troupe::test
