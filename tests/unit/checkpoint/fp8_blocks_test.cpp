#include "src/checkpoint/fp8_blocks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/checkpoint/restore_foreign.hpp"
#include "tests/unit/checkpoint/hugging_face_folder.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path there = "/hf";
const std::string query = "model.layers.0.self_attn.q_proj.weight";
constexpr std::int64_t rows = 32, columns = 32, block_rows = 12, block_columns = 20;  // ragged: 3 × 2 blocks

std::uint8_t code_at(std::int64_t row, std::int64_t column) {
  return static_cast<std::uint8_t>((row * 37 + column * 5) % 251 == 127 ? 1 : (row * 37 + column * 5) % 251);
}
float scale_at(std::int64_t row, std::int64_t column) { return 0.25F + static_cast<float>(row * 2 + column); }

/// Sign, exponent of base 2 with bias 7, three bits of fraction.
double meaning(std::uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double size = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return code >= 128 ? -size : size;
}

/// The tiny model's folder, whose first query projection is fp8 with these scales.
void put_folder(MemoryStorage& storage, const std::vector<std::int64_t>& scales = {3, 2}, StoredType type = StoredType::f32,
                const std::string& config = R"({"quantization_config":{"quant_method":"fp8","fmt":"e4m3","weight_block_size":[12,20]}})") {
  SafetensorsHeader header;
  std::string data;
  const auto add = [&](const std::string& name, StoredType dtype, const std::vector<std::int64_t>& shape, const std::string& bytes) {
    header.tensors.push_back({name, dtype, shape, data.size(), data.size() + bytes.size()});
    data += bytes;
  };
  for (const FolderTensor& tensor : tiny_there())
    if (tensor.name != query) add(tensor.name, StoredType::f32, tensor.shape, std::string(*bytes_of_shape(tensor.shape, StoredType::f32), '\0'));
  std::string codes;
  for (std::int64_t i = 0; i < rows * columns; ++i) codes += static_cast<char>(code_at(i / columns, i % columns));
  add(query, StoredType::e4m3, {rows, columns}, codes);
  if (!scales.empty()) {
    std::string values;
    for (std::int64_t i = 0; i < scales[0] * scales[1]; ++i) {
      const float value = scale_at(i / scales[1], i % scales[1]);
      values.append(reinterpret_cast<const char*>(&value), size_of(type));
    }
    add(query + "_scale_inv", type, scales, values);
  }
  storage.put(there / hugging_face_single, write_safetensors_header(header) + data);
  if (!config.empty()) storage.put(there / "config.json", config);
}

std::string refusal(MemoryStorage& storage) {
  auto found = open_hugging_face(storage, there);
  if (!found) return found.error().message;
  const auto joined = join_fp8_scales(*found, storage, there);
  return joined ? "accepted" : joined.error().message;
}

TEST(Fp8Blocks, EachCodeOfE4m3StandsForItsNumber) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_value(static_cast<std::uint8_t>(code));
    if ((code & 127) == 127)
      EXPECT_TRUE(std::isnan(value)) << code;
    else
      EXPECT_EQ(value, meaning(static_cast<std::uint8_t>(code))) << code;
  }
}

TEST(Fp8Blocks, EveryRankGetsItsRowsTimesTheScalesOfTheirBlocks) {
  const ModelDescription model = describe_llama3(llama3_flavour("tiny").value());
  for (const std::uint32_t world : {1U, 2U, 3U}) {
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      MemoryStorage storage;
      put_folder(storage);
      EXPECT_TRUE(says_fp8_blocks(storage, there));
      RankWeights own(model, rank, world);
      auto found = open_hugging_face(storage, there);
      ASSERT_TRUE(found) << found.error().message;
      const auto joined = join_fp8_scales(*found, storage, there);
      ASSERT_TRUE(joined) << joined.error().message;
      const auto done = restore_foreign(*found, *hugging_face_names("llama3"), 8, storage, own.tensors, {.model_only = true}, "/hf");
      ASSERT_TRUE(done) << done.error().message;
      for (const StateTensor& tensor : own.tensors) {
        if (tensor.name != "layers.0.attention.wq.weight") continue;
        for (std::int64_t i = 0; i < tensor.rows * columns; ++i) {
          const std::int64_t row = row_there(RowOrder::rotary_halves, 8, tensor.first_row + i / columns), column = i % columns;
          ASSERT_EQ(tensor.view.as<float>()[i], static_cast<float>(meaning(code_at(row, column)) * scale_at(row / block_rows, column / block_columns)))
              << "row " << row << ", column " << column;
        }
      }
    }
  }
}

TEST(Fp8Blocks, WhatDoesNotFitIsNamed) {
  const auto of = [](auto... how) {
    MemoryStorage storage;
    put_folder(storage, how...);
    return refusal(storage);
  };
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(of(), "accepted");
  EXPECT_THAT(of(Sizes{}), HasSubstr("/hf: tensor '" + query + "' is fp8: its scales '" + query + "_scale_inv' are missing"));
  EXPECT_THAT(of(Sizes{2, 3}), HasSubstr("its scales are F32 [2, 3], expected F32 [3, 2] for blocks of [12, 20]"));
  EXPECT_THAT(of(Sizes{3, 2}, StoredType::bf16), HasSubstr("its scales are BF16 [3, 2], expected F32"));
  EXPECT_THAT(of(Sizes{3, 2}, StoredType::f32, ""), HasSubstr("expected F32 [1, 1] for blocks of [128, 128]"));
  for (const char* how : {R"({"quant_method":"awq"})", "5", R"({"quant_method":"fp8","fmt":"e5m2"})", R"({"quant_method":"fp8","weight_block_size":[0,128]})",
                          R"({"quant_method":"fp8","weight_block_size":[128]})", R"({"quant_method":"fp8","weight_block_size":[9223372036854775808,1]})"})
    EXPECT_THAT(of(Sizes{3, 2}, StoredType::f32, std::string(R"({"quantization_config":)") + how + "}"), HasSubstr("/hf/config.json: quantization_config: "))
        << how;
  MemoryStorage plain;
  put_two_files(plain, there, tiny_there());
  EXPECT_THAT(refusal(plain), HasSubstr("/hf: holds no fp8 weights"));
  EXPECT_FALSE(says_fp8_blocks(plain, there));
}

TEST(Fp8Blocks, UnaskedForTheyAreRefusedWithTheKeyThatReadsThem) {
  MemoryStorage storage;
  put_folder(storage);
  RankWeights own(describe_llama3(llama3_flavour("tiny").value()), 0, 1);
  const auto found = open_hugging_face(storage, there);
  ASSERT_TRUE(found) << found.error().message;
  const auto done = restore_foreign(*found, *hugging_face_names("llama3"), 8, storage, own.tensors, {.model_only = true}, "/hf");
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("'" + query + "' is F8_E4M3 [32, 32], expected F32 [32, 32]"));
  EXPECT_THAT(done.error().message, HasSubstr("set checkpoint.initial_load_in_hf_quantized = true"));
}

}  // namespace
}  // namespace troupe::testing
