#pragma once
#include <sys/types.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace troupe::test {

/// The other process of a test: this program again, started with posix_spawn, which plays a role. Lines go both ways over its stdin and stdout.
class PeerProcess {
 public:
  PeerProcess(const std::string& role, const std::vector<std::string>& arguments);
  ~PeerProcess();  ///< kills and reaps it if it is still there
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  void write_line(const std::string& line);
  /// Empty if the peer ended or said nothing for 30 s.
  [[nodiscard]] std::string read_line();
  void signal(int number) const;
  /// Waits for its end: the status of waitpid.
  int wait();

 private:
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string buffer_;
};

using Role = std::function<int(const std::vector<std::string>& arguments)>;
/// The roles, by name; filled by roles.cpp.
[[nodiscard]] const std::map<std::string, Role>& roles();

[[nodiscard]] std::string to_hex(const std::string& bytes);
[[nodiscard]] std::string from_hex(const std::string& hex);

}  // namespace troupe::test
