#include "src/transport/ucx_worker.hpp"

#include <poll.h>

#include <stdexcept>
#include <utility>

namespace troupe {
namespace {

/// A payload goes through UCX in segments. Its own choice, 8 KiB, takes a system call or a queue entry for each.
constexpr const char* tcp_segment = "512k";
/// Must stay under 64 KiB: UCX 1.22 writes a segment's length into 16 bits (uct_mm_fifo_element), and a longer one arrives cut short:
/// payloads hang or are torn. 64 of them take as much memory as UCX's 256 of 8 KiB do twice over.
constexpr const char* shared_memory_segment = "60k";
constexpr const char* shared_memory_segments = "64";

void require(ucs_status_t status, const std::string& what) {
  if (status != UCS_OK) throw std::runtime_error("the transport cannot start: " + what + ": " + ucs_status_string(status));
}

class Config {
 public:
  Config() { require(ucp_config_read(nullptr, nullptr, &config_), "UCX's configuration (environment variables UCX_…)"); }
  ~Config() { ucp_config_release(config_); }
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;
  void set(const char* key, const std::string& value) {
    require(ucp_config_modify(config_, key, value.c_str()), "UCX option " + std::string(key) + " = " + value);
  }
  [[nodiscard]] ucp_config_t* get() const noexcept { return config_; }

 private:
  ucp_config_t* config_ = nullptr;
};

}  // namespace

UcxWorker::UcxWorker(const TransportOptions& options, OnMessage on_message, void* self) {
  try {
    start(options, on_message, self);
  } catch (...) {
    if (worker_ != nullptr) ucp_worker_destroy(worker_);
    if (context_ != nullptr) ucp_cleanup(context_);
    throw;
  }
}

void UcxWorker::start(const TransportOptions& options, OnMessage on_message, void* self) {
  Config config;
  config.set("TLS", options.transports);
  if (!options.devices.empty()) config.set("NET_DEVICES", options.devices);
  config.set("MM_ERROR_HANDLING", "y");  // or a peer that dies is not noticed over shared memory
  config.set("KEEPALIVE_INTERVAL", std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(options.keepalive).count()) + "ms");
  config.set("TCP_TX_SEG_SIZE", tcp_segment);
  config.set("TCP_RX_SEG_SIZE", tcp_segment);
  for (const char* kind : {"SYSV", "POSIX"}) {
    config.set((kind + std::string("_SEG_SIZE")).c_str(), shared_memory_segment);
    config.set((kind + std::string("_FIFO_SIZE")).c_str(), shared_memory_segments);
  }
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  parameters.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  require(ucp_init(&parameters, config.get(), &context_), "UCX with transports " + options.transports + " on devices " + options.devices);

  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  require(ucp_worker_create(context_, &worker, &worker_), "UCX worker");
  require(ucp_worker_get_efd(worker_, &event_fd_), "UCX worker's event descriptor");

  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER | UCP_WORKER_ATTR_FIELD_ADDRESS;
  require(ucp_worker_query(worker_, &attributes), "UCX worker's attributes");
  address_.assign(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  ucp_worker_release_address(worker_, attributes.address);
  if (attributes.max_am_header < max_frame_bytes) {
    throw std::runtime_error("the transport cannot start: UCX carries headers of " + std::to_string(attributes.max_am_header) + " bytes over " +
                             options.transports + ", letters need " + std::to_string(max_frame_bytes));
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = frame_message;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
  handler.cb = on_message;
  handler.arg = self;
  require(ucp_worker_set_am_recv_handler(worker_, &handler), "UCX handler");
}

UcxWorker::~UcxWorker() {
  ucp_worker_destroy(worker_);
  ucp_cleanup(context_);
}

void UcxWorker::wait(int milliseconds) {
  if (ucp_worker_arm(worker_) != UCS_OK) return;  // busy: something came in meanwhile
  pollfd descriptor{event_fd_, POLLIN, 0};
  poll(&descriptor, 1, milliseconds);
}

}  // namespace troupe
