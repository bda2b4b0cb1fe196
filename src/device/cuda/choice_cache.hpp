#pragma once
#include <filesystem>
#include <string>

namespace troupe::cuda {

/// Where matrix products' algorithms that a sweep has chosen are kept from run to run: a text file for each library version and kind of device.
/// TROUPE_CACHE names the folder ("none": nothing is kept); else $XDG_CACHE_HOME/troupe or ~/.cache/troupe. A file that cannot be read or written is no
/// error: the next run sweeps again.
class ChoiceCache {
 public:
  /// `heading`: the first line of Products::choices().
  explicit ChoiceCache(const std::string& heading);
  /// What earlier runs have left, in the form that Products::adopt takes; empty: nothing.
  [[nodiscard]] std::string read() const;
  /// Adds the shapes of `choices` that the file does not have; other processes may do the same at the same time, and the last one's file stays whole.
  void add(const std::string& choices) const;
  [[nodiscard]] const std::filesystem::path& file() const noexcept { return file_; }

 private:
  std::filesystem::path file_;  ///< empty: off
};

/// Both texts' shapes, the first one's choice where both have one; the heading once. Pure.
[[nodiscard]] std::string merge_choices(const std::string& first, const std::string& second);

}  // namespace troupe::cuda
