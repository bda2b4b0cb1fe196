#include "src/data/table_files.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "src/data/table_plugin.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view row_prefix = "{\"__row\":";
constexpr std::size_t piece_bytes = std::size_t{1} << 20U;

Result<fs::path> find_plugin(const fs::path& program) {
  if (const char* named = std::getenv("TROUPE_PARQUET_PLUGIN"); named != nullptr && *named != '\0') return fs::path(named);
  const fs::path folder = program.parent_path();
  for (const fs::path& place : {folder / "libtroupe_parquet.so", folder.parent_path() / "lib" / "libtroupe_parquet.so"}) {
    std::error_code ignored;
    if (fs::exists(place, ignored)) return place;
  }
  return Error{"this build of Troupe reads no Parquet or Arrow files (there is no libtroupe_parquet.so beside " + program.string() + " or in " +
               (folder.parent_path() / "lib").string() +
               "): run tools/setup.sh --parquet, configure and build again, or write the data as JSONL (docs/data.md)"};
}

Result<const TablePlugin*> running_plugin() {
  static const Result<const TablePlugin*> loaded = [] {
    std::error_code problem;
    return load_table_plugin(fs::read_symlink("/proc/self/exe", problem));
  }();
  return loaded;
}

/// Rows of one file as lines, which go to `sink` in large pieces.
std::string write_rows(const TablePlugin& plugin, const DataFile& file, const std::vector<std::string>& columns, PlainCopies& copies, const CopySink& sink) {
  std::string piece;
  std::uint64_t told = 0;
  const auto row = [&](std::string_view line, double done) -> std::string {
    piece += line;
    piece += '\n';
    if (piece.size() < piece_bytes) return {};
    const auto so_far = static_cast<std::uint64_t>(done * static_cast<double>(file.bytes));
    if (so_far > told) copies.read(so_far - told);
    told = std::max(told, so_far);
    std::string wrong = sink(piece);
    piece.clear();
    return wrong;
  };
  if (std::string wrong = plugin.read(file.path, columns, row); !wrong.empty()) return wrong;
  copies.read(file.bytes - std::min(file.bytes, told));
  return sink(piece);
}

}  // namespace

Result<const TablePlugin*> load_table_plugin(const fs::path& program) {
  const auto file = find_plugin(program);
  if (!file) return file.error();
  void* const library = ::dlopen(file->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return Error{file->string() + " cannot be loaded (" + (why == nullptr ? "unknown reason" : why) +
                 "): it needs Arrow's libraries where they were when it was built; run tools/setup.sh --parquet, configure and build again"};
  }
  const auto get = reinterpret_cast<GetTablePlugin>(::dlsym(library, TablePlugin::symbol));
  if (get == nullptr) return Error{file->string() + " is no plug-in of Troupe: it has no " + TablePlugin::symbol};
  const TablePlugin* const plugin = get();
  if (plugin->interface == TablePlugin::current_interface) return plugin;
  return Error{file->string() + " is of another version of Troupe (interface " + std::to_string(plugin->interface) + ", this program has " +
               std::to_string(TablePlugin::current_interface) + "): install both from one build"};
}

Result<void> write_out_tables(std::vector<DataFile>& files, const std::vector<std::string>& columns, const UnpackOptions& options) {
  const auto plugin = running_plugin();
  if (!plugin) return Error{files.front().path + ": " + plugin.error().message};
  if (options.folder.empty()) return Error{files.front().path + ": a table is read through a plain copy, and there is no folder for it"};
  std::uint64_t total = 0;
  std::string how = "\nrows of";
  for (const DataFile& file : files) total += file.bytes;
  for (const std::string& column : columns) how += "\n" + column;
  PlainCopies copies(options, total);
  for (DataFile& file : files) {
    const auto fill = [&](const CopySink& sink) { return write_rows(**plugin, file, columns, copies, sink); };
    if (auto given = copies.give(file, how, fill); !given) return given;
    file.table = true;
  }
  return {};
}

std::optional<std::uint64_t> row_of_copy(const DataFile& file, std::uint64_t offset) {
  const int descriptor = ::open(file.content.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  std::array<char, 32> bytes{};
  const ssize_t got = ::pread(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  ::close(descriptor);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  std::uint64_t row = 0;
  if (!text.starts_with(row_prefix)) return std::nullopt;
  const auto read = std::from_chars(text.data() + row_prefix.size(), text.data() + text.size(), row);
  return read.ec == std::errc() ? std::optional(row) : std::nullopt;
}

}  // namespace troupe
