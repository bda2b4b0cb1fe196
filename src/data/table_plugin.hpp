#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What libtroupe_parquet.so offers: a plug-in, so that no program is linked with Arrow's libraries. Built by the same compiler as its user.
struct TablePlugin {
  static constexpr const char* symbol = "troupe_table_plugin";
  static constexpr std::uint32_t current_interface = 1;
  /// Gets a line of JSON, without line feed, and the share of the file's rows that is done; says what went wrong, or nothing.
  using RowSink = std::function<std::string(std::string_view line, double done)>;

  std::uint32_t interface = current_interface;
  const char* arrow = "";  ///< the version that it was built with
  /// Gives the rows of a Parquet or Arrow file in their order, each as {"__row":7,"text":"…"}. Says what is wrong, without the file's name, or what the
  /// sink said; nothing: all is well. Holds a row group or record batch at a time. Any thread; throws nothing.
  std::string (*read)(const std::string& path, const std::vector<std::string>& columns, const RowSink& sink) = nullptr;
};
using GetTablePlugin = const TablePlugin* (*)();

}  // namespace troupe
