#include "src/checkpoint/hugging_face.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "src/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/export_hugging_face.hpp"
#include "src/checkpoint/restore_foreign.hpp"
#include "src/checkpoint/snapshot.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/checkpoint/hugging_face_folder.hpp"
#include "tests/unit/checkpoint/training_state.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path there = "/hf";

ModelDescription tiny(bool tied = false) { return describe_llama3(llama3_flavour(tied ? "tiny_tied" : "tiny").value()); }
const ForeignNames& names() { return *hugging_face_names("llama3"); }

Result<void> load(MemoryStorage& storage, const StateTensors& state) {
  const auto found = open_hugging_face(storage, there);
  if (!found) return found.error();
  return restore_foreign(*found, names(), 8, storage, state, {.model_only = true, .leave_model = false, .leave = {}, .copy_in = {}}, there.string());
}

std::string refusal(MemoryStorage& storage, bool tied = false) {
  RankWeights rank(tiny(tied), 0, 1);
  const auto loaded = load(storage, rank.tensors);
  return loaded ? "accepted" : loaded.error().message;
}

TEST(HuggingFaceNames, RotatedRowsOfAHeadOfEightGoToTheHalvesAndBack) {
  std::vector<std::int64_t> to;
  for (std::int64_t row = 0; row < 8; ++row) to.push_back(row_there(RowOrder::rotary_halves, 8, row));
  EXPECT_THAT(to, ::testing::ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));  // the row of theirs for each of ours
  EXPECT_EQ(row_there(RowOrder::rotary_halves, 8, 11), 13);         // row 3 of the second head
  EXPECT_EQ(row_there(RowOrder::same, 8, 11), 11);
}

TEST(HuggingFace, EveryMeshGetsItsRowsInOurOrderAndReadsNoOthers) {
  for (const std::uint32_t world : {1U, 2U, 3U, 5U, 8U}) {
    std::uint64_t read_by_all = 0;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      MemoryStorage storage;
      put_two_files(storage, there, tiny_there());
      RankWeights own(tiny(), rank, world);
      const auto found = open_hugging_face(storage, there);
      ASSERT_TRUE(found) << found.error().message;
      const std::uint64_t headers = storage.bytes_read;
      const auto done = restore_foreign(*found, names(), 8, storage, own.tensors, {.model_only = true}, "/hf");
      ASSERT_TRUE(done) << done.error().message;
      EXPECT_EQ(storage.bytes_read - headers, own.bytes) << "rank " << rank << " of " << world;
      read_by_all += storage.bytes_read - headers;
      for (const StateTensor& tensor : own.tensors) {
        const auto name = name_there(names(), tensor.name);
        const std::int64_t columns = tensor.global_shape.rank > 1 ? tensor.global_shape[1] : 1;
        for (std::int64_t i = 0; i < tensor.rows * columns; ++i)
          ASSERT_EQ(tensor.view.as<float>()[i], value_at(name->name, row_there(name->order, 8, tensor.first_row + i / columns), i % columns))
              << tensor.name << " " << i;
      }
    }
    EXPECT_EQ(read_by_all, RankWeights(tiny(), 0, 1).bytes);
  }
}

/// Peak of this process's memory since `reset_peak`, in bytes.
std::uint64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  return 0;
}
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

TEST(HuggingFace, MemoryBesideTheStateDoesNotGrowWithTheTensor) {
  const TemporaryFolder folder;
  constexpr std::int64_t rows = 65536, columns = 2048;  // 256 MiB of bf16, 512 of fp32; a hole in the file
  SafetensorsHeader header;
  header.tensors = {{"model.layers.0.self_attn.q_proj.weight", StoredType::bf16, {rows, columns}, 0, rows * columns * 2}};
  const std::string text = write_safetensors_header(header);
  std::ofstream(folder.path() / hugging_face_single) << text;
  std::filesystem::resize_file(folder.path() / hugging_face_single, text.size() + rows * columns * 2);
  std::vector<float> memory(rows / 4 * columns, 1.0F);
  const TensorView view = TensorView::contiguous(memory.data(), DType::f32, {rows / 4, columns});
  const StateTensors state{{"layers.0.attention.wq.weight", {rows, columns}, rows / 4, rows / 4, view, true, false}};
  const auto storage = make_posix_storage();
  const auto found = open_hugging_face(*storage, folder.path());
  ASSERT_TRUE(found) << found.error().message;
  reset_peak();
  const std::uint64_t before = peak_memory();
  const auto done = restore_foreign(*found, names(), 128, *storage, state, {.model_only = true}, "hf");
  ASSERT_TRUE(done) << done.error().message;
  constexpr std::uint64_t staging = 2 * foreign_staging_bytes + (std::uint64_t{8} << 20U);
#if defined(__SANITIZE_ADDRESS__)
  constexpr std::uint64_t allowed = staging + staging / 8;  // AddressSanitizer's shadow: a byte for eight
#else
  constexpr std::uint64_t allowed = staging;
#endif
  EXPECT_LE(peak_memory() - before, allowed);
  EXPECT_EQ(memory.back(), 0.0F);
}

TEST(HuggingFace, OneFileOfBFloat16IsConverted) {
  MemoryStorage storage;
  storage.put(there / hugging_face_single, safetensors_file(tiny_there(true, StoredType::bf16)));
  RankWeights own(tiny(), 1, 2);
  const auto done = load(storage, own.tensors);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(own.tensors.front().view.as<float>()[5], 32000.0F);  // 32005.4 in eight bits
}

TEST(HuggingFace, ATiedModelTakesAFileWithOrWithoutItsHeadAndAnotherNeedsIt) {
  for (const bool head : {true, false}) {
    MemoryStorage storage;
    storage.put(there / hugging_face_single, safetensors_file(tiny_there(head)));
    EXPECT_EQ(refusal(storage, true), "accepted") << head;
    EXPECT_THAT(refusal(storage), head ? HasSubstr("accepted") : HasSubstr("tensor 'lm_head.weight' is missing (output.weight, F32 [64, 32])"));
  }
}

TEST(HuggingFace, EachTensorThatDoesNotFitIsNamed) {
  auto tensors = tiny_there();
  tensors[1].name = "model.layers.01.self_attn.q_proj.weight";
  tensors[2].shape = {32, 16};
  tensors[3].dtype = StoredType::i64;
  MemoryStorage storage;
  put_two_files(storage, there, tensors);
  const std::string text = refusal(storage);
  EXPECT_THAT(text, HasSubstr("/hf: does not fit the model:\n"));
  EXPECT_THAT(text, HasSubstr("tensor 'model.layers.0.self_attn.q_proj.weight' is missing"));
  EXPECT_THAT(text, HasSubstr("tensor 'model.layers.01.self_attn.q_proj.weight' (F32 [32, 32]) is none of this model's"));
  EXPECT_THAT(text, HasSubstr("tensor 'model.layers.0.self_attn.k_proj.weight' is F32 [32, 16], expected F32 [16, 32]"));
  EXPECT_THAT(text, HasSubstr("tensor 'model.layers.0.self_attn.v_proj.weight' is I64 [16, 32], expected F32 [16, 32] (F16 and BF16 are converted)"));
}

TEST(HuggingFace, AnIndexThatDoesNotAgreeWithItsFilesIsRefused) {
  const auto changed = [](const std::string& from, const std::string& to) {
    MemoryStorage storage;
    put_two_files(storage, there, tiny_there());
    std::string index = storage.content(there / hugging_face_index);
    index.replace(index.find(from), from.size(), to);
    storage.put(there / hugging_face_index, index);
    return refusal(storage);
  };
  EXPECT_THAT(changed("\"model.norm.weight\":\"model-00002", "\"model.norm.weight\":\"model-00001"),
              HasSubstr("tensor 'model.norm.weight': lies here, but model.safetensors.index.json says in model-00001-of-00002.safetensors"));
  EXPECT_THAT(changed("model-00002-of-00002", "model-00003-of-00002"), HasSubstr("lies in model-00003-of-00002.safetensors, which is not there"));
  EXPECT_THAT(changed("model-00002-of-00002", "../model"), HasSubstr("'../model.safetensors', which is no name of a file in this folder"));
  EXPECT_THAT(changed("\"weight_map\"", "\"weights\""), HasSubstr("expected a JSON object with weight_map"));
  EXPECT_THAT(changed("\"lm_head.weight\"", "\"lm_tail.weight\""), HasSubstr("tensor 'lm_head.weight': is not in model.safetensors.index.json"));
}

TEST(HuggingFace, ACutFileIsRefusedBeforeAnythingIsReadOfTheOthers) {
  for (const std::size_t kept : {std::size_t{0}, std::size_t{4}, std::size_t{3000}, std::string::npos}) {
    MemoryStorage storage;
    put_two_files(storage, there, tiny_there());
    const auto file = there / "model-00002-of-00002.safetensors";
    const std::string whole = storage.content(file);
    storage.put(file, whole.substr(0, kept == std::string::npos ? whole.size() - 1 : kept));
    EXPECT_THAT(refusal(storage), HasSubstr("model-00002-of-00002.safetensors: ")) << kept;
  }
}

TEST(HuggingFace, WhatAFolderHoldsInsteadIsSaid) {
  MemoryStorage storage;
  (void)storage.make_folders(there);
  EXPECT_THAT(refusal(storage), HasSubstr("holds no *.safetensors file"));
  storage.put(there / "pytorch_model.bin", "x");
  EXPECT_THAT(refusal(storage), HasSubstr("safe_serialization=True"));
}

TEST(HuggingFace, PiecesOfTorchsSafetensorsWriterArePutTogether) {
  MemoryStorage storage;
  auto whole = tiny_there();
  const FolderTensor last = whole.back();
  whole.pop_back();
  const auto info = [](int row) {
    return std::map<std::string, std::string>{{"DCP_SHARDING_INFO", R"({"lm_head.weight":{"saved_offsets":[)" + std::to_string(row) + ",0]}}"}};
  };
  storage.put(there / "shard-00001-model-00001-of-00001.safetensors", safetensors_file({{last.name, {40, 32}}}, info(0)));
  storage.put(there / "shard-00002-model-00001-of-00001.safetensors", safetensors_file({{last.name, {24, 32}}}, info(40)));
  storage.put(there / "shard-00003-model-00001-of-00001.safetensors", safetensors_file(whole));
  RankWeights own(tiny(), 0, 1);
  const auto done = load(storage, own.tensors);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(own.tensors.back().view.as<float>()[40 * 32 + 7], value_at(last.name, 0, 7));
  storage.put(there / "shard-00002-model-00001-of-00001.safetensors", safetensors_file({{last.name, {24, 32}}}, info(39)));
  EXPECT_THAT(refusal(storage), HasSubstr("blocks at [0, 0] and [39, 0] overlap"));
  storage.put(there / "shard-00002-model-00001-of-00001.safetensors", safetensors_file({{last.name, {24, 32}}}, info(41)));
  EXPECT_THAT(refusal(storage), HasSubstr("its blocks hold 8192 of 8320 bytes"));
}

/// A checkpoint of `world` ranks whose weights came from the folder.
FoundCheckpoint save_loaded(MemoryStorage& storage, std::uint32_t world, bool tied) {
  const CheckpointStore store("/run/checkpoint", storage);
  CheckpointStore sealing("/run/checkpoint", storage);
  std::vector<SavedShard> shards;
  IdleStream stream;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    RankWeights own(tiny(tied), rank, world);
    EXPECT_TRUE(load(storage, own.tensors));
    const auto program = make_snapshot_program(own.tensors, {.rank = rank, .world = world, .model_only = [](Step) { return true; }}, storage);
    std::vector<std::byte> slot(program->snapshot_bytes());
    program->copy(stream, Step{1}, slot);
    shards.push_back(program->save(Step{1}, slot, store.writing_folder(Step{1}, EpochId{1})));
  }
  EXPECT_TRUE(sealing.seal({.step = Step{1}, .epoch = EpochId{1}, .world = world, .model_only = true}, shards));
  return sealing.open(Step{1}).value();
}

ExportPlan plan_of(bool tied, std::uint64_t most = std::uint64_t{1} << 30U) {
  return {.facts = facts_of(tiny(tied)).value(), .family = "llama3", .head_dim = 8, .assets = there, .dtype = std::nullopt, .most_file_bytes = most};
}

TEST(ExportHuggingFace, WhatWasLoadedOnAnyMeshComesBackByteForByte) {
  for (const bool tied : {false, true}) {
    for (const std::uint32_t world : {1U, 3U}) {
      MemoryStorage storage;
      storage.put(there / hugging_face_single, safetensors_file(tiny_there(!tied)));
      storage.put(there / "tokenizer.json", "{}");
      const auto checkpoint = save_loaded(storage, world, tied);
      const auto done = export_hugging_face(checkpoint, storage, plan_of(tied), "/out");
      ASSERT_TRUE(done) << done.error().message;
      EXPECT_EQ(storage.content("/out/tokenizer.json"), "{}");
      const auto before = open_hugging_face(storage, there), after = open_hugging_face(storage, "/out");
      ASSERT_TRUE(after) << after.error().message;
      ASSERT_EQ(after->tensors.size(), before->tensors.size());
      for (const auto& [name, tensor] : before->tensors) {
        const auto bytes = bytes_of_shape(tensor.shape, tensor.dtype).value();
        std::vector<std::byte> a(bytes), b(bytes);
        ASSERT_TRUE(ForeignReads(*before, storage).rows(tensor, 0, tensor.shape[0], a));
        ASSERT_TRUE(ForeignReads(*after, storage).rows(after->tensors.at(name), 0, tensor.shape[0], b));
        EXPECT_EQ(a, b) << name << ", " << world << " ranks";
      }
      const auto facts = read_model_facts(storage.content("/out/config.json"), "llama3", "config.json");
      ASSERT_TRUE(facts) << facts.error().message;
      EXPECT_EQ(facts->tied, tied);
      EXPECT_TRUE(differences(facts_of(tiny(tied)).value(), *facts).empty());
    }
  }
}

TEST(ExportHuggingFace, FilesKeepTheLimitAndTheIndexSaysWhatIsInThem) {
  MemoryStorage storage;
  storage.put(there / hugging_face_single, safetensors_file(tiny_there()));
  const auto checkpoint = save_loaded(storage, 2, false);
  auto plan = plan_of(false, 8000);  // the embedding alone takes 8192
  ASSERT_TRUE(export_hugging_face(checkpoint, storage, plan, "/out"));
  const auto sum = [&](const std::string& folder) {
    std::uint64_t bytes = 0;
    const auto found = open_hugging_face(storage, folder);  // which holds index and headers against each other
    EXPECT_TRUE(found);
    EXPECT_GT(found->files.size(), 4U);
    for (const auto& [name, tensor] : found->tensors) bytes += *bytes_of_shape(tensor.shape, tensor.dtype);
    EXPECT_THAT(storage.content(std::filesystem::path(folder) / hugging_face_index), HasSubstr("\"total_size\": " + std::to_string(bytes) + "\n"));
    return bytes;
  };
  const std::uint64_t wide = sum("/out");
  plan.dtype = StoredType::bf16;
  plan.most_file_bytes = 4000;
  ASSERT_TRUE(export_hugging_face(checkpoint, storage, plan, "/narrow"));
  EXPECT_EQ(sum("/narrow") * 2, wide);
  const auto again = export_hugging_face(checkpoint, storage, plan, "/narrow");
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("/narrow is there already and is not empty"));
}

}  // namespace
}  // namespace troupe::testing
