#include "src/simulation/cluster_model.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

DeviceModel gpu(std::string name, double bf16, double fp8, double memory_gbps, double memory_gib) {
  DeviceModel model;
  model.name = std::move(name);
  model.bf16_tflops = bf16;
  model.fp8_tflops = fp8;
  model.fp32_tflops = bf16 / 16;
  model.memory_gbps = memory_gbps;
  model.memory_gib = memory_gib;
  model.kernel_us = 3;
  model.letter_us = 20;
  model.host_gbps = 50;
  model.library_gib = 1.9;
  model.one_order = model.fuses_casts = true;
  return model;
}

/// One thread of a recent server core with AVX-512, which is what a rank has unless it is told otherwise.
DeviceModel cpu() {
  DeviceModel model;
  model.name = "cpu";
  model.bf16_tflops = 0.08;
  model.fp32_tflops = 0.08;
  model.memory_gbps = 12;
  model.product_efficiency = 0.7;
  model.attention_efficiency = model.attention_backward_efficiency = 0.35;
  model.memory_efficiency = 0.6;
  model.kernel_us = 1;
  model.letter_us = 40;
  model.host_gbps = 6;
  model.cores = 2;
  return model;
}

ClusterModel in_hosts(DeviceModel device, double intra_gbps, double nic_gbps) {
  ClusterModel cluster{.device = std::move(device), .network = {}, .recovery = {}};
  cluster.network.intra_host_gbps = intra_gbps;
  cluster.network.nic_gbps = nic_gbps;
  return cluster;
}

std::vector<ClusterModel> table() {
  std::vector<ClusterModel> all;
  all.push_back(in_hosts(gpu("h200", 989, 1979, 4800, 140.4), 320, 48));
  all.push_back(in_hosts(gpu("h100", 989, 1979, 3350, 79.6), 320, 48));
  all.push_back(in_hosts(gpu("a100", 312, 0, 2039, 79.3), 230, 24));
  all.push_back(in_hosts(gpu("b200", 2250, 4500, 8000, 179), 640, 48));
  ClusterModel host = in_hosts(cpu(), 4, 1);
  host.network.ranks_per_host = 256;
  host.network.nics_per_host = 1;
  host.network.intra_host_us = 5;
  host.network.inter_host_us = 30;
  host.recovery = {.notice_seconds = 0.01, .start_seconds = 0.3, .build_seconds = 0.2, .disk_gbps = 1};
  all.push_back(host);
  return all;
}

}  // namespace

void describe(Schema& schema, DeviceModel& m) {
  const auto key = [&schema](const char* name, double* member, const char* doc) { schema.key(name, member, KeyClass::frozen, doc).at_least(0); };
  schema.section("device", "What one rank computes on.");
  schema.key("name", &m.name, KeyClass::frozen, "for the reader");
  key("bf16_tflops", &m.bf16_tflops, "dense matrix products in bf16, by the data sheet");
  key("fp8_tflops", &m.fp8_tflops, "the same in fp8; 0: the device has none");
  key("fp32_tflops", &m.fp32_tflops, "the same in fp32");
  key("memory_gbps", &m.memory_gbps, "bandwidth of the device's memory, 1e9 bytes a second");
  key("memory_gib", &m.memory_gib, "what a run may plan and its libraries take; 0: no limit");
  key("product_efficiency", &m.product_efficiency, "part of the rate that matrix products reach");
  key("fp8_efficiency", &m.fp8_efficiency, "the same in fp8");
  key("attention_efficiency", &m.attention_efficiency, "part of the bf16 rate that attention reaches, counting what is not masked");
  key("attention_backward_efficiency", &m.attention_backward_efficiency, "the same of its backward");
  key("memory_efficiency", &m.memory_efficiency, "part of the memory's bandwidth that other kernels reach");
  key("kernel_us", &m.kernel_us, "each kernel's time beside its work");
  key("letter_us", &m.letter_us, "from the end of an operation to the start of one that its letter allows, where the lane is idle");
  key("host_gbps", &m.host_gbps, "between the device's memory and the host's");
  key("library_gib", &m.library_gib, "memory that driver and libraries keep");
  schema.key("cores", &m.cores, KeyClass::frozen, "cores of a host, which the lanes of all its ranks share; 0: lanes have hardware of their own").at_least(0);
  schema
      .key("core_sharing", &m.core_sharing, KeyClass::frozen,
           "what each core does when all are busy, as a part of what one does alone, for caches and memory are shared")
      .above(0)
      .at_most(1);
  schema.key("one_order", &m.one_order, KeyClass::frozen, "operations of all lanes start in the plan's order, as one thread issues them");
  schema.key("fuses_casts", &m.fuses_casts, KeyClass::frozen, "fp8 codes in two layouts, scaled by what the kernel before found");
}

void describe(Schema& schema, NetworkModel& m) {
  schema.section("network", "What joins the ranks.");
  schema.key("ranks_per_host", &m.ranks_per_host, KeyClass::frozen, "neighbouring ranks that share a host").at_least(1);
  schema.key("intra_host_gbps", &m.intra_host_gbps, KeyClass::frozen, "what a collective inside a host moves past each rank, 1e9 bytes a second").above(0);
  schema.key("intra_host_us", &m.intra_host_us, KeyClass::frozen, "latency of a hop inside a host").at_least(0);
  schema.key("nics_per_host", &m.nics_per_host, KeyClass::frozen, "network cards of a host").at_least(1);
  schema.key("nic_gbps", &m.nic_gbps, KeyClass::frozen, "what a card moves each way, 1e9 bytes a second").above(0);
  schema.key("inter_host_us", &m.inter_host_us, KeyClass::frozen, "latency of a hop between hosts").at_least(0);
  schema
      .key("contention", &m.contention, KeyClass::frozen,
           "how much longer compute's operations take while a collective runs beside them, as a part of themselves")
      .at_least(0);
}

void describe(Schema& schema, RecoveryModel& m) {
  schema.section("recovery", "What becomes of a rank that dies.");
  schema.key("notice_seconds", &m.notice_seconds, KeyClass::frozen, "until the launcher knows").at_least(0);
  schema.key("start_seconds", &m.start_seconds, KeyClass::frozen, "from a process's start to its Join").at_least(0);
  schema.key("build_seconds", &m.build_seconds, KeyClass::frozen, "device, communicators and plans, beside reading the state").at_least(0);
  schema.key("disk_gbps", &m.disk_gbps, KeyClass::frozen, "of one host, read and written, 1e9 bytes a second").above(0);
}

std::vector<std::string> known_devices() {
  std::vector<std::string> names;
  for (const ClusterModel& cluster : table()) names.push_back(cluster.device.name);
  return names;
}

Result<ClusterModel> cluster_of(std::string_view device) {
  std::string names;
  for (const ClusterModel& cluster : table()) {
    if (cluster.device.name == device) return cluster;
    names += (names.empty() ? "" : ", ") + cluster.device.name;
  }
  return Error{"no device is known as \"" + std::string(device) + "\"; known are " + names + ", and [device] of a --network file describes any other"};
}

Nanos time_of(const NetworkModel& network, CollectiveKind kind, const GroupGeometry& group, double bytes) {
  if (group.size <= 1) return Nanos{0};
  const double size = group.size, per_host = static_cast<double>(network.ranks_per_host);
  const double members_of_a_host = std::clamp(std::floor(per_host / group.stride), 1.0, size);
  const double hosts = std::ceil(size / members_of_a_host);
  const double passes = (kind == CollectiveKind::all_reduce ? 2 : 1) * bytes * (size - 1) / size;
  double seconds = members_of_a_host > 1 ? passes / (network.intra_host_gbps * 1e9) : 0;
  const double turns = kind == CollectiveKind::all_reduce ? 2 : 1;
  double latency_us = (size - hosts) * network.intra_host_us;
  if (hosts > 1) {
    const double groups_of_a_host = std::max(1.0, per_host / members_of_a_host);  // they call at the same time
    const double cards = static_cast<double>(network.nics_per_host) * network.nic_gbps * 1e9;
    seconds = std::max(seconds, passes * groups_of_a_host / cards);
    latency_us += (hosts - 1) * network.inter_host_us;
  }
  return Nanos{std::llround(seconds * 1e9 + turns * latency_us * 1e3)};
}

}  // namespace troupe
