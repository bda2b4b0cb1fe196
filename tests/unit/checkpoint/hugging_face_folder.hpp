#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "src/checkpoint/hugging_face.hpp"
#include "src/checkpoint/safetensors.hpp"
#include "src/device/state_tensor.hpp"
#include "src/model/family_llama3.hpp"
#include "tests/support/memory_storage.hpp"

namespace troupe::testing {

/// Value of element `column` of row `row` of a tensor: its place, and that of the tensor by its name's length.
inline float value_at(const std::string& name, std::int64_t row, std::int64_t column) {
  return static_cast<float>(row * 1000 + column) + static_cast<float>(name.size()) / 64;
}

struct FolderTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  StoredType dtype = StoredType::f32;
};

/// One safetensors file whose values are value_at.
inline std::string safetensors_file(const std::vector<FolderTensor>& tensors, const std::map<std::string, std::string>& metadata = {}) {
  SafetensorsHeader header;
  header.metadata = metadata;
  std::string data;
  for (const FolderTensor& tensor : tensors) {
    std::vector<float> values;
    const std::int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0], columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
    for (std::int64_t i = 0; i < rows * columns; ++i) values.push_back(value_at(tensor.name, i / columns, i % columns));
    std::vector<std::byte> bytes(values.size() * size_of(tensor.dtype));
    if (convertible(StoredType::f32, tensor.dtype)) convert(std::as_bytes(std::span(values)), StoredType::f32, bytes, tensor.dtype);
    header.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, data.size(), data.size() + bytes.size()});
    data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return write_safetensors_header(header) + data;
}

/// The TINY model's tensors under Hugging Face's names: head_dim 8, four query heads, two of keys.
inline std::vector<FolderTensor> tiny_there(bool head = true, StoredType dtype = StoredType::f32) {
  std::vector<FolderTensor> tensors{{"model.embed_tokens.weight", {64, 32}, dtype}};
  for (int layer = 0; layer < 2; ++layer) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    for (const auto& [name, rows, columns] : std::vector<std::tuple<std::string, std::int64_t, std::int64_t>>{{"self_attn.q_proj", 32, 32},
                                                                                                              {"self_attn.k_proj", 16, 32},
                                                                                                              {"self_attn.v_proj", 16, 32},
                                                                                                              {"self_attn.o_proj", 32, 32},
                                                                                                              {"mlp.gate_proj", 96, 32},
                                                                                                              {"mlp.up_proj", 96, 32},
                                                                                                              {"mlp.down_proj", 32, 96}})
      tensors.push_back({p + name + ".weight", {rows, columns}, dtype});
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) tensors.push_back({p + norm + ".weight", {32}, dtype});
  }
  tensors.push_back({"model.norm.weight", {32}, dtype});
  if (head) tensors.push_back({"lm_head.weight", {64, 32}, dtype});
  return tensors;
}

/// Writes the tensors into two files with an index, every other one into each.
inline void put_two_files(MemoryStorage& storage, const std::filesystem::path& folder, const std::vector<FolderTensor>& tensors) {
  std::vector<FolderTensor> parts[2];
  std::string map;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    parts[i % 2].push_back(tensors[i]);
    map += (map.empty() ? "" : ",") + ("\"" + tensors[i].name) + "\":\"model-0000" + std::to_string(i % 2 + 1) + "-of-00002.safetensors\"";
  }
  storage.put(folder / "model-00001-of-00002.safetensors", safetensors_file(parts[0]));
  storage.put(folder / "model-00002-of-00002.safetensors", safetensors_file(parts[1]));
  storage.put(folder / hugging_face_index, "{\"metadata\":{\"total_size\":1},\"weight_map\":{" + map + "}}");
}

/// One rank's fp32 weights of a model, by rows as ceil(rows / ranks).
class RankWeights {
 public:
  RankWeights(const ModelDescription& model, std::uint32_t rank, std::uint32_t world) {
    for (const UnitDescription& unit : model.units) {
      for (const ParameterDescription& p : unit.parameters) {
        if (!p.tied_to.empty()) continue;
        const std::int64_t each = (p.rows + world - 1) / world, first = std::min(p.rows, each * rank), rows = std::min(p.rows, first + each) - first;
        Shape part = p.shape();
        part.size[0] = rows;
        memory_.emplace_back(static_cast<std::size_t>(rows * p.cols) * sizeof(float));
        bytes += memory_.back().size();
        tensors.push_back({p.name, p.shape(), first, rows, TensorView::contiguous(memory_.back().data(), DType::f32, part), true, false});
      }
    }
  }
  StateTensors tensors;
  std::uint64_t bytes = 0;

 private:
  std::vector<std::vector<std::byte>> memory_;
};

}  // namespace troupe::testing
