#include "src/faults/fault_rule.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <vector>

namespace troupe {
namespace {

constexpr std::array<std::string_view, 5> site_names{"letter", "collective", "lane", "storage", "process"};
constexpr std::array<std::string_view, 11> action_names{"none", "drop", "delay", "duplicate", "corrupt", "reorder", "fail", "stall", "crash", "torn", "full"};
constexpr std::string_view keys = "site, action, kind, rank, epoch, step, micro, unit, probability, times, for";

using enum FaultAction;
std::span<const FaultAction> actions_of(FaultSite site) noexcept {
  static constexpr std::array letter{drop, delay, duplicate, corrupt, reorder, crash};
  static constexpr std::array collective{delay, fail, stall, crash};
  static constexpr std::array lane{delay, fail, stall, crash};
  static constexpr std::array storage{delay, fail, stall, corrupt, torn, full, crash};
  static constexpr std::array process{stall, crash};
  switch (site) {
    case FaultSite::letter: return letter;
    case FaultSite::collective: return collective;
    case FaultSite::lane: return lane;
    case FaultSite::storage: return storage;
    case FaultSite::process: return process;
  }
  return {};
}

struct Word {
  std::string_view key;
  std::string value;
  std::size_t position;  ///< of its first letter, from 1
};

Error at(const Word& word, const std::string& what) {
  return {"fault rule, position " + std::to_string(word.position) + ", " + std::string(word.key) + "=" + word.value + ": " + what};
}

/// Words of the form key=value, the value perhaps in double quotes.
Result<std::vector<Word>> split(std::string_view text) {
  std::vector<Word> words;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == ' ' || text[i] == '\t' || text[i] == ',') {
      ++i;
      continue;
    }
    const std::size_t equals = text.find('=', i), space = text.find_first_of(" \t,", i);
    if (equals == std::string_view::npos || space < equals)
      return Error{"fault rule, position " + std::to_string(i + 1) + ": '" + std::string(text.substr(i, space - i)) +
                   "' is not of the form key=value; keys are " + std::string(keys)};
    Word word{text.substr(i, equals - i), {}, i + 1};
    std::size_t end = equals + 1;
    if (end < text.size() && text[end] == '"') {
      const std::size_t close = text.find('"', end + 1);
      if (close == std::string_view::npos) return Error{"fault rule, position " + std::to_string(end + 1) + ": the quote is not closed"};
      word.value = text.substr(end + 1, close - end - 1);
      end = close + 1;
    } else {
      end = std::min(text.find_first_of(" \t,", end), text.size());
      word.value = text.substr(equals + 1, end - equals - 1);
    }
    words.push_back(std::move(word));
    i = end;
  }
  return words;
}

template <class Number>
Result<Number> number(const Word& word, const char* what) {
  Number value{};
  const char* const end = word.value.data() + word.value.size();
  const auto [stop, problem] = std::from_chars(word.value.data(), end, value);
  if (problem != std::errc{} || stop != end || word.value.empty()) return at(word, std::string("expected ") + what);
  return value;
}

template <class IdType>
Result<void> read_id(const Word& word, std::optional<IdType>& id) {
  const auto value = number<typename IdType::Value>(word, "a number of zero or more");
  if (!value) return value.error();
  id = IdType{*value};
  return {};
}

Result<Nanos> duration(const Word& word) {
  double count = 0;
  const char* const end = word.value.data() + word.value.size();
  const auto [stop, problem] = std::from_chars(word.value.data(), end, count);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  const double nanos = unit == "ns" ? 1 : unit == "us" ? 1e3 : unit == "ms" ? 1e6 : unit == "s" ? 1e9 : unit == "m" ? 60e9 : 0;
  if (problem != std::errc{} || nanos == 0 || !(count >= 0) || count * nanos > 9e18)
    return at(word, "expected a time such as 250ms, 2s or 1.5m (units ns, us, ms, s, m)");
  return Nanos{static_cast<std::int64_t>(count * nanos)};
}

template <class Enum, std::size_t n>
Result<Enum> choice(const Word& word, const std::array<std::string_view, n>& names) {
  std::string all;
  for (std::size_t i = 0; i < n; ++i) {
    if (names[i] == word.value) return static_cast<Enum>(i);
    all += (i == 0 ? "" : ", ") + std::string(names[i]);
  }
  return at(word, "expected one of " + all);
}

template <class T, class U>
Result<void> store(Result<T> value, U& to) {
  if (!value) return value.error();
  to = *value;
  return {};
}

Result<void> apply(const Word& word, FaultRule& rule) {
  if (word.key == "site") return store(choice<FaultSite>(word, site_names), rule.site);
  if (word.key == "action") return store(choice<FaultAction>(word, action_names), rule.action);
  if (word.key == "kind") return store(Result<std::string>(word.value), rule.kind);
  if (word.key == "rank") return read_id(word, rule.rank);
  if (word.key == "epoch") return read_id(word, rule.epoch);
  if (word.key == "step") return read_id(word, rule.step);
  if (word.key == "micro") return read_id(word, rule.micro);
  if (word.key == "unit") return read_id(word, rule.unit);
  if (word.key == "for") return store(duration(word), rule.duration);
  if (word.key == "times") {
    if (word.value == "always") return store(Result<std::uint64_t>(0), rule.times);
    if (word.value == "0") return at(word, "expected a count of one or more, or always");
    return store(number<std::uint64_t>(word, "a count of one or more, or always"), rule.times);
  }
  if (word.key == "probability") {
    const auto stored = store(number<double>(word, "a number from 0 to 1"), rule.probability);
    if (stored && !(rule.probability >= 0 && rule.probability <= 1)) return at(word, "expected a number from 0 to 1");
    return stored;
  }
  return at(word, "unknown key; keys are " + std::string(keys));
}

std::string time_text(Nanos time) {
  if (time.count() % 1'000'000'000 == 0) return std::to_string(time.count() / 1'000'000'000) + "s";
  if (time.count() % 1'000'000 == 0) return std::to_string(time.count() / 1'000'000) + "ms";
  return std::to_string(time.count()) + "ns";
}

}  // namespace

std::string_view name_of(FaultSite site) noexcept { return site_names[static_cast<std::size_t>(site)]; }
std::string_view name_of(FaultAction action) noexcept { return action_names[static_cast<std::size_t>(action)]; }

Result<FaultRule> parse_fault_rule(std::string_view text) {
  const auto words = split(text);
  if (!words) return words.error();
  FaultRule rule;
  bool has_site = false;
  for (const auto& word : *words) {
    if (const auto applied = apply(word, rule); !applied) return applied.error();
    has_site = has_site || word.key == "site";
  }
  if (!has_site) return Error{"fault rule '" + std::string(text) + "' names no site; add site=letter, collective, lane, storage or process"};
  std::string possible;
  for (const FaultAction action : actions_of(rule.site)) {
    if (action == rule.action) return rule;
    possible += (possible.empty() ? "" : ", ") + std::string(name_of(action));
  }
  return Error{"fault rule '" + std::string(text) + "': a " + std::string(name_of(rule.site)) + " can " + possible +
               "; found action=" + std::string(name_of(rule.action))};
}

std::string to_string(const FaultRule& rule) {
  std::string text = "site=" + std::string(name_of(rule.site));
  const auto add = [&](const char* key, const auto& id) {
    if (id) text += std::string(" ") + key + "=" + std::to_string(id->value());
  };
  if (!rule.kind.empty()) text += " kind=\"" + rule.kind + "\"";
  add("rank", rule.rank);
  add("epoch", rule.epoch);
  add("step", rule.step);
  add("micro", rule.micro);
  add("unit", rule.unit);
  if (rule.probability != 1.0) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), rule.probability).ptr;
    text += " probability=" + std::string(digits.data(), end);
  }
  if (rule.times != 1) text += " times=" + (rule.times == 0 ? "always" : std::to_string(rule.times));
  text += " action=" + std::string(name_of(rule.action));
  if (rule.duration > Nanos{0}) text += " for=" + time_text(rule.duration);
  return text;
}

}  // namespace troupe
