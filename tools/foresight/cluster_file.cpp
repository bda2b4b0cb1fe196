#include "tools/foresight/cluster_file.hpp"

#include <fstream>
#include <sstream>

#include "src/config/toml_reader.hpp"

namespace troupe {
namespace {

void describe_to(Schema& schema, ClusterModel& cluster) {
  describe(schema, cluster.device);
  describe(schema, cluster.network);
  describe(schema, cluster.recovery);
}

}  // namespace

Result<ClusterModel> load_cluster(const std::string& device, const std::filesystem::path& file) {
  auto cluster = cluster_of(device);
  if (!cluster || file.empty()) return cluster;
  std::ifstream in(file, std::ios::binary);
  if (!in) return Error{"cannot read " + file.string() + ", which is to describe the cluster"};
  std::ostringstream text;
  text << in.rdbuf();
  Schema schema;
  describe_to(schema, *cluster);
  apply_toml(schema, text.str(), file.string());
  if (schema.problems().empty()) return cluster;
  std::string problems;
  for (const std::string& problem : schema.problems()) problems += (problems.empty() ? "" : "\n") + problem;
  return Error{problems};
}

std::string cluster_toml(ClusterModel cluster) {
  Schema schema;
  describe_to(schema, cluster);
  std::string text;
  for (const auto& [section, doc] : schema.sections()) {
    text += (text.empty() ? "[" : "\n[") + section + "]  # " + doc + "\n";
    for (const Key& key : schema.keys()) {
      if (key.name.substr(0, key.name.rfind('.')) == section) text += key.name.substr(section.size() + 1) + " = " + key.toml() + "  # " + key.doc + "\n";
    }
  }
  return text;
}

}  // namespace troupe
