#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "src/metrics/console_line.hpp"
#include "src/runtime/describe.hpp"
#include "tools/foresight/estimate.hpp"

namespace troupe {
namespace {

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

std::vector<std::pair<std::string, std::size_t>> device_rows(const RankMemory& m) {
  std::vector<std::pair<std::string, std::size_t>> rows;
  if (!m.host_state) rows.insert(rows.end(), {{"weights, fp32 masters", m.weights}, {"optimizer moments", m.optimizer}, {"averages of weights", m.averages}});
  rows.insert(rows.end(), {{"gradient shards", m.gradients},
                           {"sums of micro-batches", m.sums},
                           {"saved activations", m.activations},
                           {"working memory of the arena", m.workspace},
                           {"slots of batches", m.batches},
                           {"slots of weights", m.weight_slots},
                           {"slots of gradients", m.gradient_slots},
                           {"tables, counts, scales", m.others}});
  return rows;
}

std::vector<std::pair<std::string, std::size_t>> host_rows(const RankMemory& m) {
  std::vector<std::pair<std::string, std::size_t>> rows;
  if (m.host_state) rows.insert(rows.end(), {{"weights, fp32 masters", m.weights}, {"optimizer moments", m.optimizer}, {"averages of weights", m.averages}});
  rows.insert(rows.end(), {{"slots of snapshots", m.snapshot_slots},
                           {"snapshots kept by the launcher", m.kept},
                           {"copies for the next host", m.copied},
                           {"numbers of the step", m.host_others}});
  return rows;
}

std::string memory_text(const Estimate& e) {
  const RankMemory& m = e.memory;
  std::string text = "memory of a rank, MiB\n";
  const auto line = [&text](const std::string& name, std::size_t bytes) {
    if (bytes > 0) text += fmt::format("  {:<32} {:>14.3f}\n", name, mebibytes(bytes));
  };
  for (const auto& [name, bytes] : device_rows(m)) line(name, bytes);
  line("planned on the device", m.planned());
  line("kernels' scratch, about", m.scratch);
  line("driver and libraries, about", m.library);
  if (m.scratch + m.library > 0) line("in use on the device", m.device());
  if (m.host() > 0) text += "  in host memory\n";
  for (const auto& [name, bytes] : host_rows(m)) line(name, bytes);
  const double limit = e.cluster.device.memory_gib;
  if (limit > 0)
    text += fmt::format("  {:.2f} of {:.2f} GiB of {}: {}\n", mebibytes(m.device()) / 1024, limit, e.cluster.device.name, e.fits() ? "fits" : "does not fit");
  return text;
}

std::string collectives_text(const Estimate& e) {
  std::string text =
      fmt::format("collectives of a step, one rank\n  {:<11} {:<13} {:>6} {:>16} {:>18}\n", "operation", "over", "calls", "largest, MiB", "received, MiB");
  std::uint64_t all = 0;
  for (const CollectiveTotal& total : e.collectives) {
    text += fmt::format("  {:<11} {:<13} {:>6} {:>16.3f} {:>18.3f}\n", name_of(total.kind), name_of(total.communicator), total.calls, mebibytes(total.largest),
                        mebibytes(total.received));
    all += total.received;
  }
  return text + fmt::format("  received in all: {} bytes a rank, {} on {} ranks\n", with_thousands(static_cast<double>(all), 0),
                            with_thousands(static_cast<double>(all) * e.ranks, 0), e.ranks);
}

std::string roofline_text(const Estimate& e) {
  const RooflineStep& r = e.roofline;
  const DeviceModel& d = e.cluster.device;
  if (e.unbuilt.any()) return "time: not estimated, because of the parallelism that is not built\n";
  std::string text = fmt::format(
      "roofline on {}: products at {:.0f} % of {:.4g} TFLOP/s, fp8 at {:.0f} % of {:.4g}, attention at {:.0f} and {:.0f} %, memory at {:.0f} % of {:.0f} GB/s; "
      "network {:.4g} GB/s in a host of {}, {} cards of {:.4g} GB/s between hosts\n",
      d.name, 100 * d.product_efficiency, d.bf16_tflops, 100 * d.fp8_efficiency, d.fp8_tflops, 100 * d.attention_efficiency,
      100 * d.attention_backward_efficiency, 100 * d.memory_efficiency, d.memory_gbps, e.cluster.network.intra_host_gbps, e.cluster.network.ranks_per_host,
      e.cluster.network.nics_per_host, e.cluster.network.nic_gbps);
  for (std::size_t i = 0; i < work_kinds; ++i)
    if (r.compute.seconds[i] > 0) text += fmt::format("  {:<32} {:>12.3f} ms\n", name_of(static_cast<WorkKind>(i)), 1e3 * r.compute.seconds[i]);
  text += fmt::format("  {:<32} {:>12.3f} ms\n", "launches", 1e3 * r.compute.overhead);
  text += fmt::format("  {:<32} {:>12.3f} ms, {:.4g} TFLOP executed\n", "compute in all", 1e3 * r.compute.total(), r.compute.flops / 1e12);
  text += fmt::format("  {:<32} {:>12.3f} ms, beside compute\n", "collectives", 1e3 * r.communication);
  text += fmt::format("  {:<32} {:>12.3f} ms, after it: verdict, optimizer\n", "end of the step", 1e3 * r.end);
  text += fmt::format("  {:<32} {:>12.3f} ms, {} tokens/s a rank", "a step, at least", 1e3 * r.step, with_thousands(r.tokens_per_second, 0));
  if (!std::isnan(r.mfu)) text += fmt::format(", MFU {:.1f} % ({:.1f} % causal)", 100 * r.mfu, 100 * r.mfu_causal);
  return text + "\n";
}

}  // namespace

std::string estimate_text(const Estimate& e) {
  const TrainingOptions& o = e.job.options;
  std::string text;
  for (const std::string& line : e.not_built) text += "not built yet: " + line + "\n";
  for (const std::string& note : e.notes) text += "as if: " + note + "\n";
  text += fmt::format("model {}: {} parameters, {:.3f} GFLOP a token ({:.3f} with the half of attention that causality leaves)\n", e.job.model.name,
                      with_thousands(static_cast<double>(e.parameters), 0), e.flops_per_token / 1e9, e.flops_per_token_causal / 1e9);
  text += fmt::format("mesh: dp_replicate {} × dp_shard {}", o.replicas, o.world);
  if (e.unbuilt.any()) text += fmt::format(" (with cp {} in it) × tp {} × pp {}", e.unbuilt.context, e.unbuilt.tensor, e.unbuilt.pipeline);
  text += fmt::format(" = {} ranks; {} micro-batch{} of {} × {} tokens a rank and step\n\n", e.ranks, o.micro_batches, o.micro_batches == 1 ? "" : "es",
                      o.batch.rows, o.batch.seq_len * e.unbuilt.tensor);  // which divides a sequence among ranks that all work on it
  return text + memory_text(e) + "\n" + collectives_text(e) + "\n" + roofline_text(e);
}

std::string estimate_json(const Estimate& e) {
  nlohmann::ordered_json memory, collectives = nlohmann::ordered_json::array();
  const RankMemory& m = e.memory;
  for (const auto& [name, bytes] : device_rows(m)) memory["device"][name] = bytes;
  for (const auto& [name, bytes] : host_rows(m)) memory["host"][name] = bytes;
  memory["planned_bytes"] = m.planned();
  memory["scratch_bytes"] = m.scratch;
  memory["library_bytes"] = m.library;
  memory["device_bytes"] = m.device();
  memory["host_bytes"] = m.host();
  memory["fits"] = e.fits();
  std::uint64_t gathered = 0, reduced = 0;
  for (const CollectiveTotal& total : e.collectives) {
    collectives.push_back({{"operation", name_of(total.kind)},
                           {"over", name_of(total.communicator)},
                           {"calls", total.calls},
                           {"largest_bytes", total.largest},
                           {"received_bytes", total.received}});
    (total.kind == OperationKind::gather ? gathered : reduced) += total.received;
  }
  nlohmann::ordered_json out{{"model", e.job.model.name},
                             {"parameters", e.parameters},
                             {"flops_per_token", e.flops_per_token},
                             {"flops_per_token_causal", e.flops_per_token_causal},
                             {"ranks", e.ranks},
                             {"device", e.cluster.device.name},
                             {"memory", memory},
                             {"collectives", collectives},
                             {"bytes_gathered", gathered * e.ranks},
                             {"bytes_reduced", reduced * e.ranks},
                             {"not_built", e.not_built},
                             {"as_if", e.notes}};
  if (!e.unbuilt.any()) {
    out["roofline"] = {{"compute_seconds", e.roofline.compute.total()},
                       {"collective_seconds", e.roofline.communication},
                       {"end_seconds", e.roofline.end},
                       {"step_seconds", e.roofline.step},
                       {"tokens_per_second", e.roofline.tokens_per_second},
                       {"mfu", std::isnan(e.roofline.mfu) ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(e.roofline.mfu)}};
  }
  return out.dump(2) + "\n";
}

}  // namespace troupe
