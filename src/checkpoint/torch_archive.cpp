#include "src/checkpoint/torch_archive.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "src/checkpoint/foreign_tensors.hpp"
#include "src/checkpoint/pickle.hpp"
#include "src/checkpoint/safetensors.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t end_bytes = 22, end64_bytes = 56, locator_bytes = 20, entry_bytes = 46, local_bytes = 30;
constexpr std::uint64_t longest_directory = std::uint64_t{1} << 20U, longest_pickle = std::uint64_t{1} << 20U;

constexpr std::array storage_types = {
    std::pair{"torch FloatStorage", StoredType::f32},    std::pair{"torch BFloat16Storage", StoredType::bf16}, std::pair{"torch HalfStorage", StoredType::f16},
    std::pair{"torch DoubleStorage", StoredType::f64},   std::pair{"torch LongStorage", StoredType::i64},      std::pair{"torch IntStorage", StoredType::i32},
    std::pair{"torch ByteStorage", StoredType::u8},      std::pair{"torch ShortStorage", StoredType::i16},     std::pair{"torch CharStorage", StoredType::i8},
    std::pair{"torch BoolStorage", StoredType::boolean},
};

bool known_in_a_tensor(std::string_view name) {
  return name == "torch._utils _rebuild_tensor_v2" || name == "collections OrderedDict" ||
         std::ranges::any_of(storage_types, [&](const auto& type) { return name == type.first; });
}

std::uint64_t little(std::span<const std::byte> bytes, std::uint64_t at, std::uint64_t size) {
  std::uint64_t value = 0;
  for (std::uint64_t i = size; i-- > 0;) value = value << 8U | std::to_integer<std::uint64_t>(bytes[at + i]);
  return value;
}

/// A zip archive in a part of a file.
class Archive {
 public:
  Archive(StorageReader& reader, std::string where, std::uint64_t begin, std::uint64_t bytes)
      : reader_(reader), where_(std::move(where)), begin_(begin), bytes_(bytes) {}

  struct Entry {
    std::uint64_t begin = 0, bytes = 0;  ///< of its content, in the archive
  };
  [[nodiscard]] Error wrong(const std::string& what) const { return Error{where_ + ": " + what}; }

  Result<void> open() {
    if (bytes_ < end_bytes) return wrong("has " + std::to_string(bytes_) + " bytes, too few for an archive of torch.save");
    const std::uint64_t tail = std::min(bytes_, end_bytes + locator_bytes);
    auto end = read(bytes_ - tail, tail);
    if (!end) return end.error();
    const std::span<const std::byte> last = std::span(*end).last(end_bytes);
    if (little(last, 0, 4) != 0x06054b50) return wrong("does not end as an archive of torch.save does");
    std::uint64_t count = little(last, 10, 2), size = little(last, 12, 4), at = little(last, 16, 4);
    if (tail > end_bytes && little(*end, 0, 4) == 0x07064b50) {
      const std::uint64_t place = little(*end, 8, 8);
      if (bytes_ < end64_bytes || place > bytes_ - end64_bytes) return wrong("its directory lies outside of it");
      const auto end64 = read(place, end64_bytes);
      if (!end64) return end64.error();
      if (little(*end64, 0, 4) != 0x06064b50) return wrong("does not end as an archive of torch.save does");
      count = little(*end64, 32, 8);
      size = little(*end64, 40, 8);
      at = little(*end64, 48, 8);
    }
    if (size > longest_directory || at > bytes_ || size > bytes_ - at)
      return wrong("its directory of " + std::to_string(size) + " bytes at " + std::to_string(at) + " lies outside of it");
    const auto directory = read(at, size);
    if (!directory) return directory.error();
    return read_directory(*directory, count);
  }
  /// By the end of its name, behind the archive's own folder; the error names it.
  Result<Entry> entry(const std::string& name) const {
    const auto found = std::ranges::find_if(entries_, [&](const auto& e) { return e.first.substr(std::min(e.first.find('/'), e.first.size())) == "/" + name; });
    if (found == entries_.end()) return wrong("has no entry '" + name + "'");
    const auto local = read(found->second.begin, local_bytes);
    if (!local) return local.error();
    if (little(*local, 0, 4) != 0x04034b50) return wrong("entry '" + name + "' has no header");
    const std::uint64_t begin = found->second.begin + local_bytes + little(*local, 26, 2) + little(*local, 28, 2);
    if (begin > bytes_ || found->second.bytes > bytes_ - begin) return wrong("entry '" + name + "' goes beyond its end");
    return Entry{begin, found->second.bytes};
  }
  [[nodiscard]] bool has(const std::string& name) const {
    return std::ranges::any_of(entries_, [&](const auto& e) { return e.first.ends_with("/" + name); });
  }
  Result<std::vector<std::byte>> read(std::uint64_t at, std::uint64_t size) const {
    if (at > bytes_ || size > bytes_ - at) return wrong("ends too early");
    std::vector<std::byte> bytes(size);
    if (auto done = reader_.read_at(begin_ + at, bytes); !done) return done.error();
    return bytes;
  }

 private:
  Result<void> read_directory(std::span<const std::byte> directory, std::uint64_t count) {
    std::uint64_t at = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (directory.size() - at < entry_bytes || little(directory, at, 4) != 0x02014b50)
        return wrong("its directory ends after " + std::to_string(i) + " of " + std::to_string(count) + " entries");
      const std::uint64_t method = little(directory, at + 10, 2), name_bytes = little(directory, at + 28, 2), extra = little(directory, at + 30, 2),
                          comment = little(directory, at + 32, 2);
      if (directory.size() - at - entry_bytes < name_bytes + extra + comment) return wrong("its directory is cut off");
      const std::string name(reinterpret_cast<const char*>(directory.data() + at + entry_bytes), name_bytes);
      std::uint64_t packed = little(directory, at + 20, 4);
      Entry entry{little(directory, at + 42, 4), little(directory, at + 24, 4)};
      widen(directory.subspan(at + entry_bytes + name_bytes, extra), entry, packed);
      if (method != 0 || packed != entry.bytes) return wrong("entry '" + name + "' is compressed, which torch.save does not do");
      if (!entries_.emplace(name, entry).second) return wrong("entry '" + name + "' stands twice in its directory");
      at += entry_bytes + name_bytes + extra + comment;
    }
    return {};
  }
  /// Sizes and offset of 8 bytes, where those of 4 do not hold them.
  static void widen(std::span<const std::byte> extra, Entry& entry, std::uint64_t& packed) {
    while (extra.size() >= 4) {
      const std::uint64_t id = little(extra, 0, 2), size = std::min<std::uint64_t>(little(extra, 2, 2), extra.size() - 4);
      std::span<const std::byte> field = extra.subspan(4, size);
      if (id == 1) {
        for (std::uint64_t* value : {&entry.bytes, &packed, &entry.begin}) {
          if (*value != 0xffffffffU || field.size() < 8) continue;
          *value = little(field, 0, 8);
          field = field.subspan(8);
        }
      }
      extra = extra.subspan(4 + size);
    }
  }
  StorageReader& reader_;
  std::string where_;
  std::uint64_t begin_, bytes_;
  std::map<std::string, Entry> entries_;
};

/// What the pickle of one tensor says.
struct ArchivedTensor {
  std::string storage;
  StoredType dtype = StoredType::f32;
  std::int64_t storage_size = 0, offset = 0;
  std::vector<std::int64_t> sizes, strides;
};

std::optional<ArchivedTensor> tensor_of(const Pickle& pickle) {
  if (pickle.called(pickle.root()) != "torch._utils _rebuild_tensor_v2") return std::nullopt;
  const auto& arguments = pickle.at(pickle.root().items[1]).items;
  if (arguments.size() < 4) return std::nullopt;
  const PickleValue &storage = pickle.at(arguments[0]), &offset = pickle.at(arguments[1]);
  ArchivedTensor tensor;
  if (storage.kind != PickleValue::Kind::persistent || offset.kind != PickleValue::Kind::integer || !pickle.numbers(pickle.at(arguments[2]), tensor.sizes) ||
      !pickle.numbers(pickle.at(arguments[3]), tensor.strides))
    return std::nullopt;
  const PickleValue& id = pickle.at(storage.items[0]);
  if (id.kind != PickleValue::Kind::tuple || id.items.size() != 5) return std::nullopt;
  const PickleValue &type = pickle.at(id.items[1]), &key = pickle.at(id.items[2]), &size = pickle.at(id.items[4]);
  const auto known = std::ranges::find_if(storage_types, [&](const auto& t) { return type.text == t.first; });
  if (known == storage_types.end() || key.kind != PickleValue::Kind::text || size.kind != PickleValue::Kind::integer) return std::nullopt;
  tensor.dtype = known->second;
  tensor.storage = key.text;
  tensor.storage_size = size.integer;
  tensor.offset = offset.integer;
  return tensor;
}

bool row_major(const ArchivedTensor& tensor) {
  if (tensor.strides.size() != tensor.sizes.size()) return false;
  std::int64_t expected = 1;
  for (std::size_t i = tensor.sizes.size(); i-- > 0;) {
    if (tensor.sizes[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.sizes[i];
  }
  return true;
}

}  // namespace

Result<std::uint64_t> find_archived_tensor(StorageReader& reader, const std::string& file, std::uint64_t begin, std::uint64_t bytes, StoredType dtype,
                                           const std::vector<std::int64_t>& sizes) {
  if (begin > reader.size() || bytes > reader.size() - begin)
    return Error{file + ": bytes " + std::to_string(begin) + " to " + std::to_string(begin + bytes) + " are named, the file has " +
                 std::to_string(reader.size())};
  Archive archive(reader, file + ": archive at byte " + std::to_string(begin), begin, bytes);
  if (auto opened = archive.open(); !opened) return opened.error();
  const auto description = archive.entry("data.pkl");
  if (!description) return description.error();
  if (description->bytes > longest_pickle) return archive.wrong("its pickle of " + std::to_string(description->bytes) + " bytes is no tensor's");
  const auto text = archive.read(description->begin, description->bytes);
  if (!text) return text.error();
  const auto pickle = Pickle::read(*text, file, known_in_a_tensor);
  if (!pickle) return pickle.error();
  const auto tensor = tensor_of(*pickle);
  if (!tensor) return archive.wrong("does not hold one tensor");
  if (tensor->sizes != sizes || tensor->dtype != dtype)
    return archive.wrong("expected " + std::string(safetensors_name(dtype)) + " " + text_of_shape(sizes) + ", found " +
                         std::string(safetensors_name(tensor->dtype)) + " " + text_of_shape(tensor->sizes));
  const std::uint64_t needed = bytes_of_shape(sizes, dtype).value_or(~std::uint64_t{0});
  if (!row_major(*tensor)) return archive.wrong("its tensor is not stored row by row: write it again after .contiguous()");
  if (archive.has("byteorder")) {
    const auto order = archive.entry("byteorder");
    if (!order) return order.error();
    const auto said = archive.read(order->begin, std::min<std::uint64_t>(order->bytes, 8));
    if (!said) return said.error();
    if (std::string_view(reinterpret_cast<const char*>(said->data()), said->size()) != "little") return archive.wrong("its values are not little-endian");
  }
  const auto values = archive.entry("data/" + tensor->storage);
  if (!values) return values.error();
  const std::uint64_t item = size_of(dtype);
  if (tensor->storage_size < 0 || values->bytes % item != 0 || values->bytes / item != static_cast<std::uint64_t>(tensor->storage_size))
    return archive.wrong("its storage should hold " + std::to_string(tensor->storage_size) + " values, and has " + std::to_string(values->bytes) + " bytes");
  if (tensor->offset < 0 || static_cast<std::uint64_t>(tensor->offset) > values->bytes / item ||
      needed > values->bytes - static_cast<std::uint64_t>(tensor->offset) * item)
    return archive.wrong("its tensor needs " + std::to_string(needed) + " bytes from value " + std::to_string(tensor->offset) + " on, the storage has " +
                         std::to_string(values->bytes));
  return begin + values->begin + static_cast<std::uint64_t>(tensor->offset) * item;
}

}  // namespace troupe
