#include "src/checkpoint/shard_file.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <new>

namespace troupe {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::size_t digits_of_a_hash = 16;

std::string hex(std::uint64_t value) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text(digits_of_a_hash, '0');
  for (std::size_t i = text.size(); i-- > 0; value >>= 4U) text[i] = digits[value & 15U];
  return text;
}

Result<std::vector<std::uint64_t>> pieces_from_text(std::string_view text, std::uint64_t data_bytes, const std::string& file) {
  std::vector<std::uint64_t> hashes;
  for (; text.size() >= digits_of_a_hash; text.remove_prefix(digits_of_a_hash)) {
    std::uint64_t hash = 0;
    if (const auto [end, error] = std::from_chars(text.data(), text.data() + digits_of_a_hash, hash, 16);
        error != std::errc{} || end != text.data() + digits_of_a_hash)
      return Error{file + ": the metadata key 'pieces' is unreadable"};
    hashes.push_back(hash);
  }
  if (!text.empty() || hashes.size() != pieces_of(data_bytes))
    return Error{file + ": the metadata key 'pieces' holds " + std::to_string(hashes.size()) + " hashes, expected " + std::to_string(pieces_of(data_bytes))};
  return hashes;
}

/// Where the header says that it ends, at most the end of the file: the length itself may be damaged.
Result<std::uint64_t> data_begin(StorageReader& reader) {
  std::array<unsigned char, 8> prefix{};
  if (reader.size() < prefix.size()) return reader.size();
  if (auto read = reader.read_at(0, std::as_writable_bytes(std::span(prefix))); !read) return read.error();
  std::uint64_t length = 0;
  for (std::size_t i = prefix.size(); i-- > 0;) length = length << 8U | prefix[i];
  return std::min(length, reader.size() - prefix.size()) + prefix.size();
}

}  // namespace

std::string pieces_to_text(std::span<const std::uint64_t> hashes) {
  std::string text;
  for (const auto hash : hashes) text += hex(hash);
  return text;
}

std::string write_shard_header(SafetensorsHeader header, std::span<const std::uint64_t> hashes) {
  header.metadata["pieces"] = pieces_to_text(hashes);
  return write_safetensors_header(header, page);
}

std::uint64_t hash_of_header(std::string_view header) noexcept { return XXH3_64bits(header.data(), header.size()); }

Result<ShardHeader> read_shard_header(StorageReader& reader, const std::filesystem::path& folder, const SavedShard& saved) {
  const std::string file = (folder / saved.file).string();
  if (reader.size() != saved.bytes)
    return Error{file + ": has " + std::to_string(reader.size()) + " bytes, expected " + std::to_string(saved.bytes) + ": the file is damaged"};
  const auto begin = data_begin(reader);
  if (!begin) return begin.error();
  std::string text(*begin, '\0');
  if (auto read = reader.read_at(0, std::as_writable_bytes(std::span(text))); !read) return read.error();
  if (hash_of_header(text) != saved.hash) return Error{file + ": the checksum of its header does not match: the file is damaged"};
  auto header = read_safetensors_header(reader, file);
  if (!header) return header.error();
  const auto known = header->metadata.find("pieces");
  auto pieces = pieces_from_text(known == header->metadata.end() ? "" : known->second, reader.size() - header->data_begin, file);
  if (!pieces) return pieces.error();
  return ShardHeader{std::move(*header), std::move(*pieces)};
}

Result<std::span<std::byte>> read_piece(StorageReader& reader, const std::string& file, const ShardHeader& header, std::uint64_t piece,
                                        std::span<std::byte> buffer) {
  const std::uint64_t begin = header.safetensors.data_begin + piece * piece_bytes;
  const auto bytes = buffer.first(std::min(piece_bytes, reader.size() - begin));
  if (auto read = reader.read_at(begin, bytes); !read) return read.error();
  if (XXH3_64bits(bytes.data(), bytes.size()) != header.pieces[piece])
    return Error{file + ": the checksum of bytes " + std::to_string(begin) + " to " + std::to_string(begin + bytes.size() - 1) +
                 " does not match: the file is damaged"};
  return bytes;
}

PieceBuffer::PieceBuffer() : memory_(static_cast<std::byte*>(std::aligned_alloc(page, piece_bytes))) {
  if (!memory_) throw std::bad_alloc();
}
void PieceBuffer::Free::operator()(std::byte* memory) const noexcept { std::free(memory); }

}  // namespace troupe
