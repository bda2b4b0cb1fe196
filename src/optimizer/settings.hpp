#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/schema.hpp"

namespace troupe {

/// [optimizer]
struct OptimizerSettings {
  std::string name = "AdamW";
  double lr = 8e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  bool decay_norms_and_biases = true;
  std::vector<std::string> param_groups;  ///< lines of ParameterGroups
  double ema_decay = 0;                   ///< 0: no averages
  bool early_step_in_backward = false;
};

inline void describe(Schema& schema, OptimizerSettings& s) {
  schema.section("optimizer", "The optimizer; its state is fp32 and sharded like the weights. On a resume these values win over those of the checkpoint.");
  schema.key("name", &s.name, KeyClass::frozen, "AdamW, or Adam: weight decay added to the gradient").one_of({"Adam", "AdamW"});
  schema.key("lr", &s.lr, KeyClass::live, "learning rate at the plateau of the schedule").at_least(0);
  schema.key("beta1", &s.beta1, KeyClass::live, "decay of the first moment").at_least(0).below(1);
  schema.key("beta2", &s.beta2, KeyClass::live, "decay of the second moment").at_least(0).below(1);
  schema.key("eps", &s.eps, KeyClass::live, "added to the root of the second moment").above(0);
  schema.key("weight_decay", &s.weight_decay, KeyClass::live, "applied to all parameters, but for the two keys below").at_least(0);
  schema.key("decay_norms_and_biases", &s.decay_norms_and_biases, KeyClass::epoch,
             "false: parameters of one dimension have no weight decay; torchtitan's have");
  schema
      .key("param_groups", &s.param_groups, KeyClass::epoch,
           "parameters that are treated otherwise, by their names: \"match=REGEX lr_factor=0.1 weight_decay=0 beta1=… beta2=… eps=…\"; the first that matches "
           "wins")
      .or_single();
  schema
      .key("ema_decay", &s.ema_decay, KeyClass::epoch,
           "keep a moving average of the weights, average ← ema_decay · average + (1 − ema_decay) · weight after each step; 0: none; saved in checkpoints")
      .at_least(0)
      .below(1);
  schema.ignored("implementation", "fused", "there is one implementation; torch's three compute the same numbers").one_of({"for-loop", "foreach", "fused"});
  schema.key(
      "early_step_in_backward", &s.early_step_in_backward, KeyClass::epoch,
      "each layer is updated in the backward pass, as soon as its gradients are reduced, so that gradients of two layers at a time take memory; needs "
      "training.max_norm = 0 and training.guard.nonfinite = \"stop\", and parallelism.reduce_gradients = \"last\" where a step has several micro-batches");
}

/// [lr_scheduler]: warm-up, stable, decay.
struct ScheduleSettings {
  std::int64_t warmup_steps = 200;
  std::optional<double> decay_ratio;  ///< of the total; unset: all after the warm-up
  std::string decay_type = "linear";
  double min_lr_factor = 0;
  std::optional<std::int64_t> total_steps;  ///< unset: training.steps
};

inline void describe(Schema& schema, ScheduleSettings& s) {
  schema.section("lr_scheduler",
                 "Learning rate over the run: warm-up, plateau, decay. A pure function of the step, so a resumed run follows the config that it is given.");
  schema.key("warmup_steps", &s.warmup_steps, KeyClass::live, "steps of linear rise").at_least(0);
  schema.key("decay_ratio", &s.decay_ratio, KeyClass::live, "part of the total that decays; unset: all after the warm-up").at_least(0).at_most(1);
  schema.key("decay_type", &s.decay_type, KeyClass::live, "curve of the decay").one_of({"linear", "sqrt", "cosine"});
  schema.key("min_lr_factor", &s.min_lr_factor, KeyClass::live, "factor of lr where the decay ends").at_least(0).at_most(1).alias("lr_scheduler.lr_min");
  schema.key("total_steps", &s.total_steps, KeyClass::live, "length of the schedule; unset: training.steps").at_least(1);
}

}  // namespace troupe
