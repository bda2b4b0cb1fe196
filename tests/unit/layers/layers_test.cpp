#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

// The layers of docs/architecture.md, kept true: a folder includes only what stands below it.
namespace troupe {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Names = std::vector<std::string>;

/// From the bottom up. Folders of one row stand side by side and may include each other only where `beside` says so.
const std::vector<Names> rows{
    {"src/base"},
    {"src/trace", "src/faults", "src/device", "messages"},
    {"src/runtime"},
    {"src/collectives", "src/transport"},
    {"src/optimizer", "src/model", "src/tokenizer", "src/data", "src/checkpoint", "src/metrics"},
    {"src/config"},
    {"src/plan", "src/simulation"},
    {"actors"},
    {"tools"},
};
/// {who, whom} on one row.
const std::vector<std::pair<std::string, std::string>> beside{
    {"src/trace", "src/device"},           // a tracer observes lanes
    {"messages", "src/device"},            // letters carry leases and outcomes
    {"src/data", "src/tokenizer"},         // texts become tokens
    {"src/data", "src/model"},             // programs.hpp is what actors ask of a training job's parts
    {"src/checkpoint", "src/model"},       // likewise
    {"src/collectives", "src/transport"},  // collectives between hosts travel as payloads
    {"src/model", "src/optimizer"},        // a training model asks the schedule for its learning rate
    {"src/simulation", "src/plan"},        // simulated ranks run compiled plans
};
/// Libraries by the start of their headers' names, and the folders, or single files, that may include them.
const std::map<std::string, Names> libraries{
    // The simulator runs the real actors, and only CAF's own test scheduler can run them one handler at a time: these files alone know it.
    {"caf/",
     {"src/runtime", "src/simulation/virtual_actors.hpp", "src/simulation/virtual_actors.cpp", "src/simulation/end_actor.cpp", "actors", "tests",
      "benchmarks"}},
    {"ucp/|ucs/|uct/", {"src/transport", "tests/transport", "benchmarks"}},
    {"torch/|ATen/|c10/", {"src/device/cpu", "src/device/cuda", "tests", "benchmarks"}},
    {"cuda|nccl|cudnn|cublas", {"src/device/cuda", "src/collectives/nccl", "tests", "benchmarks"}},
    {"capnp/|kj/", {"messages", "src/runtime", "src/simulation", "src/transport", "src/collectives", "actors", "tools", "tests", "benchmarks"}},
};

struct Include {
  std::string file;  ///< relative to the sources' root
  int line = 0;
  std::string target;  ///< what stands between the quotes or brackets
  bool quoted = false;
};

std::vector<Include> includes_in(const std::string& text, const std::string& file) {
  static const std::regex pattern(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
  std::vector<Include> found;
  std::istringstream in(text);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    std::smatch match;
    if (std::regex_search(line, match, pattern)) found.push_back({file, number, match[2], match[1] == "\""});
  }
  return found;
}

bool is_inside(const std::string& file, const std::string& place) { return file == place || file.starts_with(place + "/"); }

/// The layer that a path belongs to; empty if none.
std::string layer_of(const std::string& path, std::size_t& row) {
  for (row = 0; row < rows.size(); ++row) {
    for (const auto& folder : rows[row]) {
      if (is_inside(path, folder)) return folder;
    }
  }
  return {};
}

/// What is wrong with the include, or nothing.
std::string complaint(const Include& include) {
  const std::string place = include.file + ":" + std::to_string(include.line) + " includes " + include.target + ": ";
  for (const auto& [pattern, folders] : libraries) {
    if (!std::regex_search(include.target, std::regex("^(" + pattern + ")"))) continue;
    if (std::none_of(folders.begin(), folders.end(), [&](const auto& folder) { return is_inside(include.file, folder); }))
      return place + "that library is not used here";
  }
  if (!include.quoted) return {};
  std::size_t from_row = 0, to_row = 0;
  const std::string from = layer_of(include.file, from_row), to = layer_of(include.target, to_row);
  if (from.empty()) return {};  // tests and benchmarks may include everything
  if (to.empty())
    return include.target.starts_with("tests/") || include.target.starts_with("benchmarks/") ? place + "product code knows no test" : std::string();
  if (from == to || to_row < from_row) return {};
  if (to_row > from_row) return place + to + " stands above " + from;
  const bool allowed = std::find(beside.begin(), beside.end(), std::pair(from, to)) != beside.end();
  return allowed ? std::string() : place + to + " stands beside " + from;
}

/// Where the text names CAF though it is not at home there: also what an include brought in from below must not be used by name.
Names names_of_caf(const std::string& text, const std::string& file) {
  const auto& homes = libraries.at("caf/");
  if (std::any_of(homes.begin(), homes.end(), [&](const auto& home) { return is_inside(file, home); })) return {};
  static const std::regex pattern(R"re(\bcaf\s*::|\bnamespace\s+caf\b)re");
  Names found;
  std::istringstream in(text);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (std::regex_search(line, pattern)) found.push_back(file + ":" + std::to_string(number) + " names CAF: that library is not used here");
  }
  return found;
}

Names complaints_about_sources() {
  const std::filesystem::path root = TROUPE_SOURCE_DIR;
  Names complaints;
  for (const char* top : {"src", "messages", "actors", "tools", "tests", "benchmarks"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / top)) {
      const auto extension = entry.path().extension();
      if (!entry.is_regular_file() || (extension != ".cpp" && extension != ".hpp" && extension != ".cu" && extension != ".h")) continue;
      std::ifstream in(entry.path());
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      const std::string file = std::filesystem::relative(entry.path(), root).generic_string();
      std::ranges::copy(names_of_caf(text, file), std::back_inserter(complaints));
      for (const auto& include : includes_in(text, file)) {
        if (auto wrong = complaint(include); !wrong.empty()) complaints.push_back(std::move(wrong));
      }
    }
  }
  return complaints;
}

TEST(Layers, NoArrowPointsUp) { EXPECT_THAT(complaints_about_sources(), IsEmpty()); }

TEST(Layers, EveryFolderOfTheSourcesHasItsPlace) {
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(TROUPE_SOURCE_DIR) / "src")) {
    std::size_t row = 0;
    if (!entry.is_directory()) continue;
    EXPECT_NE(layer_of("src/" + entry.path().filename().string() + "/x.hpp", row), "") << entry.path();
  }
}

TEST(LayerRules, RefuseWhatPointsUp) {
  EXPECT_THAT(complaint({"src/base/ids.hpp", 3, "src/runtime/plan.hpp", true}), HasSubstr("src/runtime stands above src/base"));
  EXPECT_THAT(complaint({"src/transport/a.cpp", 3, "src/collectives/b.hpp", true}), HasSubstr("stands beside"));
  EXPECT_THAT(complaint({"src/runtime/a.cpp", 3, "tests/support/b.hpp", true}), HasSubstr("no test"));
  EXPECT_EQ(complaint({"actors/a.cpp", 3, "src/runtime/plan.hpp", true}), "");
}

TEST(LayerRules, RefuseLibrariesOutsideTheirHome) {
  EXPECT_THAT(complaint({"src/model/a.cpp", 1, "ATen/ATen.h", false}), HasSubstr("not used here"));
  EXPECT_THAT(complaint({"src/collectives/a.cpp", 1, "ucp/api/ucp.h", false}), HasSubstr("not used here"));
  EXPECT_THAT(complaint({"src/plan/a.cpp", 1, "caf/all.hpp", false}), HasSubstr("not used here"));
  EXPECT_THAT(complaint({"src/simulation/virtual_world.cpp", 1, "caf/all.hpp", false}), HasSubstr("not used here"));
  EXPECT_EQ(complaint({"src/simulation/virtual_actors.cpp", 1, "caf/actor_system.hpp", false}), "");
  EXPECT_THAT(complaint({"src/trace/a.cpp", 1, "capnp/message.h", false}), HasSubstr("not used here"));
  EXPECT_EQ(complaint({"src/device/cpu/a.cpp", 1, "ATen/ATen.h", false}), "");
}

TEST(LayerRules, SeeTheNameOfCafWithoutAnInclude) {
  EXPECT_THAT(names_of_caf("int x;\ncaf::actor a;\n", "tools/worker/a.hpp"), testing::ElementsAre(HasSubstr("tools/worker/a.hpp:2 names CAF")));
  EXPECT_THAT(names_of_caf("namespace caf { class actor; }", "src/plan/a.hpp"), testing::SizeIs(1));
  EXPECT_THAT(names_of_caf("caf::actor a;", "src/runtime/a.hpp"), IsEmpty());
  EXPECT_THAT(names_of_caf("system->caf().registry()", "tools/a.cpp"), IsEmpty());
}

TEST(LayerRules, SeeEveryFormOfInclude) {
  const auto found = includes_in("#include <vector>\n  #  include \"src/base/ids.hpp\"\nint include;\n", "x.cpp");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].target, "src/base/ids.hpp");
  EXPECT_EQ(found[1].line, 2);
  EXPECT_TRUE(found[1].quoted);
}

}  // namespace
}  // namespace troupe
