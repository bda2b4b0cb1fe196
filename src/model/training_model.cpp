#include "src/model/training_model.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "src/device/draws_values.hpp"
#include "src/model/device_rotary_table.hpp"
#include "src/model/initialise.hpp"
#include "src/model/recompute_search.hpp"
#include "src/model/shard_memory.hpp"
#include "src/model/state_program.hpp"
#include "src/model/step_and_evaluation.hpp"
#include "src/model/tape_program.hpp"

namespace troupe {
namespace {

TapeSizes sizes_of(const BatchLayout& batch, DType compute) {
  return {.rows = static_cast<std::int64_t>(batch.rows), .seq_len = static_cast<std::int64_t>(batch.seq_len), .compute = compute, .documents = batch.documents};
}
TapeSizes sizes_of(const TrainingOptions& o) { return sizes_of(o.batch, o.compute); }

void check(const ModelDescription& model, const TrainingOptions& o) {
  const auto refuse = [&](const std::string& what) { throw std::invalid_argument("training " + model.name + ": " + what); };
  if (o.world == 0 || o.rank >= o.world) refuse("rank " + std::to_string(o.rank) + " of a world of " + std::to_string(o.world));
  if (o.replicas == 0 || o.replica >= o.replicas) refuse("replica " + std::to_string(o.replica) + " of " + std::to_string(o.replicas));
  if (o.micro_batches == 0 || o.batch.tokens() == 0) refuse("a step needs at least one micro-batch of one token");
  if (o.step_in_backward && o.micro_batches > 1 && !o.reduce_last) refuse("units step in the backward pass, but gradients are reduced with each micro-batch");
  if (o.compute != DType::f32 && o.compute != DType::bf16 && o.compute != DType::f64)
    refuse("compute type " + std::string(name_of(o.compute)) + "; it is float32 or bfloat16");
  if (o.compute == DType::f64 && o.float8.enable) refuse("fp8 beside float64");
  if (o.gradient != DType::f32 && o.gradient != DType::bf16) refuse("gradients in " + std::string(name_of(o.gradient)) + "; they are float32 or bfloat16");
  if (o.gradient == DType::bf16 && (!o.gradients_stay() || o.replicas > 1 || o.compute != DType::bf16))
    refuse("gradients in bfloat16, but something is added to them: they need one rank, one micro-batch, the step behind the backward pass, and bfloat16");
  if (o.gradient == DType::bf16 && model.ties()) refuse("gradients in bfloat16, but those of tied parameters are added to each other");
}

UnitCost cost_of_unit(const ModelDescription& model, const WeightLayout& layout, const TapeSizes& sizes, const KeptSteps& kept, std::size_t u) {
  const UnitDescription& unit = model.units[u];
  UnitCost cost{.weights_bytes = layout.units[u].weights_bytes, .gradients_bytes = layout.units[u].gradients_bytes};
  for (const ParameterDescription& p : unit.parameters) cost.parameters += p.tied_to.empty() ? p.elements() : 0;
  for (const TapeStep& step : unit.tape.steps) {
    const std::int64_t weights = step.parameter >= 0 ? unit.parameters[static_cast<std::size_t>(step.parameter)].elements() : 0;
    const OperationCost operation = cost_of(step, unit.tape, sizes, weights);
    cost.forward_flops += operation.forward_flops;
    cost.backward_flops += operation.backward_input_flops + operation.backward_weight_flops;
  }
  cost.shard_bytes = ShardMemory::gradient_bytes_of(layout, u);
  cost.recomputed_flops = cost_of_running_again(unit, sizes, kept[u]).flops;
  cost.backward_flops += cost.recomputed_flops;
  return cost;
}

/// Values first, first + 1, … of a parameter: drawn where they lie if the device can, else made on the host and sent.
void fill_master(Device& device, const TensorView& master, const InitialValues& initial, std::uint64_t first) {
  if (initial.draw() == nullptr) return device.kernels().fill(device.setup_stream(), master, 1.0);
  if (auto* draws = dynamic_cast<DrawsValues*>(&device.kernels())) return draws->draw(device.setup_stream(), master, *initial.draw(), first);
  constexpr std::size_t chunk = std::size_t{1} << 20;  // elements on the host at once
  const auto count = static_cast<std::size_t>(master.shape.elements());
  std::vector<float> values;
  for (std::size_t done = 0; done < count; done += chunk) {
    values.resize(std::min(chunk, count - done));
    initial.fill(first + done, values);
    device.upload_now(std::as_bytes(std::span(values)), bytes_of(master).subspan(done * sizeof(float), values.size() * sizeof(float)));
  }
}

std::size_t rotary_bytes(const ModelDescription& model, const TapeSizes& sizes) {
  return static_cast<std::size_t>(sizes.seq_len * model.head_dim) * (sizes.compute == DType::f64 ? sizeof(double) : sizeof(float));
}

std::size_t unit_verdict_bytes(std::size_t units) { return sizeof(VerdictSums) + units * sizeof(Verdict); }
/// Of the step, with the marks of rows behind them.
std::size_t totals_bytes(const TrainingOptions& options) { return sizeof(StepTotals) + options.sources.marks() * sizeof(LossSum); }

bool any_tied(const WeightLayout& layout) {
  return std::ranges::any_of(layout.parameters, [](const LaidParameter& p) { return p.tied; });
}

std::vector<MemoryItem> memory_of(const ModelDescription& model, const TrainingOptions& options, const TrainingEstimate& e) {
  const ShardMemory::Bytes shards = ShardMemory::bytes_of(e.layout, options.sums_micro_batches(), options.ema_decay > 0, options.step_in_backward);
  const Placement state = options.offload ? Placement::host : Placement::device;
  std::vector<MemoryItem> items{{.kind = "fp32 masters", .bytes = shards.masters, .placement = state},
                                {.kind = "optimizer moments", .bytes = shards.moments, .placement = state},
                                {.kind = "averages of weights", .bytes = shards.averages, .placement = state},
                                {.kind = "gradient shards", .bytes = shards.gradients},
                                {.kind = "sums of micro-batches", .bytes = shards.sums},
                                {.kind = "step counts, fp8 scales", .bytes = shards.scalars},
                                {.kind = "rotary table, totals", .bytes = rotary_bytes(model, e.tapes.sizes) + totals_bytes(options)},
                                {.kind = "numbers of the step", .bytes = totals_bytes(options), .placement = Placement::host},
                                {.kind = "saved activations", .bytes = e.tapes.peak_saved, .of_arena = true}};
  if (options.step_in_backward) items.push_back({.kind = "verdicts of units", .bytes = unit_verdict_bytes(model.units.size())});
  if (options.evaluation.rows > 0) {
    const std::size_t more = std::max(e.evaluation.arena_bytes, e.tapes.arena_bytes) - e.tapes.arena_bytes;
    items.push_back({.kind = "validation", .bytes = more + rotary_bytes(model, e.evaluation.sizes) + sizeof(StepTotals)});
    items.push_back({.kind = "numbers of the validation", .bytes = sizeof(LossSum), .placement = Placement::host});
  }
  std::size_t arena = e.tapes.peak_saved;
  for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
    items.push_back({.kind = std::string("working ") + name_of(static_cast<BufferKind>(kind)), .bytes = e.tapes.peak_by_kind[kind], .of_arena = true});
    arena += e.tapes.peak_by_kind[kind];
  }
  items.push_back({.kind = "arena fragmentation", .bytes = e.tapes.arena_bytes - arena, .of_arena = true});
  items.push_back({.kind = "weights slot", .bytes = e.weights_slot_bytes(), .per_slot = true});
  items.push_back({.kind = "gradients slot", .bytes = e.gradients_slot_bytes(), .per_slot = true});
  return items;
}

}  // namespace

std::size_t TrainingEstimate::weights_slot_bytes() const noexcept {
  std::size_t most = 0;
  for (const UnitLayout& unit : layout.units) most = std::max(most, unit.weights_bytes);
  return most;
}

std::size_t TrainingEstimate::gradients_slot_bytes() const noexcept {
  std::size_t most = 0;
  for (const UnitLayout& unit : layout.units) most = std::max(most, unit.gradients_bytes);
  return most;
}

std::size_t TrainingEstimate::resident_bytes() const noexcept {
  std::size_t sum = 0;
  for (const MemoryItem& item : memory) sum += item.per_slot ? 0 : item.bytes;
  return sum;
}

TrainingEstimate estimate_training(const ModelDescription& model, const TrainingOptions& options) {
  check(model, options);
  const TapeSizes sizes = sizes_of(options);
  TrainingEstimate e{.layout = lay_out_weights(model, sizes, options.float8, options.world), .tapes = {}, .kept = {}, .units = {}, .memory = {}};
  for (LaidParameter& p : e.layout.parameters) p.gradient = p.description.vector ? DType::f32 : options.gradient;
  e.kept = choose_kept(model, e.layout, sizes, options.recompute);
  e.tapes = plan_tapes(model, e.layout, sizes, {.kept = e.kept});
  if (options.evaluation.rows > 0) {
    e.evaluation = plan_tapes(model, e.layout, sizes_of(options.evaluation, options.compute), {.inference = true, .with_loss = true});
  }
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    e.units.push_back(cost_of_unit(model, e.layout, sizes, e.kept, u));
    e.units.back().backward_reads_weights = reads_weights(e.tapes.backward[u]);
  }
  e.memory = memory_of(model, options, e);
  e.flops_per_token = model.flops_per_token(sizes.seq_len);
  e.parameter_count = model.parameter_count();
  return e;
}

/// Members in the order of their dependence.
struct TrainingModel::Parts {
  ModelDescription model;
  TrainingOptions options;
  Device& device;
  TrainingEstimate estimate;
  ShardMemory memory;
  std::unique_ptr<Buffer> arena, rotary, totals, unit_verdicts, told, evaluation_rotary, evaluation_totals, evaluated;
  TapeProgram compute;
  StateProgram shards;
  std::optional<TapeProgram> evaluation;
  std::optional<StepAndEvaluation> both;

  Parts(ModelDescription m, TrainingOptions o, Device& d, const HaltWord* halt)
      : model(std::move(m)),
        options(with_nominal(std::move(o))),
        device(d),
        estimate(estimate_training(model, options)),
        memory(estimate.layout,
               {options.rank, options.sums_micro_batches(), options.offload ? Placement::host : Placement::device, options.ema_decay > 0,
                options.step_in_backward},
               d),
        arena(d.allocate(std::max(estimate.tapes.arena_bytes, estimate.evaluation.arena_bytes), Placement::device)),
        rotary(d.allocate(rotary_bytes(model, estimate.tapes.sizes), Placement::device)),
        totals(d.allocate(totals_bytes(options), Placement::device)),
        unit_verdicts(options.step_in_backward ? d.allocate(unit_verdict_bytes(model.units.size()), Placement::device) : nullptr),
        told(d.allocate(totals_bytes(options), Placement::host)),
        evaluation_rotary(evaluates() ? d.allocate(rotary_bytes(model, estimate.evaluation.sizes), Placement::device) : nullptr),
        evaluation_totals(evaluates() ? d.allocate(sizeof(StepTotals), Placement::device) : nullptr),
        evaluated(evaluates() ? d.allocate(sizeof(LossSum), Placement::host) : nullptr),
        compute(compute_inputs()),
        shards(shard_inputs(halt)) {
    reset_totals();
    fill_rotary_table(device, model.rotary, rotary_view());
    if (evaluates()) make_evaluation();
    if (allocated() != estimate.resident_bytes()) {
      throw std::logic_error("memory of " + model.name + ": planned " + std::to_string(estimate.resident_bytes()) + " bytes, allocated " +
                             std::to_string(allocated()));
    }
  }

  static TrainingOptions with_nominal(TrainingOptions o) {
    if (o.nominal_tokens <= 0) o.nominal_tokens = static_cast<double>(o.batch.tokens()) * o.micro_batches * o.data_ranks();
    return o;
  }
  void make_evaluation() {
    const TensorView table = rotary_view(*evaluation_rotary, estimate.evaluation.sizes);
    fill_rotary_table(device, model.rotary, table);
    evaluation.emplace(TapeProgram::Inputs{estimate.evaluation, estimate.layout, device.kernels(), arena->bytes(), table, scales(), evaluation_sums(), 0.0,
                                           nullptr, options.loss});
    both.emplace(compute, *evaluation, options.micro_batches);
  }
  [[nodiscard]] TensorView rotary_view() const { return rotary_view(*rotary, estimate.tapes.sizes); }
  [[nodiscard]] TensorView rotary_view(const Buffer& table, const TapeSizes& sizes) const {
    const DType type = options.compute == DType::f64 ? DType::f64 : DType::f32;
    return TensorView::contiguous(table.bytes().data(), type, {sizes.seq_len, model.head_dim / 2, 2}, device.info().id);
  }
  void reset_totals() const {
    const StepTotals none;
    device.upload_now(std::as_bytes(std::span(&none, 1)), totals->bytes().first(sizeof none));
    if (unit_verdicts) {
      std::vector<std::byte> empty(unit_verdicts->bytes().size());
      new (empty.data()) VerdictSums();
      for (std::size_t u = 0; u < model.units.size(); ++u) new (empty.data() + sizeof(VerdictSums) + u * sizeof(Verdict)) Verdict();
      device.upload_now(empty, unit_verdicts->bytes());
    }
    new (told->bytes().data()) StepTotals();
    if (!evaluates()) return;
    device.upload_now(std::as_bytes(std::span(&none, 1)), evaluation_totals->bytes());
    new (evaluated->bytes().data()) LossSum();
  }
  [[nodiscard]] StepTotals* step_totals() const { return reinterpret_cast<StepTotals*>(totals->bytes().data()); }
  [[nodiscard]] LossSum* marks_of(const Buffer& of) const {
    if (options.sources.marks() == 0 || options.loss) return nullptr;
    return reinterpret_cast<LossSum*>(of.bytes().data() + sizeof(StepTotals));
  }
  [[nodiscard]] TapeProgram::Inputs compute_inputs() const {
    TapeProgram::Inputs inputs{estimate.tapes,    estimate.layout, device.kernels(), arena->bytes(),
                               rotary_view(),     scales(),        step_totals(),    1.0 / options.nominal_tokens,
                               marks_of(*totals), options.loss};
    for (std::size_t i = 0; in_place() && i < estimate.layout.parameters.size(); ++i) inputs.own_gradients.push_back(memory.gradient_with_padding(i));
    return inputs;
  }
  /// A tied parameter's gradient comes in two parts, which meet in the reduce.
  [[nodiscard]] bool in_place() const { return options.gradients_stay() && estimate.layout.gradient == DType::f32 && !any_tied(estimate.layout); }
  [[nodiscard]] std::vector<const float*> scales() const {
    std::vector<const float*> all(estimate.layout.parameters.size(), nullptr);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (estimate.layout.parameters[i].fp8) all[i] = memory.scale(i);
    }
    return all;
  }
  [[nodiscard]] StateProgram::Inputs shard_inputs(const HaltWord* halt) const {
    std::vector<AdamWSettings> settings;
    settings.reserve(estimate.layout.parameters.size());
    for (const LaidParameter& p : estimate.layout.parameters)
      settings.push_back(options.groups.settings_of(options.optimizer, p.description.name, p.description.vector));
    return {.layout = estimate.layout,
            .memory = memory,
            .kernels = device.kernels(),
            .totals = step_totals(),
            .told = reinterpret_cast<StepTotals*>(told->bytes().data()),
            .evaluation = evaluates() ? evaluation_sums() : nullptr,
            .sources = options.sources,
            .marks = marks_of(*totals),
            .told_marks = marks_of(*told),
            .evaluated = evaluates() ? reinterpret_cast<LossSum*>(evaluated->bytes().data()) : nullptr,
            .unit_sums = unit_verdicts ? reinterpret_cast<VerdictSums*>(unit_verdicts->bytes().data()) : nullptr,
            .unit_verdicts = unit_verdicts ? reinterpret_cast<Verdict*>(unit_verdicts->bytes().data() + sizeof(VerdictSums)) : nullptr,
            .device = device.info().id,
            .halt = halt,
            .optimizer = std::move(settings),
            .ema_decay = options.ema_decay,
            .max_norm = options.max_norm,
            .nominal_tokens = options.nominal_tokens,
            .counts_in_norm = options.replica == 0,
            .micro_batches = options.micro_batches,
            .replicated = options.replicas > 1,
            .in_place = in_place()};
  }
  [[nodiscard]] bool evaluates() const noexcept { return options.evaluation.rows > 0; }
  [[nodiscard]] StepTotals* evaluation_sums() const { return reinterpret_cast<StepTotals*>(evaluation_totals->bytes().data()); }
  /// What the constructor takes from the device beside the shards.
  [[nodiscard]] std::size_t in_device() const {
    std::size_t sum = 0;
    for (const auto* buffer : {&arena, &rotary, &totals, &unit_verdicts, &evaluation_rotary, &evaluation_totals})
      sum += *buffer ? (*buffer)->bytes().size() : 0;
    return sum;
  }
  [[nodiscard]] std::size_t allocated() const { return memory.bytes() + in_device() + told->bytes().size() + (evaluated ? evaluated->bytes().size() : 0); }
};

TrainingModel::TrainingModel(ModelDescription model, TrainingOptions options, Device& device, const HaltWord* halt)
    : parts_(std::make_unique<Parts>(std::move(model), std::move(options), device, halt)) {}
TrainingModel::~TrainingModel() = default;

ComputeProgram& TrainingModel::compute() noexcept {
  if (parts_->both) return *parts_->both;
  return parts_->compute;
}
ShardProgram& TrainingModel::shards() noexcept { return parts_->shards; }
StateTensors TrainingModel::state() { return parts_->memory.state(); }
StateTensors TrainingModel::averages() { return parts_->memory.averages(); }
StateTensors TrainingModel::gradients() { return parts_->memory.gradients(); }
std::uint32_t TrainingModel::units() const noexcept { return static_cast<std::uint32_t>(parts_->model.units.size()); }
const ModelDescription& TrainingModel::description() const noexcept { return parts_->model; }
const TrainingOptions& TrainingModel::options() const noexcept { return parts_->options; }
const TrainingEstimate& TrainingModel::estimate() const noexcept { return parts_->estimate; }
std::size_t TrainingModel::allocated_bytes() const noexcept { return parts_->allocated(); }
std::size_t TrainingModel::device_bytes() const noexcept { return parts_->memory.device_bytes() + parts_->in_device(); }

void TrainingModel::initialise(std::uint64_t seed) {
  Device& device = parts_->device;
  Stream& stream = device.setup_stream();
  for (std::size_t i = 0; i < parts_->estimate.layout.parameters.size(); ++i) {
    const LaidParameter& p = parts_->estimate.layout.parameters[i];
    const InitialValues initial(p.description.initialisation, seed, p.description.name);
    fill_master(device, parts_->memory.master(i), initial, static_cast<std::uint64_t>(p.first_row(parts_->options.rank) * p.description.cols));
    device.kernels().fill(stream, parts_->memory.first_moment(i), 0.0);
    device.kernels().fill(stream, parts_->memory.second_moment(i), 0.0);
    device.kernels().fill(stream, TensorView::contiguous(parts_->memory.count(i), DType::i64, {1}, parts_->memory.master(i).device), 0.0);
  }
  device.wait(stream);
  parts_->shards.masters_changed();
  begin_averages();
}

void TrainingModel::begin_averages() {
  if (parts_->options.ema_decay <= 0) return;
  Device& device = parts_->device;
  Stream& stream = device.setup_stream();
  for (std::size_t i = 0; i < parts_->estimate.layout.parameters.size(); ++i)
    device.kernels().cast(stream, parts_->memory.master(i), parts_->memory.average(i));
  device.wait(stream);
}

std::vector<const float*> TrainingModel::float8_scales() const { return parts_->scales(); }

void TrainingModel::after_restore() {
  parts_->reset_totals();
  parts_->shards.masters_changed();
}

void TrainingModel::place_weights(Stream& stream, Unit unit, std::span<std::byte> weights) {
  if (parts_->options.world != 1)
    throw std::logic_error("place_weights needs the whole state in one rank; this world has " + std::to_string(parts_->options.world));
  parts_->shards.find_amaxes(stream, unit);
  parts_->shards.scales_from_amaxes(stream, unit);
  parts_->shards.place_own_rows(stream, unit, weights);
}

}  // namespace troupe
