#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "src/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/restore.hpp"
#include "src/checkpoint/snapshot.hpp"
#include "src/data/byte_tokenizer.hpp"
#include "src/data/loader.hpp"
#include "src/device/state_copies.hpp"
#include "src/model/sample.hpp"
#include "tests/model/ranks.hpp"
#include "tests/support/separate_memory_device.hpp"
#include "tests/support/temporary_folder.hpp"

// All that stands above the seam, on a device whose memory the host cannot touch: what goes round the seam ends this program.
namespace troupe::test {
namespace {

using testing::TemporaryFolder;

/// One member, which works on the device's own memory as NCCL does.
class SoleDeviceCommunicator final : public Communicator {
 public:
  explicit SoleDeviceCommunicator(std::function<void*(const void*)> reach) : reach_(std::move(reach)) {}
  [[nodiscard]] std::uint32_t rank() const noexcept override { return 0; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return 1; }
  void all_gather(Stream&, std::span<const GatherPiece>) override {}
  void reduce_scatter(Stream&, std::span<const ReducePiece> pieces) override {
    for (const ReducePiece& p : pieces) {
      const auto* input = static_cast<const float*>(reach_(p.input));
      auto* output = static_cast<float*>(reach_(p.output));
      for (std::size_t i = 0; i < p.count; ++i) output[i] = input[i] + (p.accumulate ? output[i] : 0.0F);
    }
  }
  void all_reduce(Stream&, TensorView, Reduction) override {}
  void broadcast(Stream&, std::span<std::byte>, std::uint32_t) override {}
  void all_to_all(Stream&, std::span<const std::byte>, std::span<std::byte>) override {}
  void abort(const std::string&) noexcept override {}

 private:
  std::function<void*(const void*)> reach_;
};

TrainingOptions options_of(bool float8, bool evaluates) {
  TrainingOptions options;
  options.batch = {2, 32};
  if (evaluates) options.evaluation = {3, 48};  // larger than a training's
  options.micro_batches = 2;
  options.compute = float8 ? DType::bf16 : DType::f32;
  options.float8 = {.enable = float8, .filter_fqns = {"output"}, .all_gather = true};
  return options;
}

ModelDescription small_model() {
  Llama3Flavour shape = llama3_flavour("tiny").value();
  shape.vocab_size = ByteTokenizer::vocab_size;
  return describe_llama3(shape);
}

struct Story {
  std::vector<double> losses;
  std::vector<std::int32_t> text;  ///< sampled from the restored weights
  std::vector<double> evaluated;   ///< losses of the validation set after the first two steps
};

/// Trains three steps on real text, saves a checkpoint after the second, restores it into another model, repeats the third step and samples.
Story told_on(Device& device, const std::function<void*(const void*)>& reach, bool float8, bool evaluates = true) {
  const TemporaryFolder folder;
  const auto storage = make_posix_storage();
  CheckpointStore store(folder.path() / "checkpoint", *storage);
  const auto corpus = Corpus::open({.format = DataFormat::text,
                                    .paths = {folder.write("text.txt", std::string(40, 'a') + " short story of two words")},
                                    .index_folder = "",
                                    .progress = {}});
  if (!corpus) throw std::runtime_error(corpus.error().message);
  const TrainingOptions options = options_of(float8, evaluates);
  std::shared_ptr<LoaderProgram> loader =
      make_loader(*corpus, {.layout = options.batch, .sampler = {.seed = 3}, .micro_batches = options.micro_batches, .device = &device});
  if (evaluates)
    loader = with_validation(loader, make_loader(*corpus, {.layout = options.evaluation, .sampler = {}, .micro_batches = 2, .device = &device}),
                             options.micro_batches);
  SoleDeviceCommunicator alone(reach);
  const std::unique_ptr<Buffer> halt = device.allocate(sizeof(HaltWord), Placement::host);
  const auto* halt_word = new (halt->bytes().data()) HaltWord(0);

  // As the disk lane does: the loader fills a slot of device memory.
  const std::unique_ptr<Buffer> slot = device.allocate(std::max(options.batch.bytes(), options.evaluation.bytes()), Placement::device);
  const auto load = [&](Step step, Micro micro, std::span<std::byte> batch) {
    Stream disk;
    (void)loader->load(disk, step, micro, slot->bytes());
    device.download_now(slot->bytes(), batch);
  };
  Story story;
  TrainingModel model(small_model(), options, device, halt_word);
  model.initialise(1);
  PlainStep plain(model, device, alone, load);
  for (Step step{1}; step <= Step{2}; ++step) {
    story.losses.push_back(plain.run(EpochId{1}, step, 1e-2).verdict.mean_loss);
    if (evaluates) story.evaluated.push_back(plain.evaluate(step, 2).evaluation_loss);
  }

  const auto snapshot = make_snapshot_program(model.state(), {.rank = 0, .world = 1, .model_only = {}, .copy_out = copies_out_of(device)}, *storage);
  const std::unique_ptr<Buffer> copy = device.allocate(snapshot->snapshot_bytes(), Placement::host);
  Stream copy_lane;
  snapshot->copy(copy_lane, Step{2}, copy->bytes());
  story.losses.push_back(plain.run(EpochId{1}, Step{3}, 1e-2).verdict.mean_loss);
  const SavedShard shard = snapshot->save(Step{2}, copy->bytes(), store.writing_folder(Step{2}, EpochId{1}));
  if (auto sealed = store.seal({.step = Step{2}, .epoch = EpochId{1}, .world = 1}, {shard}); !sealed) throw std::runtime_error(sealed.error().message);

  TrainingModel again(small_model(), options, device, halt_word);
  again.initialise(99);
  const auto found = store.open(Step{2});
  if (!found) throw std::runtime_error(found.error().message);
  if (auto restored = restore_state(found->manifest, found->folder, *storage, again.state(), {.model_only = false, .copy_in = copies_into(device)}); !restored)
    throw std::runtime_error(restored.error().message);
  again.after_restore();
  story.losses.push_back(PlainStep(again, device, alone, load).run(EpochId{1}, Step{3}, 1e-2).verdict.mean_loss);
  story.text = sample(again, device, std::vector<std::int32_t>{'a', 'a'}, {.count = 40, .temperature = 1, .seed = 5});
  return story;
}

class DeviceSeam : public ::testing::TestWithParam<bool> {};

TEST_P(DeviceSeam, TrainingSavingRestoringAndSamplingTouchDeviceMemoryThroughTheDeviceAlone) {
  const auto cpu = make_cpu_device(1);
  const Story expected = told_on(*cpu, [](const void* address) { return const_cast<void*>(address); }, GetParam());
  SeparateMemoryDevice separate(make_cpu_device(1));
  const Story found = told_on(separate, [&](const void* address) { return separate.reach(address); }, GetParam());
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.text, expected.text);
  EXPECT_EQ(found.evaluated, expected.evaluated);
  EXPECT_EQ(separate.copies_under_way(), 0U) << "a copy that nobody waited for";
  EXPECT_EQ(expected.losses[3], expected.losses[2]) << "the restored model repeats the step";
}

TEST_P(DeviceSeam, EvaluatingLeavesTheStepsAsTheyAreBitForBit) {
  const auto cpu = make_cpu_device(1);
  const auto same = [](const void* address) { return const_cast<void*>(address); };
  const Story plain = told_on(*cpu, same, GetParam(), false), evaluated = told_on(*cpu, same, GetParam(), true);
  EXPECT_EQ(evaluated.losses, plain.losses);
  EXPECT_EQ(evaluated.text, plain.text);
  EXPECT_LT(evaluated.evaluated[1], evaluated.evaluated[0]) << "the second step has learnt, and its sum begins at zero";
}

INSTANTIATE_TEST_SUITE_P(Precisions, DeviceSeam, ::testing::Values(false, true), [](const auto& test) { return test.param ? "fp8" : "fp32"; });

TEST(SeparateMemory, TheHostCannotReadIt) {
  EXPECT_DEATH(
      {
        SeparateMemoryDevice device(make_cpu_device(1));
        const auto buffer = device.allocate(64, Placement::device);
        *static_cast<volatile std::byte*>(buffer->bytes().data()) = std::byte{1};
      },
      "");
}

TEST(SeparateMemory, KernelsTakeNoMemoryOfTheHostButPinned) {
  SeparateMemoryDevice device(make_cpu_device(1));
  std::vector<float> pageable(4);
  const auto pinned = device.allocate(16, Placement::host);
  EXPECT_THROW(device.kernels().fill(device.setup_stream(), TensorView::contiguous(pageable.data(), DType::f32, {4}), 1.0), std::logic_error);
  device.kernels().fill(device.setup_stream(), TensorView::contiguous(pinned->bytes().data(), DType::f32, {4}), 1.0);
  EXPECT_EQ(reinterpret_cast<const float*>(pinned->bytes().data())[3], 1.0F);
}

TEST(SeparateMemory, ItsCopiesAreLate) {
  SeparateMemoryDevice device(make_cpu_device(1));
  const auto buffer = device.allocate(4, Placement::device);
  std::vector<std::byte> from(4, std::byte{1}), to(4);
  device.upload(device.setup_stream(), from, buffer->bytes());
  from.assign(4, std::byte{2});  // too early: what is copied is what lies there when the stream gets to it
  device.download_now(buffer->bytes(), to);
  EXPECT_EQ(to, from);
}

}  // namespace
}  // namespace troupe::test
