#include "src/checkpoint/agent_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "src/checkpoint/state_rows.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t page = 4096, alignment = 64, magic = 0x54524f5550454b31;
constexpr std::uint64_t region_stride = std::uint64_t{1} << 42U;  // regions lie far apart: the file has holes
constexpr std::size_t piece_bytes = std::size_t{256} << 10U;      // copied, then hashed while it is in the cache

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }

/// Where each tensor lies in a snapshot: the same on every process of the same rank, mesh and model.
std::uint64_t layout_of(const StateTensors& state) {
  std::string text;
  for (const StateTensor& tensor : state)
    text += tensor.name + ":" + std::to_string(static_cast<int>(tensor.view.dtype)) + ":" + std::to_string(tensor.first_row) + "+" +
            std::to_string(tensor.rows) + ";";
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace

struct AgentMemory::Header {
  struct Slot {
    std::atomic<std::uint64_t> whole;  ///< 0 while it is written
    std::uint64_t epoch, step, layout, hash;
  };
  std::uint64_t magic, slot_bytes;
  std::array<Slot, 2> slots;
};

Result<int> AgentMemory::create() {
  const int descriptor = ::memfd_create("troupe-snapshots", MFD_CLOEXEC);
  if (descriptor < 0) return Error{std::string("no memory for snapshots: ") + std::strerror(errno)};
  return descriptor;
}

AgentMemory::AgentMemory(int descriptor, std::uint32_t place) : descriptor_(descriptor), offset_(place * region_stride + note_bytes) {}

AgentMemory::~AgentMemory() {
  if (base_ != nullptr) ::munmap(base_, mapped_);
  if (notes_ != nullptr) ::munmap(notes_, note_bytes);
}

std::span<std::byte> AgentMemory::notes() {
  if (notes_ != nullptr) return {notes_, note_bytes};
  const std::uint64_t from = offset_ - note_bytes;
  // Taken now: later, a page that is not there would be a SIGBUS. It makes the file longer where it must, and nothing shorter.
  if (const int problem = ::posix_fallocate(descriptor_, static_cast<off_t>(from), static_cast<off_t>(note_bytes)); problem != 0)
    throw std::runtime_error(std::string("the host agent's memory: ") + std::strerror(problem));
  void* const mapped = ::mmap(nullptr, note_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, static_cast<off_t>(from));
  if (mapped == MAP_FAILED) throw std::runtime_error(std::string("the host agent's memory: ") + std::strerror(errno));
  notes_ = static_cast<std::byte*>(mapped);
  return {notes_, note_bytes};
}

void AgentMemory::reserve(std::uint64_t bytes) {
  const std::uint64_t slot_bytes = rounded(std::max<std::uint64_t>(bytes, 1), page), whole = page + 2 * slot_bytes;
  if (base_ != nullptr && slot_bytes == slot_bytes_) return;
  if (base_ != nullptr) ::munmap(std::exchange(base_, nullptr), mapped_);
  const std::string what = "two snapshots of " + std::to_string(bytes) + " bytes in the host agent's memory: ";
  struct stat found {};
  if (::fstat(descriptor_, &found) != 0) throw std::runtime_error(what + std::strerror(errno));
  if (static_cast<std::uint64_t>(found.st_size) < offset_ + whole && ::ftruncate(descriptor_, static_cast<off_t>(offset_ + whole)) != 0)
    throw std::runtime_error(what + std::strerror(errno));
  // Taken now: later, a page that is not there would be a SIGBUS.
  if (const int problem = ::posix_fallocate(descriptor_, static_cast<off_t>(offset_), static_cast<off_t>(whole)); problem != 0)
    throw std::runtime_error(what + std::strerror(problem) + "; raise the memory of this host or set elastic.memory_interval = 0");
  void* const mapped = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, static_cast<off_t>(offset_));
  if (mapped == MAP_FAILED) throw std::runtime_error(what + std::strerror(errno));
  base_ = static_cast<std::byte*>(mapped);
  mapped_ = whole;
  slot_bytes_ = slot_bytes;
  auto* const header = reinterpret_cast<Header*>(base_);
  if (header->magic == magic && header->slot_bytes == slot_bytes) return;
  new (header) Header{};
  header->slot_bytes = slot_bytes;
  header->magic = magic;
}

std::byte* AgentMemory::bytes_of(std::uint32_t slot) const { return base_ + page + slot * slot_bytes_; }

std::span<std::byte> AgentMemory::open(std::uint32_t slot) {
  reinterpret_cast<Header*>(base_)->slots.at(slot).whole.store(0, std::memory_order_seq_cst);
  return {bytes_of(slot), slot_bytes_};
}

void AgentMemory::seal(std::uint32_t slot, EpochId epoch, Step step, std::uint64_t layout, std::uint64_t hash) {
  Header::Slot& entry = reinterpret_cast<Header*>(base_)->slots.at(slot);
  entry.epoch = epoch.value();
  entry.step = step.value();
  entry.layout = layout;
  entry.hash = hash;
  entry.whole.store(1, std::memory_order_seq_cst);
}

Result<std::span<const std::byte>> AgentMemory::find(std::uint32_t slot, EpochId epoch, Step step, std::uint64_t layout) const {
  const std::string wanted = "the snapshot of step " + std::to_string(step.value()) + " (epoch " + std::to_string(epoch.value()) + ", slot " +
                             std::to_string(slot) + ") in the host agent's memory ";
  const Header::Slot& entry = reinterpret_cast<const Header*>(base_)->slots.at(slot);
  if (entry.whole.load(std::memory_order_seq_cst) != 1) return Error{wanted + "is not whole"};
  if (entry.epoch != epoch.value() || entry.step != step.value())
    return Error{wanted + "is not there: the slot holds step " + std::to_string(entry.step) + " of epoch " + std::to_string(entry.epoch)};
  if (entry.layout != layout) return Error{wanted + "holds another state: were model or mesh changed?"};
  return std::span<const std::byte>{bytes_of(slot), slot_bytes_};
}

std::uint64_t AgentMemory::hash(std::uint32_t slot) const { return reinterpret_cast<const Header*>(base_)->slots.at(slot).hash; }

namespace {

/// Visits each tensor with its place in a snapshot.
template <class Visit>
std::uint64_t lay_out(const StateTensors& state, Visit&& visit) {
  std::uint64_t at = 0;
  for (const StateTensor& tensor : state) {
    if (tensor.rows == 0) continue;
    const std::uint64_t bytes = valid_bytes(tensor);
    visit(tensor, at, bytes);
    at += rounded(bytes, alignment);
  }
  return at;
}

class Hash {
 public:
  Hash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }
  [[nodiscard]] std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

class StateKeep final : public KeepProgram {
 public:
  StateKeep(StateTensors state, KeepOptions options, AgentMemory& memory)
      : state_(std::move(state)), options_(std::move(options)), memory_(memory), layout_(layout_of(state_)) {
    memory_.reserve(kept_bytes(state_));
  }
  KeptSnapshot keep(Stream& stream, EpochId epoch, Step step, std::uint32_t slot) override {
    const std::span<std::byte> to = memory_.open(slot);
    Hash hash;
    const std::uint64_t bytes = lay_out(state_, [&](const StateTensor& tensor, std::uint64_t at, std::uint64_t size) {
      if (options_.copy_out) {
        options_.copy_out(stream, tensor.view, to.data() + at);
        return hash.add(to.subspan(at, size));
      }
      for (std::uint64_t done = 0; done < size; done += piece_bytes) {
        const std::uint64_t piece = std::min<std::uint64_t>(piece_bytes, size - done);
        std::memcpy(to.data() + at + done, tensor.view.data + done, piece);
        hash.add(to.subspan(at + done, piece));
      }
    });
    memory_.seal(slot, epoch, step, layout_, hash.value());
    return {bytes, hash.value()};
  }

 private:
  StateTensors state_;
  KeepOptions options_;
  AgentMemory& memory_;
  std::uint64_t layout_;
};

}  // namespace

std::unique_ptr<KeepProgram> make_keep_program(StateTensors state, KeepOptions options, AgentMemory& memory) {
  return std::make_unique<StateKeep>(std::move(state), std::move(options), memory);
}

Result<void> restore_kept(const StateTensors& state, const KeepOptions& options, const AgentMemory& memory, std::uint32_t slot, EpochId epoch, Step step) {
  const auto found = memory.find(slot, epoch, step, layout_of(state));
  if (!found) return found.error();
  Hash hash;
  lay_out(state, [&](const StateTensor&, std::uint64_t at, std::uint64_t bytes) { hash.add(found->subspan(at, bytes)); });
  if (hash.value() != memory.hash(slot))
    return Error{"the snapshot of step " + std::to_string(step.value()) + " in the host agent's memory is damaged: its hash is not the one written with it"};
  lay_out(state, [&](const StateTensor& tensor, std::uint64_t at, std::uint64_t bytes) {
    if (options.copy_in)
      options.copy_in(found->data() + at, tensor.view);
    else
      std::memcpy(tensor.view.data, found->data() + at, bytes);
  });
  return {};
}

std::uint64_t kept_bytes(const StateTensors& state) {
  return lay_out(state, [](const StateTensor&, std::uint64_t, std::uint64_t) {});
}

}  // namespace troupe
