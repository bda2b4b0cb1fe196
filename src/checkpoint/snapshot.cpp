#include "src/checkpoint/snapshot.hpp"

#include <xxhash.h>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "src/checkpoint/state_rows.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t alignment = 64;
constexpr std::size_t write_bytes = std::size_t{4} << 20U;

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// Exponent bits all set: infinity or not a number.
bool finite(const StateTensor& tensor, const std::byte* data) {
  const std::uint64_t bytes = valid_bytes(tensor);
  if (tensor.view.dtype == DType::f32) {
    for (std::uint64_t at = 0; at < bytes; at += 4) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, data + at, 4);
      if ((bits & 0x7f800000U) == 0x7f800000U) return false;
    }
  } else if (tensor.view.dtype == DType::bf16) {
    for (std::uint64_t at = 0; at < bytes; at += 2) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, data + at, 2);
      if ((bits & 0x7f80U) == 0x7f80U) return false;
    }
  }
  return true;
}

/// Writes and hashes what it writes.
class HashedFile {
 public:
  HashedFile(StorageWriter& writer) : writer_(writer), hash_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(hash_.get()); }
  void write(std::span<const std::byte> bytes) {
    XXH3_64bits_update(hash_.get(), bytes.data(), bytes.size());
    written_ += bytes.size();
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(bytes.size(), write_bytes));
      if (auto done = writer_.write(piece); !done) throw std::runtime_error(done.error().message);
      bytes = bytes.subspan(piece.size());
    }
  }
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
  [[nodiscard]] std::uint64_t hash() const { return XXH3_64bits_digest(hash_.get()); }

 private:
  StorageWriter& writer_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash_;
  std::uint64_t written_ = 0;
};

std::string file_name(std::uint32_t rank, std::uint32_t world) {
  const auto padded = [](std::uint32_t number) {
    const auto text = std::to_string(number);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  return "rank-" + padded(rank) + "-of-" + padded(world) + ".safetensors";
}

class StateSnapshot final : public SnapshotProgram {
 public:
  StateSnapshot(StateTensors state, SnapshotOptions options, Storage& storage) : state_(std::move(state)), options_(std::move(options)), storage_(storage) {
    for (const auto& tensor : state_) offsets_.push_back(std::exchange(bytes_, bytes_ + aligned(valid_bytes(tensor))));
  }

  [[nodiscard]] std::size_t snapshot_bytes() const override { return bytes_; }

  void copy(Stream& stream, Step step, std::span<std::byte> snapshot) override {
    if (snapshot.size() < bytes_)
      throw std::invalid_argument("snapshot slot of " + std::to_string(snapshot.size()) + " bytes, " + std::to_string(bytes_) + " are needed");
    for (std::size_t i = 0; i < state_.size(); ++i) {
      if (!stored(state_[i], step)) continue;
      if (options_.copy_out)
        options_.copy_out(stream, state_[i].view, snapshot.data() + offsets_[i]);
      else
        std::memcpy(snapshot.data() + offsets_[i], state_[i].view.data, valid_bytes(state_[i]));
    }
  }

  SavedShard save(Step step, std::span<const std::byte> snapshot, const std::filesystem::path& folder) override {
    check_finite(step, snapshot);
    const auto require = [](const Result<void>& done) {
      if (!done) throw std::runtime_error(done.error().message);
    };
    if (auto made = storage_.make_folders(folder); !made) throw std::runtime_error(made.error().message + free_space(folder));
    const std::string name = file_name(options_.rank, options_.world);
    auto writer = storage_.create(folder / name);
    if (!writer) throw std::runtime_error(writer.error().message + free_space(folder));
    HashedFile file(**writer);
    try {
      const std::string header = write_safetensors_header(header_of(step));
      file.write(std::as_bytes(std::span(header)));
      for (std::size_t i = 0; i < state_.size(); ++i) {
        if (stored(state_[i], step)) file.write(snapshot.subspan(offsets_[i], valid_bytes(state_[i])));
      }
      require((*writer)->sync());
    } catch (const std::runtime_error& error) {
      const std::string problem = error.what() + free_space(folder);
      writer->reset();
      (void)storage_.remove(folder / name);  // half a file only takes the space that the next save needs
      throw std::runtime_error(problem);
    }
    return {name, file.written(), file.hash()};
  }

 private:
  [[nodiscard]] bool stored(const StateTensor& tensor, Step step) const {
    return tensor.rows > 0 && (!tensor.replicated || options_.rank == 0) && (tensor.model || !options_.model_only || !options_.model_only(step));
  }
  [[nodiscard]] std::string free_space(const std::filesystem::path& folder) const {
    return " (" + std::to_string(storage_.free_bytes(folder.parent_path()) >> 20U) + " MiB free, this rank's part takes " +
           std::to_string((bytes_ + (1U << 20U) - 1) >> 20U) + " MiB)";
  }
  void check_finite(Step step, std::span<const std::byte> snapshot) const {
    for (std::size_t i = 0; i < state_.size(); ++i) {
      if (stored(state_[i], step) && !finite(state_[i], snapshot.data() + offsets_[i])) {
        throw std::runtime_error("tensor '" + state_[i].name + "' holds infinite values or NaN after step " + std::to_string(step.value()) +
                                 "; such a state is not saved");
      }
    }
  }
  [[nodiscard]] SafetensorsHeader header_of(Step step) const {
    SafetensorsHeader header;
    std::map<std::string, ShardPart> parts;
    std::uint64_t at = 0;
    for (const auto& tensor : state_) {
      if (!stored(tensor, step)) continue;
      auto shape = sizes_of(tensor.global_shape);
      parts[tensor.name] = {shape, tensor.first_row, tensor.model};
      if (!shape.empty()) shape.front() = tensor.rows;
      header.tensors.push_back({tensor.name, tensor.view.dtype, shape, at, at + valid_bytes(tensor)});
      at = header.tensors.back().end;
    }
    header.metadata = {{"format", "pt"},
                       {"step", std::to_string(step.value())},
                       {"rank", std::to_string(options_.rank)},
                       {"world", std::to_string(options_.world)},
                       {"parts", shard_parts_to_json(parts)}};
    return header;
  }

  StateTensors state_;
  SnapshotOptions options_;
  Storage& storage_;
  std::vector<std::uint64_t> offsets_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<SnapshotProgram> make_snapshot_program(StateTensors state, SnapshotOptions options, Storage& storage) {
  return std::make_unique<StateSnapshot>(std::move(state), std::move(options), storage);
}

}  // namespace troupe
