#include "src/checkpoint/faulty_storage.hpp"

#include <charconv>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {
namespace {

namespace fs = std::filesystem;

/// The step and epoch of the folder step-N or step-N.tmp-E that the path leads through; zero where there is none.
Where place_of(const fs::path& path) {
  std::uint64_t step = 0, epoch = 0;
  const auto number = [](std::string_view text, std::uint64_t& to) { return std::from_chars(text.data(), text.data() + text.size(), to).ptr; };
  for (const fs::path& part : path) {
    const std::string name = part.string();
    if (!name.starts_with("step-")) continue;
    const std::string_view rest{number(std::string_view{name}.substr(5), step)};
    if (rest.starts_with(".tmp-")) number(rest.substr(5), epoch);
  }
  return {EpochId{epoch}, Step{step}, {}, {}};
}

/// What all accesses of one storage share.
class Struck {
 public:
  Struck(std::shared_ptr<FaultPlan> plan, std::function<void(const std::string&)> told) : plan_(std::move(plan)), told_(std::move(told)) {}
  Fault decide(const char* access, const fs::path& path) {
    const std::string name = std::string(access) + " " + path.filename().string();
    const Fault fault = plan_->decide(FaultSite::storage, name, place_of(path));
    if (!fault) return fault;
    told_("fault rule " + std::to_string(fault.rule + 1) + " (" + to_string(plan_->rules()[fault.rule]) + ") fired: " + access + " " + path.string());
    if (fault.action == FaultAction::delay || fault.action == FaultAction::stall) std::this_thread::sleep_for(fault.duration);
    return fault;
  }
  /// Of an access that is done or not: nothing, or its failure.
  Result<void> whole(const char* access, const fs::path& path) {
    const Fault fault = decide(access, path);
    if (fault.action == FaultAction::crash) static_cast<void>(std::raise(SIGKILL));
    return failure(fault, access, path);
  }
  static Result<void> failure(const Fault& fault, const char* access, const fs::path& path) {
    if (!fault || fault.action == FaultAction::delay || fault.action == FaultAction::stall) return {};
    const int code = fault.action == FaultAction::full ? ENOSPC : EIO;
    return Error{std::string("cannot ") + access + " " + path.string() + ": " + std::strerror(code) + " (fault rule " + std::to_string(fault.rule + 1) + ")"};
  }

 private:
  std::shared_ptr<FaultPlan> plan_;
  std::function<void(const std::string&)> told_;
};

void flip_a_bit(std::span<std::byte> bytes, std::uint64_t random) {
  if (!bytes.empty()) bytes[random % bytes.size()] ^= std::byte{1} << static_cast<int>((random >> 32U) % 8);
}

class FaultyWriter final : public StorageWriter {
 public:
  FaultyWriter(std::unique_ptr<StorageWriter> below, fs::path path, std::shared_ptr<Struck> struck)
      : below_(std::move(below)), path_(std::move(path)), struck_(std::move(struck)) {}
  Result<void> write(std::span<const std::byte> bytes) override {
    const Fault fault = struck_->decide("write", path_);
    if (fault.action == FaultAction::torn || fault.action == FaultAction::crash) {
      auto half = below_->write(bytes.first(bytes.size() / 2));
      if (fault.action == FaultAction::crash) static_cast<void>(std::raise(SIGKILL));
      return half;
    }
    if (fault.action == FaultAction::corrupt) {
      std::vector<std::byte> other(bytes.begin(), bytes.end());
      flip_a_bit(other, fault.random);
      return below_->write(other);
    }
    if (auto failed = Struck::failure(fault, "write", path_); !failed) return failed;
    return below_->write(bytes);
  }
  Result<void> rewrite_start(std::span<const std::byte> bytes) override { return below_->rewrite_start(bytes); }
  Result<void> sync() override {
    if (auto failed = struck_->whole("sync", path_); !failed) return failed;
    return below_->sync();
  }

 private:
  std::unique_ptr<StorageWriter> below_;
  fs::path path_;
  std::shared_ptr<Struck> struck_;
};

class FaultyReader final : public StorageReader {
 public:
  FaultyReader(std::unique_ptr<StorageReader> below, fs::path path, std::shared_ptr<Struck> struck)
      : below_(std::move(below)), path_(std::move(path)), struck_(std::move(struck)) {}
  [[nodiscard]] std::uint64_t size() const noexcept override { return below_->size(); }
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) override {
    const Fault fault = struck_->decide("read", path_);
    if (fault.action == FaultAction::crash) static_cast<void>(std::raise(SIGKILL));
    if (fault.action != FaultAction::corrupt) {
      if (auto failed = Struck::failure(fault, "read", path_); !failed) return failed;
    }
    auto read = below_->read_at(offset, out);
    if (fault.action == FaultAction::corrupt) flip_a_bit(out, fault.random);
    return read;
  }

 private:
  std::unique_ptr<StorageReader> below_;
  fs::path path_;
  std::shared_ptr<Struck> struck_;
};

class FaultyStorage final : public Storage {
 public:
  FaultyStorage(std::unique_ptr<Storage> below, std::shared_ptr<Struck> struck) : below_(std::move(below)), struck_(std::move(struck)) {}
  Result<void> make_folders(const fs::path& folder) override {
    if (auto failed = struck_->whole("create", folder); !failed) return failed;
    return below_->make_folders(folder);
  }
  Result<std::unique_ptr<StorageWriter>> create(const fs::path& file) override {
    if (auto failed = struck_->whole("create", file); !failed) return failed.error();
    auto made = below_->create(file);
    if (!made) return made.error();
    return std::unique_ptr<StorageWriter>(std::make_unique<FaultyWriter>(std::move(made.value()), file, struck_));
  }
  Result<std::unique_ptr<StorageReader>> open(const fs::path& file) override {
    if (auto failed = struck_->whole("open", file); !failed) return failed.error();
    auto opened = below_->open(file);
    if (!opened) return opened.error();
    return std::unique_ptr<StorageReader>(std::make_unique<FaultyReader>(std::move(opened.value()), file, struck_));
  }
  Result<void> sync_folder(const fs::path& folder) override {
    if (auto failed = struck_->whole("sync", folder); !failed) return failed;
    return below_->sync_folder(folder);
  }
  Result<void> rename(const fs::path& from, const fs::path& to) override {
    if (auto failed = struck_->whole("rename", from); !failed) return failed;
    return below_->rename(from, to);
  }
  Result<void> remove(const fs::path& path) override {
    if (auto failed = struck_->whole("remove", path); !failed) return failed;
    return below_->remove(path);
  }
  Result<std::vector<StorageEntry>> list(const fs::path& folder) override {
    if (auto failed = struck_->whole("list", folder); !failed) return failed.error();
    return below_->list(folder);
  }
  bool exists(const fs::path& path) override { return below_->exists(path); }
  std::uint64_t free_bytes(const fs::path& path) override { return below_->free_bytes(path); }

 private:
  std::unique_ptr<Storage> below_;
  std::shared_ptr<Struck> struck_;
};

}  // namespace

std::unique_ptr<Storage> make_faulty_storage(std::unique_ptr<Storage> below, std::shared_ptr<FaultPlan> plan, std::function<void(const std::string&)> told) {
  if (!plan) return below;
  return std::make_unique<FaultyStorage>(std::move(below), std::make_shared<Struck>(std::move(plan), std::move(told)));
}

}  // namespace troupe
