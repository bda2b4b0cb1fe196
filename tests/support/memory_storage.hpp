#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/checkpoint/storage.hpp"

namespace troupe::testing {

/// Thrown where the process would have been killed; no std::exception, so that no code under test handles it.
struct Killed {};

/// A disk in memory that can be torn, filled and made to fail. It keeps apart what was written and what is durable: the bytes of a
/// file after its sync, the names of a folder after its sync. One thread.
class MemoryStorage final : public Storage {
 public:
  enum class Loss { nothing, unsynced };  ///< the process died, or the host did

  /// The n-th changing operation from now (0: the next) and all later ones throw Killed; a write is half done.
  void kill_at(std::uint64_t n) { kill_at_ = operations_ + n; }
  /// The n-th changing operation from now fails once, with "Input/output error".
  void fail_at(std::uint64_t n) { fail_at_ = operations_ + n; }
  /// Writes beyond this many bytes in all fail with "No space left on device"; a write that does not fit is partly done.
  void set_capacity(std::uint64_t bytes) { capacity_ = bytes; }
  [[nodiscard]] std::uint64_t operations() const noexcept { return operations_; }
  [[nodiscard]] std::uint64_t used_bytes() const;
  /// After a kill: what a new process finds.
  void restart(Loss loss);

  [[nodiscard]] std::string content(const std::filesystem::path& file) const;
  void put(const std::filesystem::path& file, std::string content);  ///< as a stranger would; counts as durable

  Result<void> make_folders(const std::filesystem::path& folder) override;
  Result<std::unique_ptr<StorageWriter>> create(const std::filesystem::path& file) override;
  Result<std::unique_ptr<StorageReader>> open(const std::filesystem::path& file) override;
  Result<void> sync_folder(const std::filesystem::path& folder) override;
  Result<void> rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Result<void> remove(const std::filesystem::path& path) override;
  Result<std::vector<StorageEntry>> list(const std::filesystem::path& folder) override;
  bool exists(const std::filesystem::path& path) override { return find(path) != nullptr; }
  std::uint64_t free_bytes(const std::filesystem::path&) override { return capacity_ - used_bytes(); }
  std::atomic<std::uint64_t> bytes_read = 0;  ///< by all readers; several threads may read at once

 private:
  class Writer;
  class Reader;
  struct Node;
  using Entries = std::map<std::string, std::shared_ptr<Node>>;
  struct Node {
    bool folder = false;
    std::string data, durable_data;
    Entries entries, durable_entries;
  };
  enum class Fate { done, failed };
  Fate operation();  ///< counts one; throws Killed
  [[nodiscard]] std::shared_ptr<Node> find(const std::filesystem::path& path) const;
  std::shared_ptr<Node> folder_of(const std::filesystem::path& path) const { return find(path.parent_path()); }
  Result<void> remove_node(Node& parent, const std::string& name);
  static std::uint64_t bytes_of(const Node& node);
  static void lose(Node& node, Loss loss);

  std::shared_ptr<Node> root_ = [] {
    auto node = std::make_shared<Node>();
    node->folder = true;
    return node;
  }();
  std::uint64_t operations_ = 0, capacity_ = std::uint64_t{1} << 40U;
  std::optional<std::uint64_t> kill_at_, fail_at_;
};

}  // namespace troupe::testing
