#include "src/base/schema.hpp"

#include <algorithm>
#include <stdexcept>

#include "src/base/edit_distance.hpp"

namespace troupe {
namespace {

std::string canonical(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

std::string_view leaf_of(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

std::string_view name_of(KeyClass key_class) noexcept {
  switch (key_class) {
    case KeyClass::live: return "live";
    case KeyClass::epoch: return "epoch";
    case KeyClass::frozen: return "frozen";
  }
  return "?";
}

std::string_view name_of(KeySource source) noexcept {
  switch (source) {
    case KeySource::builtin: return "default";
    case KeySource::file: return "file";
    case KeySource::command_line: return "command line";
  }
  return "?";
}

std::string_view name_of(KeyState state) noexcept {
  switch (state) {
    case KeyState::built: return "built";
    case KeyState::not_built: return "not built yet";
    case KeyState::without_effect: return "without effect here";
  }
  return "?";
}

void Schema::section(std::string name, std::string doc) {
  current_ = std::move(name);
  const auto known = std::find_if(sections_.begin(), sections_.end(), [&](const auto& s) { return s.first == current_; });
  if (known == sections_.end()) sections_.emplace_back(current_, std::move(doc));
}

Key& Schema::key(std::string_view name, KeyTarget member, KeyClass key_class, std::string doc) {
  Key& key = keys_.emplace_back();
  key.name = current_ + "." + std::string(name);
  key.target = member;
  key.key_class = key_class;
  key.doc = std::move(doc);
  key.initial = key.toml();
  if (!by_name_.emplace(key.name, &key).second) throw std::logic_error("configuration key declared twice: " + key.name);
  return key;
}

Key& Schema::ignored(std::string_view name, std::string why) {
  Key& made = key(name, std::monostate{}, KeyClass::live, why);
  made.state = KeyState::without_effect;
  made.why = std::move(why);
  return made;
}

Key& Schema::held(std::string_view name, HeldValue initial, KeyState state, std::string doc, std::string why) {
  const std::string text = initial.toml();
  auto& slot = held_->try_emplace(current_ + "." + std::string(name), std::move(initial)).first->second;
  Key& made = std::visit([&](auto& member) -> Key& { return key(name, &member, KeyClass::frozen, std::move(doc)); }, slot.value);
  made.initial = made.neutral_ = text;
  made.state = state;
  made.why = std::move(why);
  return made;
}

Key& Schema::ignored(std::string_view name, HeldValue initial, std::string why) { return held(name, std::move(initial), KeyState::without_effect, why, why); }

Key& Schema::not_built(std::string_view name, HeldValue initial, std::string doc, std::string missing) {
  return held(name, std::move(initial), KeyState::not_built, std::move(doc), std::move(missing));
}

Key* Schema::find(std::string_view name) {
  const std::string wanted = canonical(name);
  if (const auto found = by_name_.find(wanted); found != by_name_.end()) return found->second;
  for (auto& key : keys_) {
    if (std::find(key.aliases.begin(), key.aliases.end(), wanted) != key.aliases.end()) return &key;
  }
  return nullptr;
}

bool Schema::is_section(std::string_view name) const {
  const std::string prefix = canonical(name) + ".";
  const auto below = [&](const std::string& full) { return full.starts_with(prefix); };
  return std::any_of(keys_.begin(), keys_.end(), [&](const Key& key) { return below(key.name) || std::any_of(key.aliases.begin(), key.aliases.end(), below); });
}

std::string Schema::nearest_key(std::string_view name) const {
  const std::string wanted = canonical(name);
  std::string best;
  std::size_t least = std::max<std::size_t>(2, wanted.size() / 4) + 1;
  const auto consider = [&](const std::string& candidate, const std::string& answer) {
    // The same word in another section is the likeliest slip.
    const std::size_t distance = leaf_of(candidate) == leaf_of(wanted) ? 1 : edit_distance(wanted, candidate);
    if (distance < least) {
      least = distance;
      best = answer;
    }
  };
  for (const auto& key : keys_) {
    consider(key.name, key.name);
    for (const auto& alias : key.aliases) consider(alias, key.name);
  }
  return best;
}

std::string Schema::nearest_section(std::string_view name) const {
  std::string best;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const auto& [section, doc] : sections_) {
    const std::size_t distance = edit_distance(canonical(name), section);
    if (distance < least) {
      least = distance;
      best = section;
    }
  }
  return best;
}

void Schema::unknown(std::string_view written_name, const std::string& where, std::string_view spelled) {
  const std::string name = canonical(written_name);
  const std::string parent = name.substr(0, name.rfind('.'));
  if (name.find('.') != std::string::npos && is_section(parent)) {
    const std::string near = nearest_key(name);
    problem(where,
            "unknown key '" + std::string(spelled) + "'" + (near.empty() ? "; `troupe config --help` lists all keys" : "; did you mean '" + near + "'?"));
    return;
  }
  const std::string section = name.find('.') == std::string::npos ? name : parent;
  const std::string near = nearest_section(section);
  problem(where, "unknown section '" + section + "' (in '" + std::string(spelled) + "')" +
                     (near.empty() ? "; `troupe config --help` lists all sections" : "; did you mean '" + near + "'?"));
}

std::vector<std::string> Schema::refusals(const std::vector<std::string>& except) {
  std::vector<std::string> lines;
  for (const Key& key : keys_) {
    std::string refused = key.refusal();
    if (refused.empty() || std::find(except.begin(), except.end(), key.name) != except.end()) continue;
    if (!key.switch_key().empty()) {
      const Key* part_of = find(key.switch_key());
      if (part_of == nullptr) throw std::logic_error(key.name + " is part of an unknown key: " + key.switch_key());
      if (part_of->state != KeyState::built || !part_of->built_value() || part_of->toml() == part_of->initial) continue;
    }
    lines.push_back((key.where.empty() ? "default" : key.where) + ": " + std::move(refused));
  }
  return lines;
}

bool Schema::claim(Key& key, std::string_view written_name, KeySource source, const std::string& where) {
  if (key.source != source || source == KeySource::builtin) return true;
  problem(where, std::string(written_name) + ": '" + key.name + "' was already set at " + key.where + "; keep one of the two");
  return false;
}

void Schema::record(Key& key, std::string_view written_name, const std::string& wrong, KeySource source, const std::string& where) {
  if (!wrong.empty()) {
    problem(where, std::string(written_name) + ": " + wrong);
  } else if (key.state == KeyState::without_effect) {
    notes_.push_back(where + ": " + std::string(written_name) + " has no effect: " + key.why);
  }
  key.source = source;
  key.where = where;
}

void Schema::set(std::string_view written_name, const RawValue& raw, KeySource source, const std::string& where) {
  Key* key = find(written_name);
  if (key == nullptr) return unknown(written_name, where, written_name);
  if (claim(*key, written_name, source, where)) record(*key, written_name, key->assign(raw), source, where);
}

void Schema::set_text(std::string_view written_name, std::string_view text, KeySource source, const std::string& where) {
  Key* key = find(written_name);
  if (key == nullptr) return unknown(written_name, where, written_name);
  if (claim(*key, written_name, source, where)) record(*key, written_name, key->assign_text(text), source, where);
}

}  // namespace troupe
