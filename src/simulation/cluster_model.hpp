#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/result.hpp"
#include "src/base/schema.hpp"

/// What machines can do, as few numbers: for estimates and simulations of runs that do not take place. Values; pure functions.
namespace troupe {

/// One device. Rates are the data sheet's, and an efficiency says which part of one the kernels reach.
/// Efficiencies of GPUs: those at which eight layers of the 8B layout take what one H200 was measured to take (docs/simulate.md), the kernels' own
/// being a little higher (docs/kernels.md); other devices are taken to reach the same parts of theirs.
struct DeviceModel {
  std::string name;
  double bf16_tflops = 0, fp8_tflops = 0, fp32_tflops = 0;  ///< dense; fp8 0: emulated in the compute type
  double memory_gbps = 0;                                   ///< 1e9 bytes a second
  double memory_gib = 0;                                    ///< 0: not held against anything
  double product_efficiency = 0.69, fp8_efficiency = 0.6, attention_efficiency = 0.55, attention_backward_efficiency = 0.45, memory_efficiency = 0.77;
  double kernel_us = 0;      ///< of each kernel, beside its work
  double letter_us = 0;      ///< from the end of an operation to the start of one that a letter of it allows, where the lane is idle
  double host_gbps = 0;      ///< between device and host memory
  double library_gib = 0;    ///< what driver and libraries keep for themselves
  std::int64_t cores = 0;    ///< of the host, which all lanes of its ranks share; 0: lanes have hardware of their own
  double core_sharing = 1;   ///< what each of them does when all are busy, as a part of what one does alone: caches and memory are shared
  bool one_order = false;    ///< operations start in the plan's order over all lanes, as one thread issues them
  bool fuses_casts = false;  ///< the maximum of a value is found by the kernel that makes it, and fp8 codes are made in two layouts
  [[nodiscard]] bool gpu() const noexcept { return cores == 0; }
  /// What all cores do together, in cores that have the machine for themselves; 0 with hardware of each lane's own.
  [[nodiscard]] double capacity() const noexcept { return static_cast<double>(cores) * core_sharing; }
};
void describe(Schema& schema, DeviceModel& model);

/// What joins the ranks. Hosts are alike and full; neighbouring ranks share one.
struct NetworkModel {
  std::int64_t ranks_per_host = 8;
  double intra_host_gbps = 320, intra_host_us = 4;  ///< what a ring inside a host moves past each rank; each hop's latency
  std::int64_t nics_per_host = 8;
  double nic_gbps = 48, inter_host_us = 12;  ///< what one network card moves each way; each hop's latency
  double contention = 0;                     ///< how much longer what Compute does takes while a collective runs beside it, as a part of itself
};
void describe(Schema& schema, NetworkModel& model);

/// What becomes of a rank that dies.
struct RecoveryModel {
  double notice_seconds = 0.05;  ///< until the launcher knows
  double start_seconds = 8;      ///< from a process's start to its Join
  double build_seconds = 5;      ///< device, communicators, plans: all ranks, beside reading the state
  double disk_gbps = 2;          ///< of one host, read and written
};
void describe(Schema& schema, RecoveryModel& model);

/// All of it: what `--gpu NAME` and `--network FILE` give together.
struct ClusterModel {
  DeviceModel device;
  NetworkModel network;
  RecoveryModel recovery;
};

/// "h200", "h100", "a100", "b200", "cpu".
[[nodiscard]] std::vector<std::string> known_devices();
/// The named device in hosts that such devices usually stand in. The error lists the names.
[[nodiscard]] Result<ClusterModel> cluster_of(std::string_view device);

/// How the ranks of one communicator lie: `size` members, every `stride`-th rank of a world of hosts.
struct GroupGeometry {
  std::uint32_t size = 1, stride = 1;
};
enum class CollectiveKind : std::uint8_t { all_gather, reduce_scatter, all_reduce };
/// Of one collective alone in the network but for the like of it: all groups of this geometry call it at the same time, and those that
/// leave a host share its cards. `bytes`: all members' parts together; of an all-reduce, what one member holds.
/// A ring: every member's share passes every member, (size − 1) / size of the bytes, twice for an all-reduce.
[[nodiscard]] Nanos time_of(const NetworkModel& network, CollectiveKind kind, const GroupGeometry& group, double bytes);

}  // namespace troupe
