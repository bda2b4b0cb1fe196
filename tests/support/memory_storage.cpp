#include "tests/support/memory_storage.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::testing {

namespace fs = std::filesystem;

namespace {
Error broken(const fs::path& path) { return Error{"cannot change " + path.string() + ": Input/output error"}; }
Error absent(const fs::path& path) { return Error{"cannot open " + path.string() + ": No such file or directory"}; }
}  // namespace

class MemoryStorage::Writer final : public StorageWriter {
 public:
  Writer(MemoryStorage& storage, std::shared_ptr<Node> node, fs::path path) : storage_(storage), node_(std::move(node)), path_(std::move(path)) {}
  Result<void> write(std::span<const std::byte> bytes) override {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    try {
      if (storage_.operation() == Fate::failed) return broken(path_);
    } catch (const Killed&) {
      node_->data += text.substr(0, text.size() / 2);
      throw;
    }
    const std::uint64_t room = storage_.capacity_ - std::min(storage_.capacity_, storage_.used_bytes());
    node_->data += text.substr(0, room);
    if (text.size() > room) return Error{"cannot write " + path_.string() + ": No space left on device"};
    return {};
  }
  Result<void> rewrite_start(std::span<const std::byte> bytes) override {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    try {
      if (storage_.operation() == Fate::failed) return broken(path_);
    } catch (const Killed&) {
      node_->data.replace(0, text.size() / 2, text.substr(0, text.size() / 2));
      throw;
    }
    node_->data.replace(0, text.size(), text);
    return {};
  }
  Result<void> sync() override {
    if (storage_.operation() == Fate::failed) return broken(path_);
    node_->durable_data = node_->data;
    return {};
  }

 private:
  MemoryStorage& storage_;
  std::shared_ptr<Node> node_;
  fs::path path_;
};

class MemoryStorage::Reader final : public StorageReader {
 public:
  Reader(MemoryStorage& storage, std::shared_ptr<Node> node, fs::path path) : storage_(storage), node_(std::move(node)), path_(std::move(path)) {}
  [[nodiscard]] std::uint64_t size() const noexcept override { return node_->data.size(); }
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset > size() || out.size() > size() - offset) return Error{path_.string() + " is shorter than expected"};
    std::memcpy(out.data(), node_->data.data() + offset, out.size());
    storage_.bytes_read += out.size();
    return {};
  }

 private:
  MemoryStorage& storage_;
  std::shared_ptr<Node> node_;
  fs::path path_;
};

MemoryStorage::Fate MemoryStorage::operation() {
  const std::uint64_t now = operations_++;
  if (kill_at_ && now >= *kill_at_) throw Killed();
  return fail_at_ && now == *fail_at_ ? Fate::failed : Fate::done;
}

std::shared_ptr<MemoryStorage::Node> MemoryStorage::find(const fs::path& path) const {
  auto node = root_;
  for (const auto& part : path.relative_path()) {
    if (part.empty()) continue;
    const auto next = node->entries.find(part.string());
    if (next == node->entries.end()) return nullptr;
    node = next->second;
  }
  return node;
}

std::uint64_t MemoryStorage::bytes_of(const Node& node) {
  std::uint64_t bytes = node.data.size();
  for (const auto& [name, below] : node.entries) bytes += bytes_of(*below);
  return bytes;
}
std::uint64_t MemoryStorage::used_bytes() const { return bytes_of(*root_); }

void MemoryStorage::lose(Node& node, Loss loss) {
  if (loss == Loss::unsynced) {
    node.entries = node.durable_entries;
    node.data = node.durable_data;
  } else {
    node.durable_entries = node.entries;
    node.durable_data = node.data;
  }
  for (auto& [name, below] : node.entries) lose(*below, loss);
}

void MemoryStorage::restart(Loss loss) {
  kill_at_.reset();
  fail_at_.reset();
  lose(*root_, loss);
}

std::string MemoryStorage::content(const fs::path& file) const {
  const auto node = find(file);
  return node ? node->data : std::string{};
}

void MemoryStorage::put(const fs::path& file, std::string content) {
  auto node = root_;
  const auto relative = file.relative_path();
  for (auto part = relative.begin(); part != relative.end(); ++part) {
    auto& next = node->entries[part->string()];
    if (!next) next = std::make_shared<Node>();
    next->folder = std::next(part) != relative.end();
    node->durable_entries[part->string()] = next;
    node = next;
  }
  node->data = node->durable_data = std::move(content);
}

Result<void> MemoryStorage::make_folders(const fs::path& folder) {
  auto node = root_;
  for (const auto& part : folder.relative_path()) {
    if (!node->entries.contains(part.string())) {
      if (operation() == Fate::failed) return broken(folder);
      auto fresh = std::make_shared<Node>();
      fresh->folder = true;
      node->entries[part.string()] = fresh;
    }
    node = node->entries[part.string()];
  }
  return {};
}

Result<std::unique_ptr<StorageWriter>> MemoryStorage::create(const fs::path& file) {
  const auto parent = folder_of(file);
  if (!parent) return absent(file);
  if (operation() == Fate::failed) return broken(file);
  auto& node = parent->entries[file.filename().string()];
  if (!node) node = std::make_shared<Node>();
  node->data.clear();
  return std::unique_ptr<StorageWriter>(std::make_unique<Writer>(*this, node, file));
}

Result<std::unique_ptr<StorageReader>> MemoryStorage::open(const fs::path& file) {
  auto node = find(file);
  if (!node || node->folder) return absent(file);
  return std::unique_ptr<StorageReader>(std::make_unique<Reader>(*this, std::move(node), file));
}

Result<void> MemoryStorage::sync_folder(const fs::path& folder) {
  const auto node = find(folder);
  if (!node) return absent(folder);
  if (operation() == Fate::failed) return broken(folder);
  node->durable_entries = node->entries;
  return {};
}

Result<void> MemoryStorage::rename(const fs::path& from, const fs::path& to) {
  const auto old_parent = folder_of(from), new_parent = folder_of(to);
  const auto node = find(from);
  if (!node || !new_parent) return absent(from);
  if (const auto there = find(to); there && there->folder && !there->entries.empty()) return Error{"cannot rename " + from.string() + ": Directory not empty"};
  if (operation() == Fate::failed) return broken(from);
  old_parent->entries.erase(from.filename().string());
  new_parent->entries[to.filename().string()] = node;
  return {};
}

Result<void> MemoryStorage::remove_node(Node& parent, const std::string& name) {
  const auto node = parent.entries.at(name);
  while (!node->entries.empty()) {
    if (auto removed = remove_node(*node, node->entries.begin()->first); !removed) return removed;
  }
  if (operation() == Fate::failed) return broken(name);
  parent.entries.erase(name);
  return {};
}

Result<void> MemoryStorage::remove(const fs::path& path) { return find(path) ? remove_node(*folder_of(path), path.filename().string()) : Result<void>{}; }

Result<std::vector<StorageEntry>> MemoryStorage::list(const fs::path& folder) {
  std::vector<StorageEntry> entries;
  if (const auto node = find(folder)) {
    for (const auto& [name, below] : node->entries) entries.push_back({name, below->folder});
  }
  return entries;
}

}  // namespace troupe::testing
