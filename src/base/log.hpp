#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace troupe {

enum class LogLevel { debug, info, warning, error };

/// The program's log: one line an entry, "[troupe] 2026-01-31 12:00:00.123 - rank 0 - info - text". Any thread; may block on its file.
/// Callers format with fmt themselves; spdlog stays inside log.cpp.
class Log {
 public:
  virtual ~Log() = default;
  virtual void write(LogLevel level, std::string_view text) = 0;
  void debug(std::string_view text) { write(LogLevel::debug, text); }
  void info(std::string_view text) { write(LogLevel::info, text); }
  void warning(std::string_view text) { write(LogLevel::warning, text); }
  void error(std::string_view text) { write(LogLevel::error, text); }
};

/// Where the console's lines go and how they look. `who` is "rank 3" or "launcher".
struct LogOptions {
  std::string who;
  std::string file;     ///< also append here; empty = console only
  bool console = true;  ///< stderr for warnings and errors, stdout for the rest
  bool colour = false;  ///< only when stdout is a terminal
  LogLevel level = LogLevel::info;
};
[[nodiscard]] std::unique_ptr<Log> make_log(const LogOptions& options);
/// Drops everything; for tests.
[[nodiscard]] std::unique_ptr<Log> make_null_log();

}  // namespace troupe
