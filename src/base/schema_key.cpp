#include <algorithm>
#include <array>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

#include "src/base/schema.hpp"

namespace troupe {
namespace {

template <class T>
struct Unwrapped {
  using Type = T;
  static constexpr bool optional = false;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using Type = T;
  static constexpr bool optional = true;
};
template <class T>
struct Listed {
  using Type = T;
  static constexpr bool list = false;
};
template <class T>
struct Listed<std::vector<T>> {
  using Type = T;
  static constexpr bool list = true;
};

template <class T>
constexpr const char* scalar_name() {
  if constexpr (std::is_same_v<T, bool>)
    return "boolean";
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return "integer";
  else if constexpr (std::is_same_v<T, double>)
    return "number";
  else
    return "string";
}

std::string with_article(const std::string& noun) { return (noun == "integer" ? "an " : "a ") + noun; }

std::string number_text(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;  // shortest text that reads back exactly
  return {text.data(), end};
}

/// As people write it: a whole number by its digits.
std::string plain_text(double value) {
  constexpr double exact = 1e15;
  return value == std::trunc(value) && std::abs(value) < exact ? std::to_string(static_cast<std::int64_t>(value)) : number_text(value);
}

std::string toml_text(bool value) { return value ? "true" : "false"; }
std::string toml_text(std::int64_t value) { return std::to_string(value); }
std::string toml_text(double value) {
  std::string text = number_text(value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";  // "1" would read back as an integer
  return text;
}
std::string toml_text(const std::string& value) { return toml_quote(value); }
template <class T>
std::string toml_text(const std::optional<T>& value) {
  return value ? toml_text(*value) : "";
}
template <class T>
std::string toml_text(const std::vector<T>& values) {
  std::string text = "[";
  for (const auto& value : values) text += (text.size() > 1 ? ", " : "") + toml_text(value);
  return text + "]";
}

template <class T>
std::optional<T> parse(std::string_view text) {
  T value{};
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

/// The text as a value of type T where it is one, else as a string, so that the type error names what was written.
template <class T>
RawValue raw_scalar(std::string_view text) {
  if constexpr (std::is_same_v<T, bool>) {
    if (text == "true" || text == "True") return {true};
    if (text == "false" || text == "False") return {false};
  } else if constexpr (!std::is_same_v<T, std::string>) {
    if (const auto value = parse<T>(text)) return {*value};
  }
  return {std::string(text)};
}

template <class T>
RawValue raw_list(std::string_view text) {
  std::vector<RawValue> items;
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const auto comma = text.find(',');
    auto item = text.substr(0, comma);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    if (item.size() >= 2 && item.front() == '"' && item.back() == '"') item = item.substr(1, item.size() - 2);
    items.push_back(raw_scalar<T>(item));
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return {std::move(items)};
}

}  // namespace

std::string toml_quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += std::string{'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      constexpr std::string_view digits = "0123456789abcdef";
      const auto code = static_cast<unsigned char>(c);
      out += std::string("\\u00") + digits[code >> 4U] + digits[code & 15U];
    } else
      out += c;
  }
  return out + "\"";
}

std::string RawValue::describe() const {
  struct Visitor {
    std::string operator()(bool v) const { return v ? "the boolean true" : "the boolean false"; }
    std::string operator()(std::int64_t v) const { return "the integer " + std::to_string(v); }
    std::string operator()(double v) const { return "the number " + toml_text(v); }
    std::string operator()(const std::string& v) const { return "the string " + toml_quote(v); }
    std::string operator()(const std::vector<RawValue>& v) const { return "a list of " + std::to_string(v.size()); }
    std::string operator()(const Other& v) const { return v.type; }
  };
  return std::visit(Visitor{}, value);
}

Key& Key::at_least(double low) {
  low_ = low;
  low_open_ = false;
  return *this;
}
Key& Key::at_most(double high) {
  high_ = high;
  high_open_ = false;
  return *this;
}
Key& Key::above(double low) {
  low_ = low;
  low_open_ = true;
  return *this;
}
Key& Key::below(double high) {
  high_ = high;
  high_open_ = true;
  return *this;
}
Key& Key::not_zero() {
  not_zero_ = true;
  return *this;
}
Key& Key::one_of(std::vector<std::string> values, std::string otherwise) {
  choices_ = std::move(values);
  otherwise_ = std::move(otherwise);
  return *this;
}
Key& Key::only(bool value, std::string otherwise) {
  only_ = value;
  otherwise_ = std::move(otherwise);
  return *this;
}
Key& Key::alias(std::string full_name) {
  aliases.push_back(std::move(full_name));
  return *this;
}
Key& Key::or_single() {
  single_ = true;
  return *this;
}
Key& Key::built_only(std::vector<std::string> values, std::string missing) {
  built_ = std::move(values);
  why = std::move(missing);
  return *this;
}
Key& Key::neutral(std::string toml_value) {
  neutral_ = std::move(toml_value);
  return *this;
}
Key& Key::part_of(std::string switch_key) {
  switch_ = std::move(switch_key);
  return *this;
}
Key& Key::apart() {
  apart_ = true;
  return *this;
}

std::string Key::limits() const {
  std::string text;
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  if (low_) add((low_open_ ? "above " : "at least ") + plain_text(*low_));
  if (high_) add((high_open_ ? "below " : "at most ") + plain_text(*high_));
  if (not_zero_) add("not 0");
  if (only_) add(*only_ ? "true" : "false");
  std::string choices;
  for (const auto& choice : choices_) choices += (choices.empty() ? "" : " | ") + choice;
  if (!choices.empty()) add(choices);
  return text;
}

std::string Key::check_number(double value) const {
  const bool fits = std::isfinite(value) && (!low_ || value > *low_ || (!low_open_ && value == *low_)) &&
                    (!high_ || value < *high_ || (!high_open_ && value == *high_)) && (!not_zero_ || value != 0);
  if (fits) return {};
  const std::string wanted = limits();
  return "expected " + (wanted.empty() ? std::string("a finite number") : "a value " + wanted) + ", found " + plain_text(value);
}

std::string Key::check_text(const std::string& value) const {
  if (value.find('\0') != std::string::npos) return "expected text without NUL characters, which end it where files and variables are named";
  if (choices_.empty()) return {};
  for (const auto& choice : choices_) {
    if (choice == value) return {};
  }
  return "expected " + limits() + ", found " + toml_quote(value) + (otherwise_.empty() ? "" : ": " + otherwise_);
}

namespace {

/// Steps compute in fp32: what it does not hold would be an infinity or a zero there.
std::string check_fp32(double value) {
  const double size = std::abs(value);
  if (size == 0 || (size >= static_cast<double>(FLT_MIN) && size <= static_cast<double>(FLT_MAX))) return {};
  return "expected a number that 32-bit floats hold, 0 or of a size from 1.2e-38 to 3.4e38, found " + number_text(value);
}

}  // namespace

template <class T>
std::string Key::read(const RawValue& raw, T& out) const {
  if constexpr (Listed<T>::list) {
    const auto* items = std::get_if<std::vector<RawValue>>(&raw.value);
    if (items == nullptr && !single_) return "expected a " + type() + ", found " + raw.describe();
    T values;
    const std::vector<RawValue> one{raw};
    for (const auto& item : items != nullptr ? *items : one) {
      typename Listed<T>::Type value{};
      if (auto wrong = read(item, value); !wrong.empty()) return wrong;
      values.push_back(std::move(value));
    }
    out = std::move(values);
  } else if constexpr (std::is_same_v<T, double>) {
    if (const auto* whole = std::get_if<std::int64_t>(&raw.value))
      out = static_cast<double>(*whole);
    else if (const auto* number = std::get_if<double>(&raw.value))
      out = *number;
    else
      return "expected a number, found " + raw.describe();
    const std::string wrong = check_number(out);
    return wrong.empty() ? check_fp32(out) : wrong;
  } else {
    const auto* value = std::get_if<T>(&raw.value);
    if (value == nullptr) return "expected " + with_article(scalar_name<T>()) + ", found " + raw.describe();
    out = *value;
    if constexpr (std::is_same_v<T, std::int64_t>) return check_number(static_cast<double>(out));
    if constexpr (std::is_same_v<T, std::string>) return check_text(out);
    if constexpr (std::is_same_v<T, bool>) return only_ && out != *only_ ? std::string(out ? "true: " : "false: ") + otherwise_ : "";
  }
  return {};
}

std::string Key::assign(const RawValue& raw) {
  return std::visit(
      [&](auto member) -> std::string {
        if constexpr (std::is_same_v<decltype(member), std::monostate>) {
          return {};
        } else {
          using Member = std::remove_pointer_t<decltype(member)>;
          typename Unwrapped<Member>::Type value{};
          if (auto wrong = read(raw, value); !wrong.empty()) return wrong;
          *member = std::move(value);
          return {};
        }
      },
      target);
}

std::string Key::assign_text(std::string_view text) {
  return std::visit(
      [&](auto member) -> std::string {
        if constexpr (std::is_same_v<decltype(member), std::monostate>) {
          return {};
        } else {
          using Member = std::remove_pointer_t<decltype(member)>;
          using Value = typename Unwrapped<Member>::Type;
          if constexpr (Unwrapped<Member>::optional) {
            if (text == "none" || text == "None") {
              member->reset();
              return {};
            }
          }
          if constexpr (Listed<Value>::list)
            return assign(raw_list<typename Listed<Value>::Type>(text));
          else
            return assign(raw_scalar<Value>(text));
        }
      },
      target);
}

std::string Key::toml() const {
  return std::visit(
      [](auto member) -> std::string {
        if constexpr (std::is_same_v<decltype(member), std::monostate>)
          return {};
        else
          return toml_text(*member);
      },
      target);
}

std::string HeldValue::toml() const {
  return std::visit([](const auto& held) { return toml_text(held); }, value);
}

bool Key::built_value() const {
  if (built_.empty()) return true;
  const auto known = [&](const std::string& text) { return std::find(built_.begin(), built_.end(), text) != built_.end(); };
  return std::visit(
      [&](auto member) {
        using Member = std::remove_pointer_t<decltype(member)>;
        if constexpr (std::is_same_v<Member, std::string>)
          return known(*member);
        else if constexpr (std::is_same_v<Member, std::optional<std::string>>)
          return !*member || known(**member);
        else if constexpr (std::is_same_v<Member, std::vector<std::string>>)
          return std::all_of(member->begin(), member->end(), known);
        else
          return known(toml());
      },
      target);
}

std::string Key::built_values() const {
  std::string values;
  for (const auto& text : built_) values += (values.empty() ? "" : " | ") + text;
  return values;
}

std::string Key::refusal() const {
  const std::string value = toml();
  if (state == KeyState::not_built) {
    if (value == neutral_) return {};
    return name + " = " + (value.empty() ? "none" : value) + " is not built yet: " + why + "; leave it out" + (neutral_.empty() ? "" : ", or set " + neutral_);
  }
  if (state != KeyState::built || built_value()) return {};
  return name + " = " + value + " is not built yet: " + why + "; built: " + built_values();
}

std::string Key::type() const {
  return std::visit(
      [](auto member) -> std::string {
        if constexpr (std::is_same_v<decltype(member), std::monostate>) {
          return "any";
        } else {
          using Value = typename Unwrapped<std::remove_pointer_t<decltype(member)>>::Type;
          if constexpr (Listed<Value>::list)
            return std::string("list of ") + scalar_name<typename Listed<Value>::Type>() + "s";
          else
            return scalar_name<Value>();
        }
      },
      target);
}

bool Key::boolean() const noexcept { return std::holds_alternative<bool*>(target) || std::holds_alternative<std::optional<bool>*>(target); }

}  // namespace troupe
