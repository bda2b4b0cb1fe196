#pragma once
#include "src/device/kernels.hpp"
#include "src/optimizer/settings.hpp"

namespace troupe {

/// The optimizer's hyper-parameters of one parameter; without groups the same for all (norms and embeddings decay too). Defaults are torchtitan's.
/// The learning rate is not here: it is a function of the step (WarmupStableDecay).
struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  bool decoupled = true;   ///< false: Adam
  double lr_factor = 1.0;  ///< of the schedule's learning rate

  [[nodiscard]] AdamWStep at(double learning_rate) const noexcept { return {learning_rate * lr_factor, beta1, beta2, eps, weight_decay, decoupled}; }
};

/// Of the checked `[optimizer]` section.
[[nodiscard]] inline AdamWSettings adamw_of(const OptimizerSettings& s) { return {s.beta1, s.beta2, s.eps, s.weight_decay, s.name != "Adam", 1.0}; }

}  // namespace troupe
