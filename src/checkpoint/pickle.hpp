#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"

namespace troupe {

using PickleIndex = std::uint32_t;
inline constexpr PickleIndex no_pickle_value = ~PickleIndex{0};

/// One value of a pickle. Values refer to one another by index, so that a pickle which refers to itself is no trouble.
struct PickleValue {
  enum class Kind : std::uint8_t { none, boolean, integer, real, text, bytes, list, tuple, dict, global, call, persistent };
  Kind kind = Kind::none;
  std::int64_t integer = 0;             ///< boolean, integer
  double real = 0;                      ///< real
  std::string text;                     ///< text, bytes; global: "module name"
  std::vector<PickleIndex> items;       ///< list, tuple; dict: key, value, key, …; call: what is called, its arguments (a tuple); persistent: its id
  PickleIndex state = no_pickle_value;  ///< call: what BUILD would have set
};

/// A pickle read as data: nothing that it names is looked up, imported or called.
class Pickle {
 public:
  /// Reads protocols 2 to 5. Opcodes that data has no need of are refused, as is a global for which `allowed("module name")` is false.
  /// Takes time and memory in proportion to `bytes`. The error names `file`, the byte, and what stands there.
  [[nodiscard]] static Result<Pickle> read(std::span<const std::byte> bytes, const std::string& file, const std::function<bool(std::string_view)>& allowed);

  [[nodiscard]] const PickleValue& root() const { return values_[root_]; }
  [[nodiscard]] const PickleValue& at(PickleIndex index) const { return values_[index]; }
  /// Value of a text key of a dict, or of an attribute of a call's state; null: there is none.
  [[nodiscard]] const PickleValue* find(const PickleValue& of, std::string_view key) const;
  /// "module name" of what a call calls; empty: `value` is no call of a global.
  [[nodiscard]] std::string_view called(const PickleValue& value) const;
  /// The numbers of a tuple or list, or of a call of torch.Size; false: it is none.
  [[nodiscard]] bool numbers(const PickleValue& value, std::vector<std::int64_t>& out) const;

 private:
  class Reader;
  std::vector<PickleValue> values_;
  PickleIndex root_ = 0;
};

}  // namespace troupe
