#include "src/collectives/nccl/nccl_communicator.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "src/device/cuda/cuda_stream.hpp"

namespace troupe {
namespace {

using cuda::native_stream;

/// Pieces of one group are launched together, as one kernel.
class Group {
 public:
  Group() { ncclGroupStart(); }
  ~Group() {
    if (open_) ncclGroupEnd();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  [[nodiscard]] ncclResult_t end() {
    open_ = false;
    return ncclGroupEnd();
  }

 private:
  bool open_ = true;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclOptions& options, Communicator& meeting)
      : name_(options.name), device_(options.device), kernels_(*options.kernels), rank_(meeting.rank()), size_(meeting.size()) {
    if (size_ == 1) return;  // nobody to talk to: NCCL would take half a second and memory
    // Multicast is left off unless asked for: a program that dies while it uses it can take the host's devices out of service.
    ::setenv("NCCL_NVLS_ENABLE", "0", 0);
    cuda::use_device(device_);
    ncclUniqueId id{};
    if (rank_ == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    Stream host;
    meeting.broadcast(host, std::as_writable_bytes(std::span(id.internal)), 0);
    ncclComm_t made = nullptr;
    check(ncclCommInitRank(&made, static_cast<int>(size_), id, static_cast<int>(rank_)), "ncclCommInitRank");
    communicator_ = made;
  }
  ~NcclCommunicator() override {
    if (aborter_.joinable()) aborter_.join();
    if (communicator_ != nullptr) ncclCommDestroy(communicator_);
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return size_; }

  void all_gather(Stream& stream, std::span<const GatherPiece> pieces) override {
    if (size_ == 1) return;
    call("all_gather", [&](ncclComm_t communicator) {
      for (const GatherPiece& piece : pieces)
        check(ncclAllGather(piece.data + rank_ * piece.bytes, piece.data, piece.bytes, ncclUint8, communicator, native_stream(stream, device_)),
              "ncclAllGather");
    });
  }

  void reduce_scatter(Stream& stream, std::span<const ReducePiece> pieces) override {
    // What accumulates is summed in place in the own part of the input first.
    if (size_ > 1) {
      call("reduce_scatter", [&](ncclComm_t communicator) {
        for (const ReducePiece& piece : pieces)
          check(ncclReduceScatter(piece.input, piece.accumulate ? own_part(piece) : piece.output, piece.count, ncclFloat32, ncclSum, communicator,
                                  native_stream(stream, device_)),
                "ncclReduceScatter");
      });
    }
    const DeviceId device{DeviceKind::cuda, static_cast<std::int16_t>(device_)};
    for (const ReducePiece& piece : pieces) {
      const Shape shape{static_cast<std::int64_t>(piece.count)};
      const TensorView sum = TensorView::contiguous(own_part(piece), DType::f32, shape, device),
                       output = TensorView::contiguous(piece.output, DType::f32, shape, device);
      if (piece.accumulate) {
        kernels_.add(stream, output, sum, output);
      } else if (size_ == 1) {
        kernels_.cast(stream, sum, output);
      }
    }
  }

  void all_reduce(Stream& stream, TensorView values, Reduction reduction) override {
    if (values.dtype != DType::f32 && values.dtype != DType::f64) throw CollectiveError(name_ + ": all_reduce of " + std::string(name_of(values.dtype)));
    if (size_ == 1) return;
    call("all_reduce", [&](ncclComm_t communicator) {
      check(ncclAllReduce(values.data, values.data, static_cast<std::size_t>(values.shape.elements()), values.dtype == DType::f32 ? ncclFloat32 : ncclFloat64,
                          reduction == Reduction::sum ? ncclSum : ncclMax, communicator, native_stream(stream, device_)),
            "ncclAllReduce");
    });
  }

  void broadcast(Stream& stream, std::span<std::byte> data, std::uint32_t root) override {
    if (size_ == 1) return;
    call("broadcast", [&](ncclComm_t communicator) {
      check(ncclBroadcast(data.data(), data.data(), data.size(), ncclUint8, static_cast<int>(root), communicator, native_stream(stream, device_)),
            "ncclBroadcast");
    });
  }

  void all_to_all(Stream& stream, std::span<const std::byte> input, std::span<std::byte> output) override {
    const std::size_t part = input.size() / size_;
    if (part * size_ != input.size() || output.size() != input.size())
      throw CollectiveError(name_ + ": all_to_all of " + std::to_string(input.size()) + " bytes into " + std::to_string(output.size()) + " for " +
                            std::to_string(size_) + " members");
    if (size_ == 1) {
      if (cudaMemcpyAsync(output.data(), input.data(), input.size(), cudaMemcpyDeviceToDevice, native_stream(stream, device_)) != cudaSuccess)
        throw CollectiveError(name_ + ": all_to_all: the device cannot copy");
      return;
    }
    call("all_to_all", [&](ncclComm_t communicator) {
      for (std::uint32_t peer = 0; peer < size_; ++peer) {
        check(ncclSend(input.data() + peer * part, part, ncclUint8, static_cast<int>(peer), communicator, native_stream(stream, device_)), "ncclSend");
        check(ncclRecv(output.data() + peer * part, part, ncclUint8, static_cast<int>(peer), communicator, native_stream(stream, device_)), "ncclRecv");
      }
    });
  }

  /// ncclCommAbort takes half a second: a thread of its own does it, once the issuer is out of its call, or after two seconds all the same,
  /// since that call may itself wait for the dead.
  void abort(const std::string& cause) noexcept override {
    const std::lock_guard lock(cause_mutex_);
    if (aborted_) return;
    cause_ = cause;
    aborted_ = true;
    try {
      aborter_ = std::thread([this] {
        std::unique_lock calls(calls_, std::defer_lock);
        (void)calls.try_lock_for(std::chrono::seconds{2});
        if (ncclComm_t gone = communicator_.exchange(nullptr)) ncclCommAbort(gone);
      });
    } catch (const std::system_error&) {
      if (ncclComm_t gone = communicator_.exchange(nullptr)) ncclCommAbort(gone);
    }
  }

 private:
  void check(ncclResult_t result, const char* what) const {
    if (result == ncclSuccess) return;
    std::string text = name_ + ", member " + std::to_string(rank_) + " of " + std::to_string(size_) + ": " + what + ": " + ncclGetErrorString(result);
    if (const char* last = ncclGetLastError(nullptr); last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
    throw CollectiveError(text);
  }

  template <class Work>
  void call(const char* what, Work&& work) {
    const std::lock_guard calls(calls_);
    const ncclComm_t communicator = communicator_;
    if (aborted_ || communicator == nullptr) {
      const std::lock_guard lock(cause_mutex_);
      throw CollectiveError(name_ + ": " + what + " after an abort: " + cause_);
    }
    Group group;
    work(communicator);
    check(group.end(), what);
  }

  /// The seam promises no more than to read the input; its own part is scratch here, as the header says.
  [[nodiscard]] float* own_part(const ReducePiece& piece) const { return const_cast<float*>(piece.input) + rank_ * piece.count; }

  const std::string name_;
  const int device_;
  Kernels& kernels_;
  const std::uint32_t rank_, size_;
  std::timed_mutex calls_;  ///< held inside NCCL
  std::atomic<ncclComm_t> communicator_{nullptr};
  std::mutex cause_mutex_;
  std::atomic<bool> aborted_{false};
  std::string cause_;
  std::thread aborter_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const NcclOptions& options, Communicator& meeting) {
  return std::make_unique<NcclCommunicator>(options, meeting);
}

}  // namespace troupe
