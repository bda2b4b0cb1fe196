#include "src/checkpoint/pickle.hpp"

#include <bit>
#include <optional>
#include <unordered_map>

namespace troupe {
namespace {

constexpr std::size_t most_values = std::size_t{1} << 26U;
constexpr std::string_view not_a_value = "is taken where there is none";

}  // namespace

/// The stack machine, without the machine's power: REDUCE and NEWOBJ only note what would have been called.
class Pickle::Reader {
 public:
  Reader(Pickle& pickle, std::span<const std::byte> bytes, std::string file, const std::function<bool(std::string_view)>& allowed)
      : pickle_(pickle), bytes_(bytes), file_(std::move(file)), allowed_(allowed) {}

  Result<void> run() {
    while (!problem_ && !done_) {
      begin_ = at_;
      const std::uint64_t code = number(1);
      if (!problem_ && !step(static_cast<char>(code))) fail("opcode 0x" + hex(code) + " is none that plain data needs: refused");
    }
    if (problem_) return *problem_;
    return {};
  }

 private:
  using Kind = PickleValue::Kind;

  bool step(char code) { return atom(code) || collection(code) || memo(code) || object(code); }

  bool atom(char code) {
    switch (code) {
      case '\x80':
        if (const std::uint64_t protocol = number(1); protocol > 5) fail("protocol " + std::to_string(protocol) + " is unknown");
        return true;
      case '\x95': (void)number(8); return true;  // length of a frame: a hint
      case '.': return stop();
      case 'N': return push({});
      case '\x88': return push({.kind = Kind::boolean, .integer = 1, .text = {}, .items = {}});
      case '\x89': return push({.kind = Kind::boolean, .text = {}, .items = {}});
      case 'K': return integer(static_cast<std::int64_t>(number(1)));
      case 'M': return integer(static_cast<std::int64_t>(number(2)));
      case 'J': return integer(static_cast<std::int32_t>(number(4)));
      case '\x8a': return long_integer();
      case 'G': return real();
      case 'X': return text(Kind::text, number(4));
      case '\x8c': return text(Kind::text, number(1));
      case '\x8d': return text(Kind::text, number(8));
      case 'B': return text(Kind::bytes, number(4));
      case 'C': return text(Kind::bytes, number(1));
      case '\x8e': return text(Kind::bytes, number(8));
      default: return false;
    }
  }
  bool collection(char code) {
    switch (code) {
      case '(': marks_.push_back(stack_.size()); return true;
      case ')': return push({.kind = Kind::tuple, .text = {}, .items = {}});
      case ']': return push({.kind = Kind::list, .text = {}, .items = {}});
      case '}': return push({.kind = Kind::dict, .text = {}, .items = {}});
      case 't': return push({.kind = Kind::tuple, .text = {}, .items = take_marked()});
      case '\x85': return push({.kind = Kind::tuple, .text = {}, .items = take(1)});
      case '\x86': return push({.kind = Kind::tuple, .text = {}, .items = take(2)});
      case '\x87': return push({.kind = Kind::tuple, .text = {}, .items = take(3)});
      case 'a': return extend(Kind::list, take(1));
      case 'e': return extend(Kind::list, take_marked());
      case 's': return extend(Kind::dict, take(2));
      case 'u': return extend(Kind::dict, take_marked());
      default: return false;
    }
  }
  bool memo(char code) {
    switch (code) {
      case 'q': return keep(number(1));
      case 'r': return keep(number(4));
      case '\x94': return keep(memo_.size());
      case 'h': return recall(number(1));
      case 'j': return recall(number(4));
      default: return false;
    }
  }
  bool object(char code) {
    switch (code) {
      case 'c': return global_lines();
      case '\x93': return global(take(2));
      case 'R':
      case '\x81': return call(take(2));
      case 'b': return build(take(1));
      case 'Q': return push({.kind = Kind::persistent, .text = {}, .items = take(1)});
      default: return false;
    }
  }

  bool stop() {
    const auto top = take(1);
    if (!problem_) pickle_.root_ = top.front();
    done_ = true;
    return true;
  }
  bool push(PickleValue value) {
    if (problem_) return true;
    if (pickle_.values_.size() >= most_values) return fail("has too many values");
    stack_.push_back(static_cast<PickleIndex>(pickle_.values_.size()));
    pickle_.values_.push_back(std::move(value));
    return true;
  }
  bool integer(std::int64_t value) { return push({.kind = Kind::integer, .integer = value, .text = {}, .items = {}}); }
  bool long_integer() {
    const std::uint64_t size = number(1);
    if (problem_ || size > 8) return problem_ ? true : fail("an integer of " + std::to_string(size) + " bytes is too large");
    std::uint64_t value = number(size);
    if (size > 0 && size < 8 && (value >> (8 * size - 1) & 1U) != 0) value |= ~std::uint64_t{0} << (8 * size);  // the sign
    return integer(static_cast<std::int64_t>(value));
  }
  bool real() {
    std::uint64_t bits = 0;  // big-endian, alone of all
    for (int i = 0; i < 8; ++i) bits = bits << 8U | number(1);
    return push({.kind = Kind::real, .real = std::bit_cast<double>(bits), .text = {}, .items = {}});
  }
  bool text(Kind kind, std::uint64_t size) {
    if (problem_) return true;
    if (size > bytes_.size() - at_) return fail("a text of " + std::to_string(size) + " bytes goes beyond the end");
    PickleValue value{.kind = kind, .text = std::string(reinterpret_cast<const char*>(bytes_.data() + at_), size), .items = {}};
    at_ += size;
    return push(std::move(value));
  }
  bool extend(Kind kind, const std::vector<PickleIndex>& items) {
    if (problem_) return true;
    PickleValue* const to = top();
    if (to == nullptr || to->kind != kind || (kind == Kind::dict && items.size() % 2 != 0)) return fail("adds items to what takes none");
    to->items.insert(to->items.end(), items.begin(), items.end());
    return true;
  }
  bool keep(std::uint64_t number) {
    if (problem_) return true;
    if (top() == nullptr) return fail(std::string("a value ") + std::string(not_a_value));
    memo_[number] = stack_.back();
    return true;
  }
  bool recall(std::uint64_t number) {
    if (problem_) return true;
    const auto found = memo_.find(number);
    if (found == memo_.end()) return fail("refers to value " + std::to_string(number) + ", which was never kept");
    stack_.push_back(found->second);
    return true;
  }
  bool global_lines() {
    std::string name;
    for (int lines = 0; lines < 2 && !problem_;) {
      const char c = static_cast<char>(number(1));
      if (c == '\n' && ++lines == 2) break;
      name += c == '\n' ? ' ' : c;
    }
    return known_global(std::move(name));
  }
  bool global(const std::vector<PickleIndex>& parts) {
    if (problem_) return true;
    const PickleValue &module = pickle_.at(parts[0]), &name = pickle_.at(parts[1]);
    if (module.kind != Kind::text || name.kind != Kind::text) return fail("a global without a name");
    return known_global(module.text + " " + name.text);
  }
  bool known_global(std::string name) {
    if (problem_) return true;
    if (!allowed_(name)) return fail("names '" + printable(name) + "', which such a file has no need of: refused (nothing was run)");
    return push({.kind = Kind::global, .text = std::move(name), .items = {}});
  }
  bool call(std::vector<PickleIndex> parts) {
    if (problem_) return true;
    if (pickle_.at(parts[0]).kind != Kind::global || pickle_.at(parts[1]).kind != Kind::tuple) return fail("calls what is no global");
    return push({.kind = Kind::call, .text = {}, .items = std::move(parts)});
  }
  bool build(const std::vector<PickleIndex>& parts) {
    if (problem_) return true;
    PickleValue* const to = top();
    if (to == nullptr || to->kind != Kind::call || to->state != no_pickle_value) return fail("sets the state of what has none");
    to->state = parts.front();
    return true;
  }

  PickleValue* top() { return stack_.empty() || (!marks_.empty() && marks_.back() >= stack_.size()) ? nullptr : &pickle_.values_[stack_.back()]; }
  std::vector<PickleIndex> take(std::size_t count) {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - floor < count) fail(std::string("a value ") + std::string(not_a_value));
    if (problem_) return {};
    return cut(stack_.size() - count);
  }
  std::vector<PickleIndex> take_marked() {
    if (marks_.empty()) fail("a mark is missing");
    if (problem_) return {};
    const std::size_t from = marks_.back();
    marks_.pop_back();
    return cut(from);
  }
  std::vector<PickleIndex> cut(std::size_t from) {
    std::vector<PickleIndex> taken(stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
    stack_.resize(from);
    return taken;
  }
  /// Little-endian.
  std::uint64_t number(std::uint64_t size) {
    if (problem_) return 0;
    if (size > bytes_.size() - at_) {
      fail("ends too early");
      return 0;
    }
    std::uint64_t value = 0;
    for (std::uint64_t i = 0; i < size; ++i) value |= std::to_integer<std::uint64_t>(bytes_[at_++]) << (8 * i);
    return value;
  }
  bool fail(const std::string& what) {
    if (!problem_) problem_ = Error{file_ + ": pickle, byte " + std::to_string(begin_) + ": " + what};
    return true;
  }
  static std::string hex(std::uint64_t value) {
    constexpr std::string_view digits = "0123456789abcdef";
    return {digits[value >> 4U & 15U], digits[value & 15U]};
  }
  static std::string printable(std::string name) {
    if (name.size() > 80) name.resize(80);
    for (char& c : name) c = c < ' ' || c > '~' ? '?' : c;
    return name;
  }

  Pickle& pickle_;
  std::span<const std::byte> bytes_;
  std::string file_;
  const std::function<bool(std::string_view)>& allowed_;
  std::size_t at_ = 0, begin_ = 0;
  bool done_ = false;
  std::optional<Error> problem_;
  std::vector<PickleIndex> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::unordered_map<std::uint64_t, PickleIndex> memo_;
};

Result<Pickle> Pickle::read(std::span<const std::byte> bytes, const std::string& file, const std::function<bool(std::string_view)>& allowed) {
  Pickle pickle;
  if (auto done = Reader(pickle, bytes, file, allowed).run(); !done) return done.error();
  return pickle;
}

const PickleValue* Pickle::find(const PickleValue& of, std::string_view key) const {
  const PickleValue* dict = &of;
  if (of.kind == PickleValue::Kind::call && of.state != no_pickle_value) dict = &at(of.state);
  if (dict->kind != PickleValue::Kind::dict) return nullptr;
  for (std::size_t i = 0; i + 1 < dict->items.size(); i += 2) {
    const PickleValue& name = at(dict->items[i]);
    if (name.kind == PickleValue::Kind::text && name.text == key) return &at(dict->items[i + 1]);
  }
  return nullptr;
}

std::string_view Pickle::called(const PickleValue& value) const {
  if (value.kind != PickleValue::Kind::call) return {};
  return at(value.items[0]).text;
}

bool Pickle::numbers(const PickleValue& value, std::vector<std::int64_t>& out) const {
  const PickleValue* list = &value;
  if (called(value) == "torch Size") {
    const PickleValue& arguments = at(value.items[1]);
    if (arguments.items.size() != 1) return false;
    list = &at(arguments.items[0]);
  }
  if (list->kind != PickleValue::Kind::tuple && list->kind != PickleValue::Kind::list) return false;
  out.clear();
  for (const PickleIndex i : list->items) {
    if (at(i).kind != PickleValue::Kind::integer) return false;
    out.push_back(at(i).integer);
  }
  return true;
}

}  // namespace troupe
