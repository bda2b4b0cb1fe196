#pragma once
#include <ucp/api/ucp.h>

#include <cstddef>
#include <span>
#include <string>

#include "src/transport/transport.hpp"

namespace troupe {

/// A UCX context and worker with active messages and wake-up, owned. `signal` may be called from any thread, all else from one.
class UcxWorker {
 public:
  /// Called inside progress() for each active message: keep the data's descriptor (UCS_INPROGRESS) or not (UCS_OK).
  using OnMessage = ucs_status_t (*)(void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                     const ucp_am_recv_param_t* parameters);

  /// Throws std::runtime_error with what UCX said.
  UcxWorker(const TransportOptions& options, OnMessage on_message, void* self);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  [[nodiscard]] ucp_worker_h handle() const noexcept { return worker_; }
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  bool progress() { return ucp_worker_progress(worker_) != 0; }
  void signal() { ucp_worker_signal(worker_); }
  /// Sleeps until UCX has work, signal() was called, or the time is over. Milliseconds; -1: no limit.
  void wait(int milliseconds);

 private:
  void start(const TransportOptions& options, OnMessage on_message, void* self);
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  std::string address_;
};

/// The id of the one active message that carries all frames.
inline constexpr unsigned frame_message = 1;

}  // namespace troupe
