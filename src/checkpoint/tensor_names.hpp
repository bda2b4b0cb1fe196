#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// How a head's rows of a rotated projection lie: here the pair i is rows (2i, 2i + 1) of its head, elsewhere it may be (i, i + d / 2).
enum class RowOrder : std::uint8_t { same, rotary_halves };

/// One parameter's name here and there; "{}" stands for the same text in both.
struct NamePair {
  std::string_view ours, theirs;
  RowOrder order = RowOrder::same;
};

/// A family's names in another program's files, as data.
struct ForeignNames {
  std::string_view family;        ///< model.name
  std::string_view architecture;  ///< "architectures" of Hugging Face's config.json; empty: none
  std::string_view model_type;    ///< "model_type" there
  std::span<const NamePair> names;
  std::span<const std::string_view> left_out;  ///< tensors that may be there and hold nothing of the model
};

/// Where a tensor of ours lies there.
struct ForeignName {
  std::string name;
  RowOrder order = RowOrder::same;
};

/// Nothing: the table has no such name.
[[nodiscard]] std::optional<ForeignName> name_there(const ForeignNames& names, std::string_view ours);
/// Whether a name there fits one of `left_out`.
[[nodiscard]] bool left_out(const ForeignNames& names, std::string_view theirs);
/// What "{}" of `pattern` stands for in `name`; nothing: it does not fit.
[[nodiscard]] std::optional<std::string> fit_name(std::string_view pattern, std::string_view name);

/// Names in Hugging Face's files; nothing: this family has no table (the error of whoever asks names it).
[[nodiscard]] const ForeignNames* hugging_face_names(std::string_view family);
/// torchtitan's own: the model's are ours; optimizer, step counts and run state stand beside them.
[[nodiscard]] const ForeignNames& torchtitan_names();

/// The row of theirs that is row `row` of ours.
[[nodiscard]] std::int64_t row_there(RowOrder order, std::int64_t head_dim, std::int64_t row) noexcept;

}  // namespace troupe
