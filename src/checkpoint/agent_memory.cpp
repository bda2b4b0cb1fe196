#include "src/checkpoint/agent_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace troupe {
namespace {

constexpr std::uint64_t page = 4096, magic = 0x54524f5550454b32;
/// Of a slot: a copy comes in, or nothing ever came; what is there counts; its rank writes, or ended when it did.
constexpr std::uint64_t being_copied = 0, is_whole = 1, being_written = 2;
/// Regions lie far apart, and so do their slots: the file has holes, and each grows where it stands.
constexpr std::uint64_t region_stride = std::uint64_t{1} << 42U, slot_stride = std::uint64_t{1} << 39U;
static_assert((AgentMemory::most_slots + 1) * slot_stride <= region_stride);

std::uint64_t rounded(std::uint64_t bytes) { return (std::max<std::uint64_t>(bytes, 1) + page - 1) / page * page; }

off_t place_of_notes(std::uint32_t place) { return static_cast<off_t>(place * region_stride); }
off_t place_of_slot(std::uint32_t place, std::uint32_t slot) { return static_cast<off_t>(place * region_stride + (slot + 1) * slot_stride); }

}  // namespace

struct AgentMemory::Header {
  std::uint64_t magic;
  std::atomic<std::uint64_t> state;
  std::uint64_t epoch, step, bytes;
};

Result<int> AgentMemory::create() {
  const int descriptor = ::memfd_create("troupe-snapshots", MFD_CLOEXEC);
  if (descriptor < 0) return Error{std::string("no memory for snapshots: ") + std::strerror(errno)};
  return descriptor;
}

AgentMemory::AgentMemory(int descriptor, std::uint32_t place) : descriptor_(descriptor), place_(place) {
  if (place >= largest_place) throw std::invalid_argument("the host agent's memory: no region for rank " + std::to_string(place));
}

AgentMemory::~AgentMemory() {
  for (const Mapped& slot : mapped_)
    if (slot.base != nullptr) ::munmap(slot.base, page + slot.bytes);
  if (notes_ != nullptr) ::munmap(notes_, note_bytes);
}

std::span<std::byte> AgentMemory::notes() {
  if (notes_ != nullptr) return {notes_, note_bytes};
  // Taken now: later, a page that is not there would be a SIGBUS. It makes the file longer where it must, and nothing shorter.
  if (const int problem = ::posix_fallocate(descriptor_, place_of_notes(place_), static_cast<off_t>(note_bytes)); problem != 0)
    throw std::runtime_error(std::string("the host agent's memory: ") + std::strerror(problem));
  void* const mapped = ::mmap(nullptr, note_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, place_of_notes(place_));
  if (mapped == MAP_FAILED) throw std::runtime_error(std::string("the host agent's memory: ") + std::strerror(errno));
  notes_ = static_cast<std::byte*>(mapped);
  return {notes_, note_bytes};
}

void AgentMemory::reserve(std::uint64_t bytes, std::uint32_t slots) {
  const std::string what = std::to_string(slots) + " snapshots of " + std::to_string(bytes) + " bytes in the host agent's memory: ";
  if (slots > most_slots) throw std::runtime_error(what + "more than a slot may be");
  for (std::uint32_t slot = 0; slot < slots; ++slot) take(bytes, slot, what);
}

void AgentMemory::reserve_one(std::uint64_t bytes, std::uint32_t slot) {
  const std::string what = "a snapshot of " + std::to_string(bytes) + " bytes in slot " + std::to_string(slot) + " of the host agent's memory: ";
  if (slot >= most_slots) throw std::runtime_error(what + "there is no such slot");
  take(bytes, slot, what);
}

void AgentMemory::take(std::uint64_t bytes, std::uint32_t number, const std::string& what) {
  const std::uint64_t needed = rounded(bytes);
  if (needed + page > slot_stride) throw std::runtime_error(what + "more than a slot may be");
  Mapped& slot = mapped_[number];
  if (slot.base != nullptr && slot.bytes >= needed) return;
  if (slot.base != nullptr) ::munmap(std::exchange(slot.base, nullptr), page + slot.bytes);
  // Taken now: later, a page that is not there would be a SIGBUS.
  const off_t at = place_of_slot(place_, number);
  if (const int problem = ::posix_fallocate(descriptor_, at, static_cast<off_t>(page + needed)); problem != 0)
    throw std::runtime_error(what + std::strerror(problem) + "; raise the memory of this host or set elastic.memory_interval = 0");
  void* const mapped = ::mmap(nullptr, page + needed, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, at);
  if (mapped == MAP_FAILED) throw std::runtime_error(what + std::strerror(errno));
  slot = {static_cast<std::byte*>(mapped), needed};
  if (header(number).magic != magic) {
    new (slot.base) Header{};
    header(number).magic = magic;
  }
}

AgentMemory::Header& AgentMemory::header(std::uint32_t slot) const { return *reinterpret_cast<Header*>(mapped_.at(slot).base); }

std::span<std::byte> AgentMemory::open(std::uint32_t slot, Writer writer) {
  header(slot).state.store(writer == Writer::rank ? being_written : being_copied, std::memory_order_seq_cst);
  return {mapped_[slot].base + page, mapped_[slot].bytes};
}

void AgentMemory::seal(std::uint32_t slot, EpochId epoch, Step step, std::uint64_t bytes) {
  Header& entry = header(slot);
  entry.epoch = epoch.value();
  entry.step = step.value();
  entry.bytes = bytes;
  entry.state.store(is_whole, std::memory_order_seq_cst);
}

AgentMemory::Kept::Kept(Kept&& other) noexcept
    : place_(other.place_), mapped_(std::exchange(other.mapped_, nullptr)), length_(other.length_), bytes_(other.bytes_) {}

AgentMemory::Kept::~Kept() {
  if (mapped_ != nullptr) ::munmap(mapped_, length_);
}

/// A slot's header, as it stood when it was read.
struct AgentMemory::Seen {
  EpochId epoch;
  Step step;
  std::uint64_t bytes;
};

std::optional<AgentMemory::Seen> AgentMemory::look(int descriptor, std::uint32_t place, std::uint32_t slot, std::uint64_t state) {
  alignas(Header) std::array<std::byte, sizeof(Header)> read{};
  if (::pread(descriptor, read.data(), read.size(), place_of_slot(place, slot)) != static_cast<ssize_t>(read.size())) return std::nullopt;
  const Header& entry = *reinterpret_cast<const Header*>(read.data());
  if (entry.magic != magic || entry.state.load() != state) return std::nullopt;
  return Seen{EpochId{entry.epoch}, Step{entry.step}, entry.bytes};
}

std::optional<AgentMemory::Seen> AgentMemory::look(int descriptor, std::uint32_t place, std::uint32_t slot) { return look(descriptor, place, slot, is_whole); }

bool AgentMemory::written_by_rank(std::uint32_t slot) const { return look(descriptor_, place_, slot, being_written).has_value(); }

namespace {

std::string wanted_text(std::uint32_t slot, EpochId epoch, Step step) {
  return "the snapshot of step " + std::to_string(step.value()) + " (epoch " + std::to_string(epoch.value()) + ", slot " + std::to_string(slot) +
         ") in the host agent's memory ";
}

/// Where the memory ends.
Result<std::uint64_t> end_of(int descriptor) {
  struct stat found {};
  if (::fstat(descriptor, &found) != 0) return Error{std::string("cannot be read: ") + std::strerror(errno)};
  return static_cast<std::uint64_t>(found.st_size);
}

Result<AgentMemory::Kept> map_kept(int descriptor, std::uint32_t place, std::uint32_t slot, std::uint64_t bytes, std::uint64_t end) {
  const off_t at = place_of_slot(place, slot);
  const std::uint64_t length = page + rounded(bytes);
  if (bytes > slot_stride || static_cast<std::uint64_t>(at) + length > end) return Error{"is damaged: it is longer than its memory"};
  void* const mapped = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, descriptor, at);
  if (mapped == MAP_FAILED) return Error{std::string("cannot be mapped: ") + std::strerror(errno)};
  return AgentMemory::Kept{place, mapped, length, std::span{static_cast<const std::byte*>(mapped) + page, bytes}};
}

}  // namespace

Result<std::vector<AgentMemory::Kept>> AgentMemory::find(std::uint32_t slot, EpochId epoch, Step step) const {
  const std::string wanted = wanted_text(slot, epoch, step);
  const auto end = end_of(descriptor_);
  if (!end) return Error{wanted + end.error().message};
  std::vector<std::uint32_t> places{place_};
  for (const std::uint32_t place : AgentMemory::places(descriptor_))
    if (place != place_) places.push_back(place);
  std::vector<Kept> kept;
  std::string instead = "is not whole";
  for (const std::uint32_t place : places) {
    const auto seen = look(descriptor_, place, slot);
    if (!seen) continue;
    if (seen->epoch != epoch || seen->step != step) {
      if (place == place_)
        instead = "is not there: the slot holds step " + std::to_string(seen->step.value()) + " of epoch " + std::to_string(seen->epoch.value());
      continue;
    }
    auto mapped = map_kept(descriptor_, place, slot, seen->bytes, *end);
    if (!mapped) return Error{wanted + mapped.error().message};
    kept.push_back(std::move(*mapped));
  }
  if (kept.empty()) return Error{wanted + instead};
  return kept;
}

Result<AgentMemory::Kept> AgentMemory::own(std::uint32_t slot, EpochId epoch, Step step) const {
  const std::string wanted = wanted_text(slot, epoch, step);
  const auto end = end_of(descriptor_);
  if (!end) return Error{wanted + end.error().message};
  const auto seen = look(descriptor_, place_, slot);
  if (!seen || seen->epoch != epoch || seen->step != step) return Error{wanted + "is not there any more"};
  auto mapped = map_kept(descriptor_, place_, slot, seen->bytes, *end);
  if (!mapped) return Error{wanted + mapped.error().message};
  return mapped;
}

std::vector<std::uint32_t> AgentMemory::places(int descriptor) {
  std::vector<std::uint32_t> all;
  const auto end = end_of(descriptor);
  for (std::uint64_t place = 0; end && place < largest_place && place * region_stride < *end; ++place) all.push_back(static_cast<std::uint32_t>(place));
  return all;
}

void AgentMemory::forget(EpochId before) const {
  for (std::uint32_t slot = 0; slot < most_slots; ++slot) {
    const auto seen = look(descriptor_, place_, slot);
    if (!seen || seen->epoch < before)
      (void)::fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place_of_slot(place_, slot), static_cast<off_t>(slot_stride));
  }
}

std::vector<AgentMemory::Whole> AgentMemory::whole() const {
  std::vector<Whole> all;
  for (std::uint32_t slot = 0; slot < most_slots; ++slot)
    if (const auto seen = look(descriptor_, place_, slot)) all.push_back({slot, seen->epoch, seen->step});
  return all;
}

}  // namespace troupe
