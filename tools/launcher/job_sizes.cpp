#include "tools/launcher/job_sizes.hpp"

#include <fmt/format.h>

namespace troupe {
namespace {

constexpr double largest_bytes = 1125899906842624.0;  ///< 1 PiB: no rank has it, and far from where sizes would wrap
constexpr double largest_passes = 65536.0;            ///< units × micro-batches; each takes a few operations of the plan
constexpr double state_bytes = 16.0;                  ///< of a parameter: master, gradient and two moments in fp32
constexpr double value_bytes = 4.0;

}  // namespace

Result<void> check_sizes(const JobConfig& config, const ModelDescription& model, const MeshDegrees& mesh) {
  const double tokens = static_cast<double>(config.training.local_batch_size) * static_cast<double>(config.training.seq_len);
  double parameters = 0, values = 0;
  for (const UnitDescription& unit : model.units) {
    for (const ParameterDescription& p : unit.parameters) parameters += static_cast<double>(p.rows) * static_cast<double>(p.cols);
    for (const TapeValue& value : unit.tape.values) values += static_cast<double>(value.width);
  }
  if (const double bytes = state_bytes * parameters; bytes > largest_bytes)
    return Error{
        fmt::format("[model]: {} of dim {}, {} layers and {} tokens of vocabulary would have {:.3g} parameters, whose training takes {:.3g} TiB; make "
                    "model.dim, n_layers, ffn_hidden or vocab_size smaller",
                    model.name, model.dim, model.layers, model.vocab_size, parameters, bytes / 1099511627776.0)};
  if (const double bytes = value_bytes * tokens * values; bytes > largest_bytes)
    return Error{
        fmt::format("training.local_batch_size = {} of training.seq_len = {} would take {:.3g} TiB of a rank for activations; make one of them smaller",
                    config.training.local_batch_size, config.training.seq_len, bytes / 1099511627776.0)};
  const double micro_batches = static_cast<double>(config.micro_batches(mesh.data_parallel()));
  if (micro_batches * static_cast<double>(model.units.size()) > largest_passes)
    return Error{fmt::format(
        "training.global_batch_size = {} is {} micro-batches of training.local_batch_size = {} on {} data-parallel ranks, with {} units of "
        "the model in each: a plan of a step holds at most {} of these together; make global_batch_size smaller or local_batch_size larger",
        config.training.global_batch_size, micro_batches, config.training.local_batch_size, mesh.data_parallel(), model.units.size(), largest_passes)};
  return {};
}

}  // namespace troupe
