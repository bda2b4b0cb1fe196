#include "src/data/record.hpp"

#include <cstring>
#include <stdexcept>

namespace troupe {
namespace {

void put(std::string& out, std::string_view text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out.append(text);
}

std::string take(std::string_view& rest) {
  std::uint32_t size = 0;
  if (rest.size() < sizeof size) throw std::runtime_error("a packed record is cut off");
  std::memcpy(&size, rest.data(), sizeof size);
  rest.remove_prefix(sizeof size);
  if (rest.size() < size) throw std::runtime_error("a packed record is cut off");
  std::string text(rest.substr(0, size));
  rest.remove_prefix(size);
  return text;
}

}  // namespace

std::string pack_turns(const std::vector<Turn>& turns) {
  std::string packed;
  for (const Turn& turn : turns) {
    put(packed, turn.role);
    put(packed, turn.content);
  }
  return packed;
}

std::vector<Turn> unpack_turns(std::string_view packed) {
  std::vector<Turn> turns;
  while (!packed.empty()) {
    std::string role = take(packed);
    turns.push_back({std::move(role), take(packed)});
  }
  return turns;
}

}  // namespace troupe
