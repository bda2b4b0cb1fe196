#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/model/tape.hpp"

namespace troupe {

/// How a parameter starts. Normal draws are cut at ±`cut` (absolute); ones: 1.
struct Initialisation {
  enum class Kind : std::uint8_t { normal, ones };
  Kind kind = Kind::normal;
  double std = 1.0;
  double cut = 0.0;  ///< 0: uncut
};

/// A parameter in torchtitan's names. Sharded by rows; a vector is `rows` × 1.
struct ParameterDescription {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 1;
  bool vector = false;  ///< of one dimension
  bool linear = false;  ///< weight of a linear: may be fp8
  std::string tied_to;  ///< this name's memory is another parameter's: no state of its own, gradients are summed there
  Initialisation initialisation;
  [[nodiscard]] std::int64_t elements() const noexcept { return rows * cols; }
  [[nodiscard]] Shape shape() const { return vector ? Shape{rows} : Shape{rows, cols}; }
};

/// What is gathered, run and reduced together: the embedding, a block, or final norm with head and loss.
struct UnitDescription {
  std::string name;  ///< "embedding", "layer 3", "head"
  std::vector<ParameterDescription> parameters;
  Tape tape;
};

/// Stretching of long wavelengths for contexts longer than the original ("llama3" of Hugging Face's rope_scaling).
struct RotaryScaling {
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_length = 8192;
};
struct RotarySettings {
  double theta = 500000;
  std::int64_t head_dim = 0;
  bool scaled = false;
  RotaryScaling scaling;
};
/// [seq_len, head_dim / 2, 2] of (cos, sin).
[[nodiscard]] std::vector<double> rotary_table(const RotarySettings& settings, std::int64_t seq_len);

/// A model as a table: what planner, shards, estimate and checkpoints know of it. A value.
struct ModelDescription {
  std::string name;  ///< "llama3 8B"
  std::int64_t vocab_size = 0, dim = 0, layers = 0, heads = 0, head_dim = 0;
  RotarySettings rotary;
  std::vector<UnitDescription> units;  ///< 0 embedding, 1…layers blocks, layers + 1 head

  /// Whether a parameter's memory is another's.
  [[nodiscard]] bool ties() const noexcept;
  /// Every tied pair once.
  [[nodiscard]] std::int64_t parameter_count() const noexcept;
  /// Of a training step: 6 (N − N_embedding) + 12 L H d S. Source: torchtitan; no causal halving.
  [[nodiscard]] double flops_per_token(std::int64_t seq_len) const noexcept;
  /// The same with the part of attention's products that causality leaves: a token sees (seq_len + 1) / 2 others on average.
  [[nodiscard]] double causal_flops_per_token(std::int64_t seq_len) const noexcept;
};

}  // namespace troupe
