#include "src/checkpoint/kept_state.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "src/checkpoint/state_rows.hpp"

namespace troupe {
namespace {

using nlohmann::json;

constexpr std::uint64_t alignment = 64;
constexpr std::size_t piece_bytes = std::size_t{256} << 10U;  // copied, then hashed while it is in the cache

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

class Hash {
 public:
  Hash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }
  [[nodiscard]] std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

/// Begins a snapshot; behind it the table, then a hash for each of its tensors, then their rows.
struct Front {
  std::uint64_t table_bytes, tensors, hash;  ///< hash: of table and hashes
};

struct Layout {
  std::string table;
  std::vector<std::uint64_t> at;  ///< of each tensor that has rows, in the snapshot
  std::uint64_t bytes = 0;
};

/// One tensor's rows in a snapshot, as its table says.
json entry_of(const StateTensor& tensor, std::uint64_t at) {
  return {{"name", tensor.name},
          {"type", static_cast<int>(tensor.view.dtype)},
          {"shape", sizes_of(tensor.global_shape)},
          {"first", tensor.first_row},
          {"rows", tensor.rows},
          {"at", at}};
}

Layout lay_out(const StateTensors& state) {
  std::uint64_t tensors = 0, data = 0;
  json table = json::array();
  for (const StateTensor& tensor : state) {
    if (tensor.rows == 0) continue;
    ++tensors;
    table.push_back(entry_of(tensor, data));
    data += rounded(valid_bytes(tensor));
  }
  Layout layout;
  layout.table = table.dump();
  const std::uint64_t begin = rounded(sizeof(Front) + layout.table.size() + alignment + tensors * sizeof(std::uint64_t));
  for (const json& entry : table) layout.at.push_back(begin + entry["at"].get<std::uint64_t>());
  layout.bytes = begin + data;
  return layout;
}

std::uint64_t hashes_begin(std::uint64_t table_bytes) { return rounded(sizeof(Front) + table_bytes); }
std::uint64_t data_begin(std::uint64_t table_bytes, std::uint64_t tensors) {
  return rounded(sizeof(Front) + table_bytes + alignment + tensors * sizeof(std::uint64_t));
}

class StateKeep final : public KeepProgram {
 public:
  StateKeep(StateTensors state, KeepOptions options, AgentMemory& memory)
      : state_(std::move(state)), options_(std::move(options)), memory_(memory), layout_(lay_out(state_)), hashes_(layout_.at.size()) {
    std::erase_if(state_, [](const StateTensor& tensor) { return tensor.rows == 0; });
    memory_.reserve(layout_.bytes, options_.slots);
  }
  KeptSnapshot keep(Stream& stream, EpochId epoch, Step step, std::uint32_t slot) override {
    const std::span<std::byte> to = memory_.open(slot);
    for (std::size_t i = 0; i < state_.size(); ++i) hashes_[i] = copy(stream, state_[i], to.subspan(layout_.at[i], valid_bytes(state_[i])));
    std::memcpy(to.data() + sizeof(Front), layout_.table.data(), layout_.table.size());
    const auto hashes = std::as_bytes(std::span(hashes_));
    std::memcpy(to.data() + hashes_begin(layout_.table.size()), hashes.data(), hashes.size());
    Hash all;
    all.add(std::as_bytes(std::span(layout_.table)));
    all.add(hashes);
    const Front front{layout_.table.size(), hashes_.size(), all.value()};
    std::memcpy(to.data(), &front, sizeof front);
    memory_.seal(slot, epoch, step, layout_.bytes);
    return {layout_.bytes, all.value()};
  }

 private:
  std::uint64_t copy(Stream& stream, const StateTensor& tensor, std::span<std::byte> to) const {
    Hash hash;
    if (options_.copy_out) {
      options_.copy_out(stream, tensor.view, to.data());
      hash.add(to);
      return hash.value();
    }
    for (std::uint64_t done = 0; done < to.size(); done += piece_bytes) {
      const auto piece = to.subspan(done, std::min<std::uint64_t>(piece_bytes, to.size() - done));
      std::memcpy(piece.data(), tensor.view.data + done, piece.size());
      hash.add(piece);
    }
    return hash.value();
  }
  StateTensors state_;
  KeepOptions options_;
  AgentMemory& memory_;
  Layout layout_;
  std::vector<std::uint64_t> hashes_;
};

/// Rows of a tensor that some rank has kept.
struct KeptRows {
  std::uint32_t place = 0;
  std::vector<std::int64_t> shape;
  int type = 0;
  std::int64_t first = 0, rows = 0;
  std::span<const std::byte> bytes;
  std::uint64_t hash = 0;
  enum class Checked : std::uint8_t { not_yet, whole, damaged } checked = Checked::not_yet;

  bool whole() {
    if (checked == Checked::not_yet) checked = XXH3_64bits(bytes.data(), bytes.size()) == hash ? Checked::whole : Checked::damaged;
    return checked == Checked::whole;
  }
};
using KeptTensors = std::map<std::string, std::vector<KeptRows>>;

/// Adds what one rank has kept; false: its table is not what was written.
bool read_table(const AgentMemory::Kept& kept, KeptTensors& tensors) {
  const auto bytes = kept.bytes();
  Front front{};
  if (bytes.size() < sizeof front) return false;
  std::memcpy(&front, bytes.data(), sizeof front);
  if (front.table_bytes > bytes.size() || front.tensors > bytes.size() / sizeof(std::uint64_t) || data_begin(front.table_bytes, front.tensors) > bytes.size())
    return false;
  const auto text = bytes.subspan(sizeof front, front.table_bytes);
  const auto hashes = bytes.subspan(hashes_begin(front.table_bytes), front.tensors * sizeof(std::uint64_t));
  Hash all;
  all.add(text);
  all.add(hashes);
  if (all.value() != front.hash) return false;
  const json table = json::parse(reinterpret_cast<const char*>(text.data()), reinterpret_cast<const char*>(text.data()) + text.size(), nullptr, false);
  if (!table.is_array() || table.size() != front.tensors) return false;
  const std::uint64_t begin = data_begin(front.table_bytes, front.tensors);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const json& entry = table[i];
    KeptRows rows{.place = kept.place(),
                  .shape = entry["shape"].get<std::vector<std::int64_t>>(),
                  .type = entry["type"].get<int>(),
                  .first = entry["first"].get<std::int64_t>(),
                  .rows = entry["rows"].get<std::int64_t>(),
                  .bytes = {},
                  .hash = 0};
    std::memcpy(&rows.hash, hashes.data() + i * sizeof rows.hash, sizeof rows.hash);
    const auto size = static_cast<std::uint64_t>(rows.rows) * row_bytes(rows.shape, stored_as(static_cast<DType>(rows.type)));
    const std::uint64_t at = begin + entry["at"].get<std::uint64_t>();
    if (at + size > bytes.size()) return false;
    rows.bytes = bytes.subspan(at, size);
    tensors[entry["name"].get<std::string>()].push_back(std::move(rows));
  }
  return true;
}

class Filling {
 public:
  Filling(KeptTensors& tensors, const KeepOptions& options, std::string where) : tensors_(tensors), options_(options), where_(std::move(where)) {}

  Result<void> fill(const StateTensor& wanted) {
    const auto found = tensors_.find(wanted.name);
    if (found == tensors_.end()) return Error{where_ + "lacks tensor '" + wanted.name + "': was the model changed?"};
    for (const KeptRows& rows : found->second)
      if (rows.shape != sizes_of(wanted.global_shape) || rows.type != static_cast<int>(wanted.view.dtype))
        return Error{where_ + "holds another tensor '" + wanted.name + "': was the model changed?"};
    const std::uint64_t row = row_bytes(sizes_of(wanted.global_shape), stored_as(wanted.view.dtype));
    std::vector<std::byte> together;  // where the device's memory is not the host's, and its rows come from several ranks
    const std::int64_t end = wanted.first_row + wanted.rows;
    for (std::int64_t at = wanted.first_row; at < end;) {
      KeptRows* const rows = whole_rows_at(found->second, at);
      if (rows == nullptr) return Error{where_ + rows_problem_ + " of tensor '" + wanted.name + "', row " + std::to_string(at)};
      const std::int64_t count = std::min(end, rows->first + rows->rows) - at;
      const auto from = rows->bytes.subspan(static_cast<std::uint64_t>(at - rows->first) * row, static_cast<std::uint64_t>(count) * row);
      if (options_.copy_in && count == wanted.rows) {
        options_.copy_in(from.data(), wanted.view);
        return {};
      }
      if (options_.copy_in) together.resize(valid_bytes(wanted));
      std::byte* const to = options_.copy_in ? together.data() : wanted.view.data;
      std::memcpy(to + static_cast<std::uint64_t>(at - wanted.first_row) * row, from.data(), from.size());
      at += count;
    }
    if (options_.copy_in && !together.empty()) options_.copy_in(together.data(), wanted.view);
    return {};
  }

 private:
  /// The first that holds this row whole, the own rank's before others.
  KeptRows* whole_rows_at(std::vector<KeptRows>& candidates, std::int64_t row) {
    rows_problem_ = "has no rows";
    for (KeptRows& rows : candidates) {
      if (row < rows.first || row >= rows.first + rows.rows) continue;
      if (rows.whole()) return &rows;
      rows_problem_ = "is damaged: the hash is not the one written with it,";
    }
    return nullptr;
  }
  KeptTensors& tensors_;
  const KeepOptions& options_;
  std::string where_;
  const char* rows_problem_ = "";
};

}  // namespace

std::unique_ptr<KeepProgram> make_keep_program(StateTensors state, KeepOptions options, AgentMemory& memory) {
  return std::make_unique<StateKeep>(std::move(state), std::move(options), memory);
}

Result<bool> restore_kept(const StateTensors& state, const KeepOptions& options, const AgentMemory& memory, std::uint32_t slot, EpochId epoch, Step step,
                          std::string_view may_lack) {
  const auto kept = memory.find(slot, epoch, step);
  if (!kept) return kept.error();
  const std::string where = "the snapshot of step " + std::to_string(step.value()) + " in the host agent's memory ";
  KeptTensors tensors;
  bool all_tables = true;
  for (const AgentMemory::Kept& one : *kept) all_tables = read_table(one, tensors) && all_tables;
  if (tensors.empty()) return Error{where + "is damaged: its table is not the one written"};
  Filling filling(tensors, options, where);
  bool all = true;
  for (const StateTensor& tensor : state) {
    if (tensor.rows == 0) continue;
    if (!may_lack.empty() && tensor.name.starts_with(may_lack) && !tensors.contains(tensor.name)) {
      all = false;
      continue;
    }
    if (auto filled = filling.fill(tensor); !filled)
      return Error{filled.error().message + (all_tables ? "" : "; of one rank the table is not the one written")};
  }
  return all;
}

std::uint64_t kept_bytes(const StateTensors& state) { return lay_out(state).bytes; }

}  // namespace troupe
