#include "src/checkpoint/restore_foreign.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "src/checkpoint/safetensors.hpp"
#include "src/checkpoint/state_rows.hpp"

namespace troupe {
namespace {

constexpr std::size_t most_problems = 10;

bool wanted(const StateTensor& tensor, const RestoreOptions& options) { return tensor.model ? !options.leave_model : !options.model_only; }

/// Step counts are whole numbers here and fp32 in PyTorch.
bool counts(const StateTensor& tensor, const ForeignTensor& stored) {
  return !tensor.model && tensor.view.dtype == DType::i64 && tensor.global_shape.elements() == 1 &&
         bytes_of_shape(stored.shape, stored.dtype) == size_of(stored.dtype) && (stored.dtype == StoredType::f32 || stored.dtype == StoredType::i64);
}

bool alike(const StateTensor& tensor, const ForeignTensor& stored) {
  const StoredType own = stored_as(tensor.view.dtype);
  const bool fits = stored.scales.empty() ? convertible(stored.dtype, own) : own == StoredType::f32;
  return counts(tensor, stored) || (sizes_of(tensor.global_shape) == stored.shape && fits);
}

std::string text_of(StoredType type, const std::vector<std::int64_t>& shape) { return std::string(safetensors_name(type)) + " " + text_of_shape(shape); }

/// Reads one tensor's rows in blocks, puts them into our order and type.
class Filling {
 public:
  Filling(const ForeignTensors& found, ForeignReads& reads, const RestoreOptions& options) : found_(found), reads_(reads), options_(options) {}

  Result<void> fill(const StateTensor& tensor, const ForeignTensor& stored, RowOrder order, std::int64_t head_dim) {
    if (counts(tensor, stored)) return fill_count(tensor, stored);
    const std::uint64_t row = row_bytes(stored.shape, stored.dtype);
    const bool as_it_is = !options_.copy_in && order == RowOrder::same && stored.dtype == stored_as(tensor.view.dtype);
    if (as_it_is) return reads_.rows(stored, tensor.first_row, tensor.rows, {tensor.view.data, valid_bytes(tensor)});
    const std::int64_t unit = order == RowOrder::same ? 1 : head_dim;
    const std::uint64_t wider = std::max({std::uint64_t{1}, row, row / size_of(stored.dtype) * size_of(tensor.view.dtype)});
    const auto fit = static_cast<std::int64_t>(foreign_staging_bytes / wider) / unit * unit;
    const std::int64_t block = std::max(unit, fit), end = tensor.first_row + tensor.rows;
    for (std::int64_t first = tensor.first_row; first < end;) {
      const std::int64_t last = std::min(end, (first / unit * unit) + block);  // blocks end where a head does
      if (auto read = read_block(stored, order, head_dim, first, last - first, row); !read) return read;
      if (auto scaled = stored.scales.empty() ? Result<void>{} : dequantise(stored, order, head_dim, first, last - first); !scaled) return scaled;
      place(tensor, stored.scales.empty() ? stored.dtype : StoredType::f32, first, last - first);
      first = last;
    }
    return {};
  }

 private:
  /// Rows [first, first + count) of ours into ordered_: each run of theirs is one read.
  Result<void> read_block(const ForeignTensor& stored, RowOrder order, std::int64_t head_dim, std::int64_t first, std::int64_t count, std::uint64_t row) {
    ordered_.resize(static_cast<std::size_t>(count) * row);
    if (order == RowOrder::same) return reads_.rows(stored, first, count, ordered_);
    std::vector<std::pair<std::int64_t, std::int64_t>> places;  // row there, row of the block
    for (std::int64_t i = 0; i < count; ++i) places.emplace_back(row_there(order, head_dim, first + i), i);
    std::ranges::sort(places);
    staged_.resize(ordered_.size());
    for (std::size_t i = 0; i < places.size();) {
      std::size_t next = i + 1;
      while (next < places.size() && places[next].first == places[i].first + static_cast<std::int64_t>(next - i)) ++next;
      if (auto read = reads_.rows(stored, places[i].first, static_cast<std::int64_t>(next - i), std::span(staged_).subspan(i * row, (next - i) * row)); !read)
        return read;
      i = next;
    }
    for (std::size_t i = 0; i < places.size(); ++i)
      std::memcpy(ordered_.data() + static_cast<std::size_t>(places[i].second) * row, staged_.data() + i * row, row);
    return {};
  }
  /// Rows [first, first + count) of ours in ordered_, from codes to fp32.
  Result<void> dequantise(const ForeignTensor& stored, RowOrder order, std::int64_t head_dim, std::int64_t first, std::int64_t count) {
    const ForeignTensor& scales = found_.scales.at(stored.scales);
    if (scales_of_ != &scales) {
      scales_.resize(static_cast<std::size_t>(scales.shape[0] * scales.shape[1]));
      if (auto read = reads_.rows(scales, 0, scales.shape[0], std::as_writable_bytes(std::span(scales_))); !read) return read;
      scales_of_ = &scales;
    }
    const auto columns = static_cast<std::size_t>(stored.shape[1]), width = static_cast<std::size_t>(stored.block_columns);
    staged_.resize(ordered_.size() * sizeof(float));
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const std::int64_t there = row_there(order, head_dim, first + static_cast<std::int64_t>(i));
      const float* const by_block = scales_.data() + there / stored.block_rows * scales.shape[1];
      for (std::size_t c = 0; c < columns; ++c) {
        const float value = e4m3_value(std::to_integer<std::uint8_t>(ordered_[i * columns + c])) * by_block[c / width];
        if (!std::isfinite(value)) return Error{"row " + std::to_string(there) + ", column " + std::to_string(c) + " is no finite number"};
        std::memcpy(staged_.data() + (i * columns + c) * sizeof value, &value, sizeof value);
      }
    }
    ordered_.swap(staged_);
    return {};
  }
  void place(const StateTensor& tensor, StoredType from, std::int64_t first, std::int64_t count) {
    const StoredType own = stored_as(tensor.view.dtype);
    TensorView to = tensor.view.rows(first - tensor.first_row, count);
    const std::vector<std::byte>* values = &ordered_;
    if (from != own) {
      staged_.resize(to.bytes());
      convert(ordered_, from, staged_, own);
      values = &staged_;
    }
    copy(values->data(), to);
  }
  Result<void> fill_count(const StateTensor& tensor, const ForeignTensor& stored) {
    std::vector<std::byte> bytes(size_of(stored.dtype));
    if (auto read = reads_.rows(stored, 0, 1, bytes); !read) return read;
    std::int64_t count = 0;
    if (stored.dtype == StoredType::i64) {
      std::memcpy(&count, bytes.data(), sizeof count);
    } else {
      float value = 0;
      std::memcpy(&value, bytes.data(), sizeof value);
      if (!(value >= 0 && value < 0x1p53F)) return Error{"is no number of steps"};
      count = static_cast<std::int64_t>(value);
    }
    copy(reinterpret_cast<const std::byte*>(&count), tensor.view);
    return {};
  }
  void copy(const std::byte* from, const TensorView& to) const {
    if (options_.copy_in)
      options_.copy_in(from, to);
    else
      std::memcpy(to.data, from, to.bytes());
  }
  const ForeignTensors& found_;
  ForeignReads& reads_;
  const RestoreOptions& options_;
  std::vector<std::byte> ordered_, staged_;
  std::vector<float> scales_;
  const ForeignTensor* scales_of_ = nullptr;  ///< whose values scales_ holds
};

}  // namespace

Result<void> check_foreign(const ForeignTensors& found, const ForeignNames& names, const StateTensors& state, const RestoreOptions& options,
                           const std::string& where) {
  std::vector<std::string> problems;
  std::set<std::string> known;
  for (const StateTensor& tensor : state) {
    const auto there = name_there(names, tensor.name);
    if (there) known.insert(there->name);
    if (!wanted(tensor, options)) continue;
    const StoredType own = stored_as(tensor.view.dtype);
    const auto sizes = sizes_of(tensor.global_shape);
    if (!there) {
      problems.push_back("tensor '" + tensor.name + "' has no name in such files");
      continue;
    }
    const auto stored = found.tensors.find(there->name);
    if (stored == found.tensors.end())
      problems.push_back("tensor '" + there->name + "' is missing (" + tensor.name + ", " + text_of(own, sizes) + ")");
    else if (!alike(tensor, stored->second))
      problems.push_back("tensor '" + there->name + "' is " + text_of(stored->second.dtype, stored->second.shape) + ", expected " + text_of(own, sizes) +
                         (own == StoredType::f32 ? " (F16 and BF16 are converted)" : "") +
                         (stored->second.dtype == StoredType::e4m3 ? "; fp8 with scales by block: set checkpoint.initial_load_in_hf_quantized = true" : ""));
  }
  for (const auto& [name, tensor] : found.tensors) {
    if (known.contains(name) || left_out(names, name)) continue;
    if (name.starts_with("optimizer.") && options.model_only) continue;
    problems.push_back("tensor '" + name + "' (" + text_of(tensor.dtype, tensor.shape) + ") is none of this model's");
  }
  if (problems.empty()) return {};
  std::string text = where + ": does not fit the model:";
  for (std::size_t i = 0; i < std::min(problems.size(), most_problems); ++i) text += "\n  " + problems[i];
  if (problems.size() > most_problems) text += "\n  and " + std::to_string(problems.size() - most_problems) + " more";
  return Error{text};
}

Result<void> restore_foreign(const ForeignTensors& found, const ForeignNames& names, std::int64_t head_dim, Storage& storage, const StateTensors& state,
                             const RestoreOptions& options, const std::string& where) {
  if (auto fits = check_foreign(found, names, state, options, where); !fits) return fits;
  ForeignReads reads(found, storage);
  Filling filling(found, reads, options);
  for (const StateTensor& tensor : state) {
    if (!wanted(tensor, options) || tensor.rows == 0) continue;
    const auto there = name_there(names, tensor.name);
    if (auto filled = filling.fill(tensor, found.tensors.at(there->name), there->order, head_dim); !filled)
      return Error{where + ": tensor '" + there->name + "': " + filled.error().message};
  }
  return {};
}

}  // namespace troupe
