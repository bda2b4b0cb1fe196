#include "tools/worker/hostlist.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace troupe {
namespace {

constexpr std::size_t most_hosts = 1U << 20U;

Error malformed(std::string_view list, std::string_view what) { return Error{fmt::format("node list \"{}\": {}", list, what)}; }

bool all_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// "3", "001-003" or a word → its members.
Result<std::vector<std::string>> expand_range(std::string_view list, std::string_view range) {
  const auto dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  if (!all_digits(first)) return malformed(list, fmt::format("\"{}\" in brackets is no number or range", range));
  if (dash == std::string_view::npos) return std::vector<std::string>{std::string{first}};
  const std::string_view last = range.substr(dash + 1);
  std::uint64_t from = 0, to = 0;
  const bool read = all_digits(last) && std::from_chars(first.data(), first.data() + first.size(), from).ec == std::errc{} &&
                    std::from_chars(last.data(), last.data() + last.size(), to).ec == std::errc{};
  if (!read || to < from || to - from >= most_hosts) return malformed(list, fmt::format("\"{}\" in brackets is no rising range", range));
  std::vector<std::string> members;
  for (std::uint64_t number = from; number <= to; ++number) members.push_back(fmt::format("{:0{}}", number, first.size()));
  return members;
}

/// The inside of brackets: "1,3-5".
Result<std::vector<std::string>> expand_brackets(std::string_view list, std::string_view inside) {
  std::vector<std::string> members;
  while (true) {
    const auto comma = inside.find(',');
    auto range = expand_range(list, inside.substr(0, comma));
    if (!range) return range;
    members.insert(members.end(), range->begin(), range->end());
    if (comma == std::string_view::npos) return members;
    inside.remove_prefix(comma + 1);
  }
}

/// One item of the list: literal text and brackets in turn; the rightmost bracket counts fastest.
Result<std::vector<std::string>> expand_item(std::string_view list, std::string_view item) {
  std::vector<std::string> names{""};
  while (!item.empty()) {
    const auto open = item.find('[');
    for (std::string& name : names) name += item.substr(0, open);
    if (open == std::string_view::npos) break;
    const auto close = item.find(']', open);
    if (close == std::string_view::npos) return malformed(list, "a bracket is not closed");
    auto members = expand_brackets(list, item.substr(open + 1, close - open - 1));
    if (!members) return members;
    if (names.size() * members->size() > most_hosts) return malformed(list, "more than 1048576 hosts");
    std::vector<std::string> longer;
    for (const std::string& name : names)
      for (const std::string& member : *members) longer.push_back(name + member);
    names = std::move(longer);
    item.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view list) {
  std::vector<std::string> hosts;
  std::size_t start = 0;
  int depth = 0;
  for (std::size_t at = 0; at <= list.size(); ++at) {
    const char c = at < list.size() ? list[at] : ',';
    if (c == '[' && ++depth > 1) return malformed(list, "brackets do not nest");
    if (c == ']' && --depth < 0) return malformed(list, "a bracket closes that was not opened");
    if (at == list.size() && depth != 0) return malformed(list, "a bracket is not closed");
    if (c != ',' || depth != 0) continue;
    const std::string_view item = list.substr(start, at - start);
    if (item.empty()) return malformed(list, list.empty() ? "it is empty" : "an empty name");
    auto names = expand_item(list, item);
    if (!names) return names;
    hosts.insert(hosts.end(), names->begin(), names->end());
    start = at + 1;
  }
  return hosts;
}

}  // namespace troupe
