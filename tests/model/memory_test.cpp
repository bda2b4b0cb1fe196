#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/model/ranks.hpp"

namespace troupe::test {
namespace {

constexpr std::byte untouched{0xab};

/// A CPU device that fills what it hands out with a pattern and remembers it.
class WatchedDevice final : public Device {
 public:
  [[nodiscard]] const DeviceInfo& info() const noexcept override { return cpu_->info(); }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(std::size_t bytes, Placement placement) override {
    auto buffer = cpu_->allocate(bytes, placement);
    std::fill(buffer->bytes().begin(), buffer->bytes().end(), untouched);
    handed_out.push_back(buffer->bytes());
    return buffer;
  }
  [[nodiscard]] std::size_t allocated_bytes(Placement placement) const noexcept override { return cpu_->allocated_bytes(placement); }
  [[nodiscard]] std::unique_ptr<Lane> open_lane(LaneKind kind, Rank rank, const Clock& clock, LaneObserver* observer) override {
    return cpu_->open_lane(kind, rank, clock, observer);
  }
  [[nodiscard]] Kernels& kernels() noexcept override { return cpu_->kernels(); }
  void upload(Stream& stream, std::span<const std::byte> from, std::span<std::byte> to) override { cpu_->upload(stream, from, to); }
  void download(Stream& stream, std::span<const std::byte> from, std::span<std::byte> to) override { cpu_->download(stream, from, to); }
  void wait(Stream& stream) override { cpu_->wait(stream); }
  [[nodiscard]] bool host_visible() const noexcept override { return true; }
  [[nodiscard]] Stream& setup_stream() noexcept override { return cpu_->setup_stream(); }
  std::vector<std::span<std::byte>> handed_out;

 private:
  std::unique_ptr<Device> cpu_ = make_cpu_device(1);
};

/// One member; what it would exchange is already here.
class SoleCommunicator final : public Communicator {
 public:
  [[nodiscard]] std::uint32_t rank() const noexcept override { return 0; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return 1; }
  void all_gather(Stream&, std::span<const GatherPiece>) override {}
  void reduce_scatter(Stream&, std::span<const ReducePiece> pieces) override {
    for (const ReducePiece& p : pieces) {
      for (std::size_t i = 0; i < p.count; ++i) p.output[i] = p.input[i] + (p.accumulate ? p.output[i] : 0.0F);
    }
  }
  void all_reduce(Stream&, TensorView, Reduction) override {}
  void broadcast(Stream&, std::span<std::byte>, std::uint32_t) override {}
  void all_to_all(Stream&, std::span<const std::byte> input, std::span<std::byte> output) override { std::memcpy(output.data(), input.data(), input.size()); }
  void abort(const std::string&) noexcept override {}
};

struct Mode {
  const char* name;
  DType compute;
  bool float8;
  Recompute recompute;
};
class Memory : public testing::TestWithParam<Mode> {};

TEST_P(Memory, WhatWasPlannedIsAllocatedAndUsedToTheLastByteAndAStepAllocatesNothing) {
  TrainingOptions options;
  options.batch = {2, 32};
  options.compute = GetParam().compute;
  options.recompute = GetParam().recompute;
  options.float8 = {.enable = GetParam().float8, .filter_fqns = {"output"}, .all_gather = true};
  WatchedDevice device;
  TrainingModel model(llama3("tiny"), options, device, nullptr);
  std::size_t allocated = 0;
  for (const auto& bytes : device.handed_out) allocated += bytes.size();
  EXPECT_EQ(allocated, model.estimate().resident_bytes());
  EXPECT_EQ(allocated, model.allocated_bytes());
  EXPECT_EQ(device.allocated_bytes(Placement::device), model.device_bytes());
  EXPECT_EQ(device.allocated_bytes(Placement::device) + device.allocated_bytes(Placement::host), allocated);

  model.initialise(1);
  SoleCommunicator alone;
  PlainStep plain(model, device, alone, deal(options, markov_rows(64)));
  const std::size_t before = device.handed_out.size();
  EXPECT_EQ(plain.run(EpochId{1}, Step{1}, 1e-3).verdict.outcome, VerdictOutcome::commit);
  EXPECT_EQ(device.handed_out.size(), before);
  const auto arena = std::find_if(device.handed_out.begin(), device.handed_out.end(), [&](auto b) { return b.size() == model.estimate().tapes.arena_bytes; });
  ASSERT_NE(arena, device.handed_out.end());
  const auto last_used = std::find_if(arena->rbegin(), arena->rend(), [](std::byte b) { return b != untouched; });
  EXPECT_LT(last_used - arena->rbegin(), 64) << "bytes at the arena's end that nobody wrote";
}

INSTANTIATE_TEST_SUITE_P(Modes, Memory,
                         testing::Values(Mode{"fp32", DType::f32, false, Recompute::none}, Mode{"bf16", DType::bf16, false, Recompute::none},
                                         Mode{"fp8", DType::bf16, true, Recompute::none}, Mode{"recomputed", DType::f32, false, Recompute::full},
                                         Mode{"fp8recomputed", DType::bf16, true, Recompute::full}, Mode{"everysecond", DType::f32, false, Recompute::every},
                                         Mode{"operations", DType::f32, false, Recompute::operations}, Mode{"budget", DType::f32, false, Recompute::budget},
                                         Mode{"fp8operations", DType::bf16, true, Recompute::operations},
                                         Mode{"fp8budget", DType::bf16, true, Recompute::budget}),
                         [](const auto& mode) { return std::string(mode.param.name); });

}  // namespace
}  // namespace troupe::test
