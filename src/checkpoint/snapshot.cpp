#include "src/checkpoint/snapshot.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "src/checkpoint/shard_file.hpp"
#include "src/checkpoint/state_rows.hpp"

namespace troupe {
namespace {

constexpr std::size_t write_bytes = std::size_t{16} << 20U;

template <class Word>
bool finite(const std::byte* data, std::uint64_t bytes, Word exponent) {
  constexpr std::size_t block = 1024;  // a count without a way out, which the compiler turns into wide instructions
  std::array<Word, block> words;
  for (std::uint64_t at = 0; at < bytes; at += sizeof words) {
    words.fill(0);
    std::memcpy(words.data(), data + at, std::min<std::uint64_t>(sizeof words, bytes - at));
    Word wrong = 0;
    for (std::size_t i = 0; i < block; ++i) wrong = static_cast<Word>(wrong | ((words[i] & exponent) == exponent ? 1U : 0U));
    if (wrong != 0) return false;
  }
  return true;
}

/// Exponent bits all set: infinity or not a number.
bool finite(const StateTensor& tensor, const std::byte* data) {
  if (tensor.view.dtype == DType::f32) return finite<std::uint32_t>(data, valid_bytes(tensor), 0x7f800000U);
  if (tensor.view.dtype == DType::bf16) return finite<std::uint16_t>(data, valid_bytes(tensor), 0x7f80U);
  return true;
}

std::string file_name(std::uint32_t rank, std::uint32_t world) {
  const auto padded = [](std::uint32_t number) {
    const auto text = std::to_string(number);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  return "rank-" + padded(rank) + "-of-" + padded(world) + ".safetensors";
}

/// The same places as torch.distributed.checkpoint's HuggingFaceStorageReader asks for them, so that it loads a sealed checkpoint.
std::string torch_pieces(const std::map<std::string, ShardPart>& parts) {
  nlohmann::json value = nlohmann::json::object();
  for (const auto& [name, part] : parts) {
    std::vector<std::int64_t> offsets(part.global_shape.size(), 0);
    if (!offsets.empty()) offsets.front() = part.first_row;
    value[name] = {{"saved_offsets", offsets}};
  }
  return value.dump();
}

void require(const Result<void>& done) {
  if (!done) throw std::runtime_error(done.error().message);
}

class StateSnapshot final : public SnapshotProgram {
 public:
  StateSnapshot(StateTensors state, SnapshotOptions options, Storage& storage) : state_(std::move(state)), options_(std::move(options)), storage_(storage) {
    StateTensors kept;
    std::uint32_t turn = 0;  // of the replicas that hold these rows
    for (StateTensor& tensor : state_) {
      const bool saves = tensor.replicated ? options_.rank == 0 : tensor.rows > 0 && turn == options_.replica;
      if (!tensor.replicated) turn = (turn + 1) % options_.replicas;
      if (saves) kept.push_back(std::move(tensor));
    }
    state_ = std::move(kept);
    // A slot is an image of the file's data: it is written as it lies. Weights stand first, so those alone are an image too.
    std::stable_partition(state_.begin(), state_.end(), [](const StateTensor& tensor) { return tensor.model; });
    for (const auto& tensor : state_) offsets_.push_back(std::exchange(bytes_, bytes_ + valid_bytes(tensor)));
  }

  [[nodiscard]] std::size_t snapshot_bytes() const override { return bytes_; }

  void copy(Stream& stream, Step step, std::span<std::byte> snapshot) override {
    if (snapshot.size() < bytes_)
      throw std::invalid_argument("snapshot slot of " + std::to_string(snapshot.size()) + " bytes, " + std::to_string(bytes_) + " are needed");
    for (std::size_t i = 0; i < state_.size(); ++i) {
      if (!stored(state_[i], step)) continue;
      if (options_.copy_out)
        options_.copy_out(stream, source(i, step), snapshot.data() + offsets_[i]);
      else
        std::memcpy(snapshot.data() + offsets_[i], source(i, step).data, valid_bytes(state_[i]));
    }
  }

  SavedShard save(Step step, std::span<const std::byte> snapshot, const std::filesystem::path& folder) override {
    if (auto made = storage_.make_folders(folder); !made) throw std::runtime_error(made.error().message + free_space(folder));
    const std::string name = file_name(options_.rank, options_.world);
    auto writer = storage_.create(folder / name);
    if (!writer) throw std::runtime_error(writer.error().message + free_space(folder));
    try {
      return write(step, snapshot, **writer, name);
    } catch (const NotFinite& error) {
      writer->reset();
      (void)storage_.remove(folder / name);
      throw std::runtime_error(error.what());
    } catch (const std::runtime_error& error) {
      const std::string problem = error.what() + free_space(folder);
      writer->reset();
      (void)storage_.remove(folder / name);  // half a file only takes the space that the next save needs
      throw std::runtime_error(problem);
    }
  }

 private:
  struct NotFinite : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  /// The header stands before the data but holds its hashes: its place is taken first, and filled once the data is hashed, beside the writing.
  SavedShard write(Step step, std::span<const std::byte> snapshot, StorageWriter& writer, const std::string& name) const {
    const SafetensorsHeader header = header_of(step);
    const std::uint64_t data_bytes = header.tensors.empty() ? 0 : header.tensors.back().end;
    std::vector<std::byte> exported;
    std::span<const std::byte> data = snapshot.first(std::min<std::size_t>(data_bytes, snapshot.size()));
    if (options_.export_type != StoredType::f32 && weights_alone(step)) {
      check_finite(step, snapshot);
      exported = converted(header, snapshot, step);
      data = exported;
    }
    std::vector<std::uint64_t> hashes(pieces_of(data_bytes));
    const std::string place = write_shard_header(header, hashes);
    auto hashing = std::async(std::launch::async, [&] {
      if (exported.empty()) check_finite(step, snapshot);
      for (std::size_t i = 0; i < hashes.size(); ++i) {
        const auto piece = data.subspan(i * piece_bytes, std::min<std::size_t>(piece_bytes, data.size() - i * piece_bytes));
        hashes[i] = XXH3_64bits(piece.data(), piece.size());
      }
    });
    require(writer.write(std::as_bytes(std::span(place))));
    for (std::size_t at = 0; at < data.size(); at += write_bytes) require(writer.write(data.subspan(at, std::min(write_bytes, data.size() - at))));
    hashing.get();
    const std::string whole = write_shard_header(header, hashes);
    require(writer.rewrite_start(std::as_bytes(std::span(whole))));
    require(writer.sync());
    return {name, whole.size() + data_bytes, hash_of_header(whole)};
  }

  [[nodiscard]] const TensorView& source(std::size_t i, Step step) const {
    if (!weights_alone(step)) return state_[i].view;
    const auto other = std::find_if(options_.instead.begin(), options_.instead.end(), [&](const StateTensor& t) { return t.name == state_[i].name; });
    return other == options_.instead.end() ? state_[i].view : other->view;
  }
  [[nodiscard]] bool weights_alone(Step step) const { return options_.model_only && options_.model_only(step); }
  [[nodiscard]] bool stored(const StateTensor& tensor, Step step) const { return tensor.model || !weights_alone(step); }
  [[nodiscard]] StoredType type_in_file(const StateTensor& tensor, Step step) const {
    const StoredType own = stored_as(tensor.view.dtype);
    return weights_alone(step) && own == StoredType::f32 ? options_.export_type : own;
  }
  [[nodiscard]] std::string free_space(const std::filesystem::path& folder) const {
    return " (" + std::to_string(storage_.free_bytes(folder.parent_path()) >> 20U) + " MiB free, this rank's part takes " +
           std::to_string((bytes_ + (1U << 20U) - 1) >> 20U) + " MiB)";
  }
  void check_finite(Step step, std::span<const std::byte> snapshot) const {
    for (std::size_t i = 0; i < state_.size(); ++i) {
      if (stored(state_[i], step) && !finite(state_[i], snapshot.data() + offsets_[i])) {
        throw NotFinite("tensor '" + state_[i].name + "' holds infinite values or NaN after step " + std::to_string(step.value()) +
                        "; such a state is not saved");
      }
    }
  }
  [[nodiscard]] std::vector<std::byte> converted(const SafetensorsHeader& header, std::span<const std::byte> snapshot, Step step) const {
    std::vector<std::byte> data(header.tensors.empty() ? 0 : header.tensors.back().end);
    auto entry = header.tensors.begin();
    for (std::size_t i = 0; i < state_.size(); ++i) {
      if (!stored(state_[i], step)) continue;
      convert(snapshot.subspan(offsets_[i], valid_bytes(state_[i])), stored_as(state_[i].view.dtype),
              std::span(data).subspan(entry->begin, entry->end - entry->begin), entry->dtype);
      ++entry;
    }
    return data;
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
      const StoredType type = type_in_file(tensor, step);
      header.tensors.push_back({tensor.name, type, shape, at, at + valid_bytes(tensor) / size_of(tensor.view.dtype) * size_of(type)});
      at = header.tensors.back().end;
    }
    header.metadata = {{"format", "pt"},
                       {"step", std::to_string(step.value())},
                       {"rank", std::to_string(options_.rank)},
                       {"world", std::to_string(options_.world)},
                       {"parts", shard_parts_to_json(parts)},
                       {"DCP_SHARDING_INFO", torch_pieces(parts)}};
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
