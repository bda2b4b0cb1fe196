#pragma once
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/collectives/shared_memory_communicator.hpp"

namespace troupe::testing {

/// Who the members are and how they are joined: threads or processes over shared memory; threads with a transport each, over the
/// loopback network or over UCX; processes over UCX (in a program that has not used UCX before it forks).
enum class Kind { threads, processes, loopback, ucx, ucx_processes };
[[nodiscard]] inline const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::threads: return "Threads";
    case Kind::processes: return "Processes";
    case Kind::loopback: return "OverLoopback";
    case Kind::ucx: return "OverUcx";
    case Kind::ucx_processes: return "ProcessesOverUcx";
  }
  return "";
}

/// What one member returned, or the text of what it threw. `died`: its process ended otherwise.
struct Member {
  std::vector<std::byte> bytes;
  std::string error;
  bool died = false;
};
using Body = std::function<std::vector<std::byte>(Communicator&)>;

/// Options that all members share; `tag` empty: a fresh one.
struct Setting {
  std::string tag;
  Nanos timeout{60'000'000'000};
  std::uint64_t chunk_bytes = 4096;
  std::uint32_t chunks = 4;
  std::function<void(SharedMemoryOptions&)> change{};  ///< last word on a member's options
};

/// A sequence of everything that sums, long enough that rings wrap and members overtake each other. The bits that all members end with.
[[nodiscard]] std::vector<std::byte> train_a_little(Communicator& group);

/// A tag that no other communicator of this machine uses.
[[nodiscard]] std::string fresh_tag();

/// Runs `body` on `size` members that meet in one communicator, and waits for all of them. Processes are forked from this thread.
[[nodiscard]] std::vector<Member> run(Kind kind, std::uint32_t size, const Body& body, const Setting& setting = {});

/// Returns once the thread sleeps in the kernel. For a test that must act while another thread is blocked.
void wait_until_asleep(int thread_id);

template <class T>
[[nodiscard]] std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Numbers whose sum depends on the order of adding: large and small, of both signs. The same for the same arguments everywhere.
template <class T>
[[nodiscard]] std::vector<T> awkward_values(std::uint32_t rank, std::size_t count) {
  std::vector<T> values(count);
  std::uint64_t state = 0x9e3779b97f4a7c15U * (rank + 1);
  for (auto& value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto mantissa = static_cast<T>(static_cast<std::int32_t>(state >> 33) - (1 << 30));
    value = mantissa * ((state >> 20) % 2 == 0 ? T{1} : static_cast<T>(1e-6));
  }
  return values;
}

}  // namespace troupe::testing
