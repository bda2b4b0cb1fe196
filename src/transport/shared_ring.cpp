#include "src/transport/shared_ring.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "messages/frame.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t ring_magic = 0x31474e4952505254;     ///< "TRPRING1"
constexpr std::uint64_t process_magic = 0x31434f5250505254;  ///< "TRPPROC1"
constexpr std::size_t header_bytes = 4096;
constexpr std::size_t ring_bytes = header_bytes + SharedRing::data_bytes;
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
static_assert(sizeof(SharedRing::Header) <= header_bytes && std::atomic<std::uint64_t>::is_always_lock_free);

struct Trailer {
  std::uint64_t magic, host;
  std::uint32_t process, unused;
};

std::string why() { return std::generic_category().message(errno); }

void* map(int descriptor) {
  void* const memory = mmap(nullptr, ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

/// Opens the descriptor of `process` that is the memory of that name; -1 if there is none.
int open_named(std::uint32_t process, const std::string& name) {
  const std::string wanted = "/memfd:" + name + " (deleted)";
  std::error_code failed;
  std::filesystem::directory_iterator entries("/proc/" + std::to_string(process) + "/fd", failed);
  for (; !failed && entries != std::filesystem::directory_iterator(); entries.increment(failed)) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entries->path(), gone) == wanted) return open(entries->path().c_str(), O_RDWR | O_CLOEXEC);
  }
  return -1;
}

}  // namespace

ProcessOnHost ProcessOnHost::self() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string identity;
  if (!std::getline(boot, identity)) return {};
  struct stat space {};
  if (stat("/proc/self/ns/pid", &space) != 0) return {};
  identity += " " + std::to_string(space.st_ino) + " " + std::to_string(geteuid());
  return {payload_hash(std::as_bytes(std::span(identity))), static_cast<std::uint32_t>(getpid())};
}

std::string address_with_process(std::string ucx_address, const ProcessOnHost& process) {
  const Trailer trailer{process_magic, process.host, process.process, 0};
  ucx_address.append(reinterpret_cast<const char*>(&trailer), sizeof trailer);
  return ucx_address;
}

std::optional<ProcessOnHost> process_in(const std::string& address) {
  Trailer trailer{};
  if (address.size() < sizeof trailer) return std::nullopt;
  std::memcpy(&trailer, address.data() + address.size() - sizeof trailer, sizeof trailer);
  if (trailer.magic != process_magic || trailer.host == 0) return std::nullopt;
  return ProcessOnHost{trailer.host, trailer.process};
}

Result<std::unique_ptr<SharedRing>> SharedRing::make(const std::string& name) {
  const int descriptor = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return Error{"no memory to share: " + why()};
  const bool sealed = ftruncate(descriptor, ring_bytes) == 0 && fcntl(descriptor, F_ADD_SEALS, seals) == 0;
  void* const memory = sealed ? map(descriptor) : nullptr;
  if (memory == nullptr) {
    const Error error{"cannot share " + std::to_string(ring_bytes) + " bytes: " + why()};
    close(descriptor);
    return error;
  }
  std::unique_ptr<SharedRing> ring(new SharedRing(memory, descriptor));
  ring->header().magic.store(ring_magic, std::memory_order_release);
  return ring;
}

Result<std::unique_ptr<SharedRing>> SharedRing::find(const ProcessOnHost& sender, const std::string& name) {
  const int descriptor = open_named(sender.process, name);
  if (descriptor < 0) return Error{"process " + std::to_string(sender.process) + " shares no memory " + name + " with this one"};
  struct stat status {};
  const bool sized = fstat(descriptor, &status) == 0 && status.st_size == static_cast<off_t>(ring_bytes) && (fcntl(descriptor, F_GET_SEALS) & seals) == seals;
  void* const memory = sized ? map(descriptor) : nullptr;
  close(descriptor);
  if (memory == nullptr) return Error{"the memory " + name + " of process " + std::to_string(sender.process) + " has another size, or may change it"};
  std::unique_ptr<SharedRing> ring(new SharedRing(memory, -1));
  if (ring->header().magic.load(std::memory_order_acquire) != ring_magic) return Error{"the memory " + name + " is of another version"};
  return ring;
}

SharedRing::~SharedRing() {
  munmap(memory_, ring_bytes);
  forget_descriptor();
}

std::span<std::byte> SharedRing::data(std::uint64_t position) const noexcept {
  const std::uint64_t offset = position % data_bytes;
  return {static_cast<std::byte*>(memory_) + header_bytes + offset, data_bytes - offset};
}

void SharedRing::forget_descriptor() noexcept {
  if (const int descriptor = std::exchange(descriptor_, -1); descriptor >= 0) close(descriptor);
}

}  // namespace troupe
