#include "src/model/plain_step.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

std::size_t largest_batch(const TrainingOptions& options) { return std::max(options.batch.bytes(), options.evaluation.bytes()); }

}  // namespace

PlainStep::PlainStep(TrainingModel& model, Device& device, Communicators communicators, Load load)
    : model_(model),
      device_(device),
      communicators_(communicators),
      load_(std::move(load)),
      staging_(device.allocate(largest_batch(model.options()), Placement::host)),
      batch_(device.allocate(largest_batch(model.options()), Placement::device)),
      weights_(device.allocate(model.estimate().weights_slot_bytes(), Placement::device)),
      gradients_(device.allocate(model.estimate().gradients_slot_bytes(), Placement::device)) {}
PlainStep::~PlainStep() = default;

void PlainStep::load(Step step, Micro micro) {
  load_(step, micro, staging_->bytes());
  device_.upload_now(staging_->bytes(), batch_->bytes());
}

void PlainStep::scales(Stream& stream) {
  for (Unit unit{0}; unit.value() < model_.units(); ++unit) model_.shards().scales(stream, unit, communicators_.dp_shard);
}

void PlainStep::forward(Stream& stream, Step step, Micro micro) {
  for (Unit unit{0}; unit.value() < model_.units(); ++unit) {
    model_.shards().gather(stream, unit, weights_->bytes(), communicators_.dp_shard);
    model_.compute().forward(stream, step, micro, unit, batch_->bytes(), weights_->bytes());
  }
}

StepNumbers PlainStep::evaluate(Step step, std::uint32_t batches) {
  Stream& stream = device_.setup_stream();
  scales(stream);
  const std::uint32_t first = model_.options().micro_batches;
  for (Micro micro{first}; micro.value() < first + batches; ++micro) {
    load(step, micro);
    forward(stream, step, micro);
  }
  model_.shards().evaluate(stream, communicators_.world);
  device_.wait(stream);
  return model_.shards().numbers();
}

void PlainStep::gradients(Step step) {
  pass(step, [](Unit) {});
}

void PlainStep::pass(Step step, const std::function<void(Unit)>& reduced) {
  Stream& stream = device_.setup_stream();
  ShardProgram& shards = model_.shards();
  scales(stream);
  for (Micro micro{0}; micro.value() < model_.options().micro_batches; ++micro) {
    load(step, micro);
    forward(stream, step, micro);
    for (std::uint32_t u = model_.units(); u-- > 0;) {
      const bool reads_weights = model_.estimate().units[u].backward_reads_weights;
      if (reads_weights) shards.gather(stream, Unit{u}, weights_->bytes(), communicators_.dp_shard);
      const std::span<std::byte> weights = reads_weights ? weights_->bytes() : std::span<std::byte>();
      model_.compute().backward(stream, step, micro, Unit{u}, batch_->bytes(), weights, gradients_->bytes());
      reduce(stream, micro, Unit{u});
      if (micro.value() + 1 == model_.options().micro_batches) reduced(Unit{u});
    }
  }
}

void PlainStep::reduce(Stream& stream, Micro micro, Unit unit) {
  ShardProgram& shards = model_.shards();
  const bool last = micro.value() + 1 == model_.options().micro_batches;
  if (!last && model_.options().reduce_last) return shards.accumulate(stream, micro, unit, gradients_->bytes());
  shards.reduce(stream, micro, unit, gradients_->bytes(), communicators_.dp_shard);
  if (last && communicators_.dp_replicate) shards.all_reduce(stream, unit, *communicators_.dp_replicate);
}

StepNumbers PlainStep::run(EpochId epoch, Step step, double learning_rate) {
  Stream& stream = device_.setup_stream();
  ShardProgram& shards = model_.shards();
  const bool early = model_.options().step_in_backward;
  pass(step, [&](Unit unit) {
    if (!early || unit == Unit{0}) return;
    shards.unit_verdict(stream, epoch, step, unit, communicators_.world);
    shards.optimize(stream, step, unit, learning_rate);
  });
  shards.verdict(stream, epoch, step, communicators_.world);
  for (Unit unit{0}; unit.value() < (early ? 1 : model_.units()); ++unit) shards.optimize(stream, step, unit, learning_rate);
  device_.wait(stream);
  return model_.shards().numbers();
}

}  // namespace troupe
