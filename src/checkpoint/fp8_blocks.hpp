#pragma once
#include <filesystem>

#include "src/base/result.hpp"
#include "src/checkpoint/foreign_tensors.hpp"
#include "src/checkpoint/storage.hpp"

namespace troupe {

/// Whether the folder's config.json says that its weights are fp8 with a scale for each block (quantization_config: quant_method fp8).
[[nodiscard]] bool says_fp8_blocks(Storage& storage, const std::filesystem::path& folder);

/// Weights in F8_E4M3 with fp32 scales by block, as DeepSeek's and other folders of Hugging Face hold them: value = code × NAME_scale_inv[row / block rows]
/// [column / block columns]. The blocks' size is config.json's, 128 × 128 where it says none. Joins each weight with its scales: from then on restore_foreign
/// takes it for fp32. Blocks. Errors name folder and tensor: a weight without scales, scales of another shape or of nothing, no such weight at all.
[[nodiscard]] Result<void> join_fp8_scales(ForeignTensors& found, Storage& storage, const std::filesystem::path& folder);

}  // namespace troupe
