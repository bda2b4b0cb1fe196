#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/result.hpp"

/// The configuration mechanism: each layer declares its keys once (name, member, doc, class, check), whatever they are read from.
/// A Schema refers to the members of settings structs that outlive it. Single-threaded; used before a run starts.
namespace troupe {

/// What changing a key in a live run takes: applied at one agreed step, a new epoch at a step boundary, or never.
enum class KeyClass : std::uint8_t { live, epoch, frozen };
[[nodiscard]] std::string_view name_of(KeyClass key_class) noexcept;

/// Where a key's value came from; a later source wins: default < file < command line.
enum class KeySource : std::uint8_t { builtin, file, command_line };
[[nodiscard]] std::string_view name_of(KeySource source) noexcept;

/// Whether a key does what torchtitan's does. A key that is `not_built` is shown and refused by a run; one `without_effect` is accepted and said so.
enum class KeyState : std::uint8_t { built, not_built, without_effect };
[[nodiscard]] std::string_view name_of(KeyState state) noexcept;  ///< "built", "not built yet", "without effect here"

/// A value as a source wrote it, before it is checked against a key's type.
struct RawValue {
  struct Other {
    std::string type;
  };  ///< what no key takes: a table, a date
  std::variant<bool, std::int64_t, double, std::string, std::vector<RawValue>, Other> value;
  [[nodiscard]] std::string describe() const;  ///< "the string \"8\""
};

/// The member that a key sets; monostate: the key is accepted and has no effect.
using KeyTarget =
    std::variant<std::monostate, bool*, std::int64_t*, double*, std::string*, std::optional<bool>*, std::optional<std::int64_t>*, std::optional<double>*,
                 std::optional<std::string>*, std::vector<std::string>*, std::vector<std::int64_t>*, std::vector<double>*>;

/// A value that a Schema keeps itself, because no settings struct has a use for it; its type is the key's. Written as in C++: false, 50, "inductor",
/// std::optional<std::int64_t>{}, std::vector<std::string>{}.
struct HeldValue {
  std::variant<bool, std::int64_t, double, std::string, std::optional<bool>, std::optional<std::int64_t>, std::optional<double>, std::optional<std::string>,
               std::vector<std::string>, std::vector<std::int64_t>, std::vector<double>>
      value;
  HeldValue(bool v) : value(v) {}
  HeldValue(int v) : value(std::int64_t{v}) {}
  HeldValue(std::int64_t v) : value(v) {}
  HeldValue(double v) : value(v) {}
  HeldValue(const char* v) : value(std::string(v)) {}
  template <class T>
  HeldValue(std::optional<T> v) : value(std::move(v)) {}
  template <class T>
  HeldValue(std::vector<T> v) : value(std::move(v)) {}
  [[nodiscard]] std::string toml() const;  ///< empty: an unset optional
};
/// By full key name. Part of a configuration, so that it is copied with it.
using HeldValues = std::map<std::string, HeldValue, std::less<>>;

/// One key: declared by Schema::key, refined by the chained functions.
struct Key {
  std::string name;  ///< "training.steps"
  KeyTarget target;
  KeyClass key_class = KeyClass::frozen;
  std::string doc;
  std::string initial;               ///< the default, as text
  std::vector<std::string> aliases;  ///< full names of other versions of torchtitan
  KeyState state = KeyState::built;
  std::string why;  ///< what is missing, of a key that is not built; why it has no effect; of `built_only`, what the other values would need
  KeySource source = KeySource::builtin;
  std::string where;  ///< "run.toml:3:1" or "command line"; empty for a default

  Key& at_least(double low);  ///< of numbers, optional or in lists
  Key& at_most(double high);
  Key& above(double low);   ///< exclusive
  Key& below(double high);  ///< exclusive
  Key& not_zero();
  Key& one_of(std::vector<std::string> values, std::string otherwise = "");  ///< `otherwise`: what to do instead, said when refused
  Key& only(bool value, std::string otherwise);
  Key& alias(std::string full_name);
  Key& or_single();  ///< a list that may be written as one value
  /// Of the values that the key accepts only these are built; a list's items are looked at one by one. A run refuses the others.
  Key& built_only(std::vector<std::string> values, std::string missing);
  /// The value of a key that is not built, or without effect, at which nothing is asked for; at first its default. As TOML: "\"none\"".
  Key& neutral(std::string toml_value);
  /// Asks for nothing while `switch_key` has its default: a key that is not built is then accepted with any value.
  Key& part_of(std::string switch_key);
  Key& apart();  ///< may differ between the ranks of a run (a folder): not part of the hash

  /// Checks type and range, then sets the member. Empty, or what is wrong ("expected an integer, found the string \"8\"").
  [[nodiscard]] std::string assign(const RawValue& raw);
  /// The same from the command line's text; a list is comma-separated, "none" unsets an optional.
  [[nodiscard]] std::string assign_text(std::string_view text);
  /// The member's value as TOML; empty when an optional is unset or the key has no effect.
  [[nodiscard]] std::string toml() const;
  [[nodiscard]] bool built_value() const;          ///< none of the values that `built_only` leaves out
  [[nodiscard]] std::string built_values() const;  ///< "default | always"; empty: all that `limits` allows
  [[nodiscard]] std::string type() const;          ///< "integer", "list of strings", …
  [[nodiscard]] std::string limits() const;        ///< "at least 1", "linear | sqrt | cosine"; empty: none
  [[nodiscard]] bool boolean() const noexcept;
  [[nodiscard]] bool effective() const noexcept { return state == KeyState::built; }
  [[nodiscard]] bool typed() const noexcept { return target.index() != 0; }
  [[nodiscard]] bool hashed() const noexcept { return effective() && !apart_; }
  /// Why a run must refuse the present value: "parallelism.tensor_parallel_degree = 8 is not built yet: …; set 1". Empty: it need not.
  [[nodiscard]] std::string refusal() const;
  [[nodiscard]] const std::string& switch_key() const noexcept { return switch_; }

 private:
  [[nodiscard]] std::string check_number(double value) const;
  [[nodiscard]] std::string check_text(const std::string& value) const;
  template <class T>
  [[nodiscard]] std::string read(const RawValue& raw, T& out) const;
  friend class Schema;
  std::string neutral_;  ///< as TOML
  std::string switch_;
  std::optional<double> low_, high_;
  bool low_open_ = false, high_open_ = false, not_zero_ = false, single_ = false, apart_ = false;
  std::optional<bool> only_;
  std::vector<std::string> choices_, built_;
  std::string otherwise_;
};

/// All keys of a program. Not copied: keys hand out references.
class Schema {
 public:
  Schema() = default;
  Schema(const Schema&) = delete;
  Schema& operator=(const Schema&) = delete;

  /// Keys declared from here on belong to this section. May be repeated; `doc` is kept from the first.
  void section(std::string name, std::string doc = "");
  /// Declares `section.name`; `member` holds the default and outlives the Schema. Throws std::logic_error on a name declared before.
  Key& key(std::string_view name, KeyTarget member, KeyClass key_class, std::string doc);
  /// A key of torchtitan that has nothing to act on here: accepted with any value and noted.
  Key& ignored(std::string_view name, std::string why);
  /// The same with a type, so that its value is checked and shown.
  Key& ignored(std::string_view name, HeldValue initial, std::string why);
  /// A key of torchtitan's that nothing acts on yet: accepted, checked and shown; a run refuses it unless it has its neutral value, `initial`.
  /// `missing` completes "not built yet: ".
  Key& not_built(std::string_view name, HeldValue initial, std::string doc, std::string missing);
  /// Where the values of such keys live from here on; it outlives the Schema. Values that it has already are kept. Without it the Schema holds them.
  void hold_in(HeldValues& values) { held_ = &values; }

  /// By canonical name or alias, '-' for '_'. Null: unknown.
  [[nodiscard]] Key* find(std::string_view name);
  [[nodiscard]] bool is_section(std::string_view name) const;
  /// The known name that looks most like this one; empty: none is near.
  [[nodiscard]] std::string nearest_key(std::string_view name) const;
  [[nodiscard]] std::string nearest_section(std::string_view name) const;
  /// Sets one key from a source; a problem is recorded as "where: key: text". Two values from one source are a problem.
  void set(std::string_view written_name, const RawValue& raw, KeySource source, const std::string& where);
  void set_text(std::string_view written_name, std::string_view text, KeySource source, const std::string& where);
  void problem(const std::string& where, const std::string& text) { problems_.push_back(where + ": " + text); }
  void unknown(std::string_view written_name, const std::string& where, std::string_view spelled);

  [[nodiscard]] std::deque<Key>& keys() noexcept { return keys_; }
  [[nodiscard]] const std::deque<Key>& keys() const noexcept { return keys_; }
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& sections() const noexcept { return sections_; }
  /// "run.toml:3:1: …" for every value that a run must refuse because nothing acts on it yet, but for the keys `except`.
  [[nodiscard]] std::vector<std::string> refusals(const std::vector<std::string>& except = {});
  [[nodiscard]] const std::vector<std::string>& problems() const noexcept { return problems_; }
  /// What the user should know though it is no error: a key that has no effect, and why.
  [[nodiscard]] const std::vector<std::string>& notes() const noexcept { return notes_; }

 private:
  Key& held(std::string_view name, HeldValue initial, KeyState state, std::string doc, std::string why);
  bool claim(Key& key, std::string_view written_name, KeySource source, const std::string& where);
  void record(Key& key, std::string_view written_name, const std::string& wrong, KeySource source, const std::string& where);
  std::deque<Key> keys_;
  std::vector<std::pair<std::string, std::string>> sections_;
  std::map<std::string, Key*, std::less<>> by_name_;
  std::string current_;
  HeldValues own_;
  HeldValues* held_ = &own_;
  std::vector<std::string> problems_, notes_;
};

/// Reads `--section.key value`, `--section.key=value`, `--section.flag`, `--section.no_flag`, `--section.flag=false`; '-' for '_' in names.
/// Problems are recorded in the schema, as is every argument that is none of these.
void apply_command_line(Schema& schema, std::span<const std::string> arguments);

/// Text as a TOML basic string, with its quotes.
[[nodiscard]] std::string toml_quote(std::string_view text);

}  // namespace troupe
