// Writes a line for each kernel and copy of a program: begin, end (ns), stream, blocks or bytes, name. The CUDA driver loads it:
//   CUDA_INJECTION64_PATH=…/libtroupe_kernel_trace.so TROUPE_KERNEL_TRACE=FILE program        → FILE.<pid> of each process
// Costs about 1 % of a step. benchmarks/gpu_rows.py makes a table of it.
#include <cupti.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr std::size_t room = std::size_t{1} << 20U;
constexpr std::uint32_t flush_every_ms = 300;

std::FILE*& file() {
  static std::FILE* out = nullptr;
  return out;
}

void line(std::uint64_t begin, std::uint64_t end, std::uint32_t stream, unsigned long long size, const char* name) {
  std::fprintf(file(), "%llu %llu %u %llu %s\n", static_cast<unsigned long long>(begin), static_cast<unsigned long long>(end), stream, size, name);
}

void CUPTIAPI give_room(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, room));
  *size = room;
  *most = 0;
}

void CUPTIAPI take_records(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  for (CUpti_Activity* record = nullptr; cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS;) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* k = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      const auto blocks = static_cast<unsigned long long>(k->gridX) * static_cast<unsigned long long>(k->gridY) * static_cast<unsigned long long>(k->gridZ);
      line(k->start, k->end, k->streamId, blocks, k->name != nullptr ? k->name : "?");
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* k = reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
      line(k->start, k->end, k->streamId, k->bytes, "memcpy");
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* k = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      line(k->start, k->end, k->streamId, k->bytes, "memset");
    }
  }
  std::fflush(file());
  std::free(buffer);
}

}  // namespace

/// The driver calls it when it is loaded.
extern "C" int InitializeInjection() {
  const char* base = std::getenv("TROUPE_KERNEL_TRACE");
  if (base == nullptr) return 1;
  file() = std::fopen((std::string(base) + "." + std::to_string(getpid())).c_str(), "w");
  if (file() == nullptr) return 0;
  if (cuptiActivityRegisterCallbacks(give_room, take_records) != CUPTI_SUCCESS) return 0;
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    if (cuptiActivityEnable(kind) != CUPTI_SUCCESS) return 0;
  }
  (void)cuptiActivityFlushPeriod(flush_every_ms);
  std::atexit([] { (void)cuptiActivityFlushAll(1); });
  return 1;
}
