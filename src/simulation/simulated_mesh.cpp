#include "src/simulation/simulated_mesh.hpp"

namespace troupe {

SimulatedMesh::SimulatedMesh(VirtualWorld& world, std::uint32_t shards, std::uint32_t replicas) : shards_(shards) {
  const auto numbered = [](const char* name, std::uint32_t i, std::uint32_t of) { return of == 1 ? name : name + ("-" + std::to_string(i)); };
  for (std::uint32_t i = 0; i < replicas; ++i) dp_shard_.push_back(std::make_unique<SimulatedGroup>(world, numbered("dp_shard", i, replicas), shards));
  for (std::uint32_t i = 0; replicas > 1 && i < shards; ++i)
    dp_replicate_.push_back(std::make_unique<SimulatedGroup>(world, numbered("dp_replicate", i, shards), replicas));
  whole_ = std::make_unique<SimulatedGroup>(world, "world", shards * replicas);
}

SimulatedGroup& SimulatedMesh::group(CommunicatorKind kind, std::uint32_t rank) {
  if (kind == CommunicatorKind::dp_shard) return *dp_shard_[rank / shards_];
  return kind == CommunicatorKind::dp_replicate ? *dp_replicate_[rank % shards_] : *whole_;
}

std::unique_ptr<Communicator> SimulatedMesh::member(CommunicatorKind kind, std::uint32_t rank) {
  if (kind == CommunicatorKind::dp_shard) return group(kind, rank).member(rank % shards_);
  return group(kind, rank).member(kind == CommunicatorKind::dp_replicate ? rank / shards_ : rank);
}

void SimulatedMesh::lose(std::uint32_t rank) {
  group(CommunicatorKind::dp_shard, rank).lose(rank % shards_);
  if (!dp_replicate_.empty()) group(CommunicatorKind::dp_replicate, rank).lose(rank / shards_);
  whole_->lose(rank);
}

void SimulatedMesh::abort(const std::string& cause) noexcept {
  for (const auto& group : dp_shard_) group->abort(cause);
  for (const auto& group : dp_replicate_) group->abort(cause);
  whole_->abort(cause);
}

std::string SimulatedMesh::waiting() const {
  std::string text;
  const auto add = [&text](const SimulatedGroup& group) {
    if (const std::string line = group.waiting(); !line.empty()) text += (text.empty() ? "" : "\n  ") + line;
  };
  for (const auto& group : dp_shard_) add(*group);
  for (const auto& group : dp_replicate_) add(*group);
  add(*whole_);
  return text;
}

}  // namespace troupe
