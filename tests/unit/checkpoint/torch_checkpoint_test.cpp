#include "src/checkpoint/torch_checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "src/checkpoint/restore_foreign.hpp"
#include "src/checkpoint/tensor_names.hpp"
#include "tests/support/memory_storage.hpp"

namespace troupe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path there = "/titan/step-7";

/// The folder that write_torch_checkpoint.py has written with two ranks.
void put_folder(MemoryStorage& storage) {
  for (const auto& entry : std::filesystem::directory_iterator(TROUPE_TORCH_CHECKPOINT)) {
    std::ifstream file(entry.path(), std::ios::binary);
    storage.put(there / entry.path().filename(), std::string(std::istreambuf_iterator<char>(file), {}));
  }
}

std::vector<float> rows(const ForeignTensors& found, MemoryStorage& storage, const std::string& name, std::int64_t first, std::int64_t count) {
  const ForeignTensor& tensor = found.tensors.at(name);
  std::vector<float> values(static_cast<std::size_t>(count * (tensor.shape.size() > 1 ? tensor.shape[1] : 1)));
  const auto read = ForeignReads(found, storage).rows(tensor, first, count, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(read) << read.error().message;
  return values;
}

std::string refusal(MemoryStorage& storage) {
  const auto found = open_torch_checkpoint(storage, there);
  if (!found) return found.error().message;
  ForeignReads reads(*found, storage);
  for (const auto& [name, tensor] : found->tensors) {
    std::vector<std::byte> bytes(*bytes_of_shape(tensor.shape, tensor.dtype));
    if (auto read = reads.rows(tensor, 0, tensor.shape.empty() ? 1 : tensor.shape[0], bytes); !read) return read.error().message;
  }
  return "accepted";
}

/// With the last `from` in a file replaced by as many bytes.
std::string refusal_with(const std::string& file, const std::string& from, const std::string& to) {
  MemoryStorage storage;
  put_folder(storage);
  std::string content = storage.content(there / file);
  const std::size_t at = content.rfind(from);
  EXPECT_NE(at, std::string::npos) << from;
  storage.put(there / file, content.replace(at, from.size(), to));
  return refusal(storage);
}

TEST(TorchCheckpoint, TensorsCutByRowsAndByColumnsAreReadInAnyRows) {
  MemoryStorage storage;
  put_folder(storage);
  const auto found = open_torch_checkpoint(storage, there);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_THAT(rows(*found, storage, "by_rows.weight", 2, 2), ElementsAre(6, 7, 8, 9, 10, 11));  // from both ranks' files
  EXPECT_THAT(rows(*found, storage, "by_columns.weight", 1, 2), ElementsAre(6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17));
  EXPECT_THAT(rows(*found, storage, "whole.weight", 0, 2), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(found->tensors.at("norm.weight").dtype, StoredType::bf16);
  EXPECT_EQ(*read_whole_number(*found, storage, "train_state.step"), 7);
  EXPECT_EQ(*read_whole_number(*found, storage, "train_state.ntokens_seen"), 1792);
  EXPECT_THAT(found->other, ::testing::Contains("lr_scheduler.last_epoch"));
}

TEST(TorchCheckpoint, StateOfARankIsFilledWithTheStepCountAsAWholeNumber) {
  MemoryStorage storage;
  put_folder(storage);
  const auto found = open_torch_checkpoint(storage, there);
  ASSERT_TRUE(found) << found.error().message;
  std::vector<float> weight(6), moment(6), norm(6), columns(24), whole(4);
  std::int64_t count = 0;
  const auto tensor = [](const std::string& name, void* data, DType type, const Shape& global, std::int64_t first, std::int64_t own, bool model) {
    Shape part = global;
    part.size[0] = own;
    return StateTensor{name, global, first, own, TensorView::contiguous(data, type, part), model, false};
  };
  const StateTensors state{tensor("by_rows.weight", weight.data(), DType::f32, {5, 3}, 1, 2, true),
                           tensor("optimizer.exp_avg.by_rows.weight", moment.data(), DType::f32, {5, 3}, 3, 2, false),
                           tensor("optimizer.step.by_rows.weight", &count, DType::i64, {1}, 0, 1, false),
                           tensor("norm.weight", norm.data(), DType::f32, {6}, 0, 6, true),
                           tensor("by_columns.weight", columns.data(), DType::f32, {4, 6}, 0, 4, true),
                           tensor("whole.weight", whole.data(), DType::f32, {2, 2}, 0, 2, true)};
  const auto done = restore_foreign(*found, torchtitan_names(), 1, storage, state, {}, "/titan");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_THAT(weight, ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_THAT(moment, ElementsAre(9, 10, 11, 12, 13, 14));
  EXPECT_EQ(count, 7);
  EXPECT_EQ(norm[4], 0.25F);
  EXPECT_EQ(columns[23], 23);
}

TEST(TorchCheckpoint, WhatIsDamagedOrMaliciousIsNamed) {
  EXPECT_THAT(refusal_with(".metadata", "PosixPath", "PosixPoth"), HasSubstr("/titan/step-7/.metadata: pickle, byte"));
  EXPECT_THAT(refusal_with(".metadata", "__0_0.distcp", "../_0.distcp"), HasSubstr("'../_0.distcp' is no name of a file in this folder"));
  EXPECT_THAT(refusal_with(".metadata", "__0_0.distcp", "__2_0.distcp"), HasSubstr("__2_0.distcp"));
  EXPECT_THAT(refusal_with(".metadata", "whole.weight", "whole.weigth"), HasSubstr("tensor 'whole.weight': its block at [0, 0] lies in no file"));
  EXPECT_THAT(refusal_with("__0_0.distcp", "torch\nFloatStorage", "posix\nsystemsystem"),
              HasSubstr("names 'posix systemsystem', which such a file has no need of"));
  EXPECT_THAT(refusal_with("__0_0.distcp", "FloatStorage", "LongStorag\n\x85"), HasSubstr("__0_0.distcp: pickle"));
  EXPECT_THAT(refusal_with("__1_0.distcp", "little", "bigger"), HasSubstr("its values are not little-endian"));
  EXPECT_THAT(refusal_with("__1_0.distcp", "PK\x05\x06", "PK\x05\x07"), HasSubstr("does not end as an archive of torch.save does"));
  MemoryStorage storage;
  put_folder(storage);
  const std::string file = storage.content(there / "__1_0.distcp");
  storage.put(there / "__1_0.distcp", file.substr(0, file.size() - 1));
  EXPECT_THAT(refusal(storage), HasSubstr("of __1_0.distcp, which has " + std::to_string(file.size() - 1)));
}

}  // namespace
}  // namespace troupe::testing
