#include <dlfcn.h>

#include <future>
#include <thread>

#include "tests/kernels/kernel_test.hpp"

namespace troupe {
namespace {

class CpuDevice : public KernelTest {};

TEST_F(CpuDevice, SaysWhatItIs) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.id.kind, DeviceKind::cpu);
  EXPECT_TRUE(info.name.ends_with(", 1 thread")) << info.name;
  EXPECT_TRUE(info.fp8_emulated);
  EXPECT_EQ(info.peak_flops, 0.0);
  EXPECT_GT(info.memory_bytes, std::size_t{1} << 20);
}

TEST_F(CpuDevice, AllocatesZeroedAlignedMemory) {
  const std::unique_ptr<Buffer> buffer = device_->allocate(1000, Placement::device);
  EXPECT_EQ(buffer->bytes().size(), 1000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->bytes().data()) % 64, 0U);
  for (const std::byte value : buffer->bytes()) ASSERT_EQ(value, std::byte{0});
}

TEST_F(CpuDevice, CountsWhatItHandedOutAndGotBack) {
  const std::size_t before = device_->allocated_bytes(Placement::device);
  auto first = device_->allocate(1000, Placement::device);
  const auto second = device_->allocate(24, Placement::device), host = device_->allocate(7, Placement::host);
  EXPECT_EQ(device_->allocated_bytes(Placement::device), before + 1024);
  EXPECT_EQ(device_->allocated_bytes(Placement::host), 7U);
  first.reset();
  EXPECT_EQ(device_->allocated_bytes(Placement::device), before + 24);
}

TEST_F(CpuDevice, CopiesBetweenHostAndDeviceMemory) {
  const auto memory = device_->allocate(8, Placement::device);
  std::vector<std::byte> from(8), to(8);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + 1);
  device_->upload_now(from, memory->bytes());
  device_->download_now(memory->bytes(), to);
  EXPECT_EQ(to, from);
  EXPECT_THROW(device_->upload_now(std::span(from).first(7), memory->bytes()), std::invalid_argument);
  EXPECT_THROW(device_->download_now(memory->bytes(), std::span(to).first(7)), std::invalid_argument);
  EXPECT_TRUE(device_->host_visible());
}

TEST_F(CpuDevice, RefusesToHaveNoThread) { EXPECT_THROW(static_cast<void>(make_cpu_device(0)), std::invalid_argument); }

TEST_F(CpuDevice, KernelsRunOnLanes) {
  const std::unique_ptr<Clock> clock = make_system_clock();
  const std::unique_ptr<Lane> lane = device_->open_lane(LaneKind::compute, Rank{0}, *clock, nullptr);
  const at::Tensor x = at::zeros({4});
  std::promise<bool> finished;
  LaneOperation operation;
  operation.name = "fill";
  operation.work = [&](Stream& stream) { kernels_.fill(stream, view(x), 2.0); };
  operation.done = [&](const Outcome& outcome) { finished.set_value(outcome.ok()); };
  lane->post(std::move(operation));
  EXPECT_TRUE(finished.get_future().get());
  EXPECT_EQ(x.sum().item<float>(), 8.0F);
}

TEST_F(CpuDevice, AProductOnALaneTakesTheThreadsThatTheDeviceWasGiven) {
  // OpenMP keeps a thread count for each calling thread, all cores at first; torch's own products go by it.
  const auto threads = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  const auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  ASSERT_NE(threads, nullptr);
  ASSERT_NE(set, nullptr);
  const at::Tensor x = random({64, 64}, at::kFloat), w = random({64, 64}, at::kFloat), y = at::empty({64, 64});
  int used = 0;
  std::thread([&] {
    set(7);
    Stream stream;
    kernels_.linear(stream, view(x), view(w), view(y));
    used = threads();
  }).join();
  EXPECT_EQ(used, 1);
}

TEST_F(CpuDevice, TwoIntraOperationThreadsRepeatBitForBit) {
  const at::Tensor q = random({2, 130, 4, 32}, at::kBFloat16), k = random({2, 130, 2, 32}, at::kBFloat16), out = at::empty_like(q),
                   lse = at::empty({2, 4, 130});
  const at::Tensor x = random({260, 512}, at::kBFloat16), dy = random({260, 512}, at::kBFloat16), w = random({512}, at::kBFloat16), rstd = at::empty({260});
  const auto run = [&](Kernels& kernels) {
    std::vector<at::Tensor> r = {at::empty_like(q), at::empty_like(k), at::empty_like(k), at::empty({512, 512}),
                                 at::empty_like(x), at::empty({512}),  at::empty_like(x)};
    kernels.attention(stream_, view(q), view(k), view(k), 0.2, view(out), view(lse));
    kernels.attention_backward(stream_, view(q), view(q), view(k), view(k), view(out), view(lse), 0.2, view(r[0]), view(r[1]), view(r[2]));
    kernels.linear_backward_weight(stream_, view(dy), view(x), view(r[3]), false);
    kernels.rms_norm(stream_, view(x), view(w), 1e-5, view(r[6]), view(rstd));
    kernels.rms_norm_backward(stream_, view(dy), view(x), view(w), view(rstd), view(r[4]), false, view(r[5]), false);
    return r;
  };
  const std::vector<at::Tensor> alone = run(kernels_);
  const std::unique_ptr<Device> two = make_cpu_device(2);
  const std::vector<at::Tensor> once = run(two->kernels()), twice = run(two->kernels());
  static_cast<void>(make_cpu_device(1));  // the number of threads belongs to the process: back to what the other tests have
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_TRUE(same_bits(once[i], twice[i])) << i;
    EXPECT_LT(relative_error(once[i], alone[i]), 1e-3) << i;
  }
}

TEST_F(CpuDevice, ThreadsMayCallAtOnceAndGetWhatOneThreadGets) {
  const at::Tensor x = random({33, 65}, at::kBFloat16), dy = random({33, 40}, at::kBFloat16), alone = at::empty({40, 65});
  kernels_.linear_backward_weight(stream_, view(dy), view(x), view(alone), false);
  std::vector<at::Tensor> results;
  for (int i = 0; i < 4; ++i) results.push_back(at::empty({40, 65}));
  {
    std::vector<std::jthread> threads;
    for (const at::Tensor& result : results) {
      threads.emplace_back([&] {
        Stream stream;
        for (int n = 0; n < 20; ++n) kernels_.linear_backward_weight(stream, view(dy), view(x), view(result), false);
      });
    }
  }
  for (const at::Tensor& result : results) EXPECT_TRUE(same_bits(result, alone));
}

}  // namespace
}  // namespace troupe
