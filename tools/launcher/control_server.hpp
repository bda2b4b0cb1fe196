#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/log.hpp"
#include "src/base/result.hpp"
#include "tools/launcher/control_protocol.hpp"

namespace troupe {

/// The Coordinator's end of the control connections: admits workers that know the job's secret, tells them the config and each
/// other's addresses, and notices when one goes. One thread of its own; strangers, silent peers and nonsense are dropped with a line in the log.
class ControlServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    std::uint16_t port = 0;  ///< 0: any free one
    std::uint32_t world_size = 1;
    std::chrono::milliseconds patience{10000};  ///< for a peer to prove itself
    std::size_t most_strangers = 64;            ///< connections that have not proved themselves
  };
  /// Called by the server's thread; must not block for long.
  struct Handler {
    std::function<Result<Welcome>(const Hello&)> admit;         ///< an Error is told to the worker, as the reason of its refusal
    std::function<void(Rank first, std::uint32_t ranks)> gone;  ///< an admitted worker's connection ended
    std::function<void(const std::vector<Peer>&)> complete;     ///< all ranks are here; the workers have been told
    /// What a tool asks (troupe inspect, set, inject) and is answered. Empty: tools are refused.
    std::function<std::string(const std::string& request)> ask = {};
    std::function<void(Rank agent, const std::string& text)> told = {};  ///< a host agent tells something. Empty: they are refused
    /// Asked before `admit`: a reason why that cannot be decided yet, and the peer is to come again. Empty: there never is one.
    std::function<std::optional<std::string>(const Hello&)> not_yet = {};
  };
  /// Listens before it returns. A port in use is an error that names it.
  [[nodiscard]] static Result<std::unique_ptr<ControlServer>> listen(const Options& options, const Secret& secret, Handler handler, Log& log);
  virtual ~ControlServer() = default;
  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
  /// Connections that were dropped so far: strangers, wrong secrets, nonsense, refused workers. Any thread.
  [[nodiscard]] virtual std::uint64_t dropped() const noexcept = 0;
  /// Has every worker write its timeline into `folder`. Any thread; does not wait for it.
  virtual void order_traces(const std::string& folder) = 0;
  /// Sends a host agent an order; none is sent to one that is not there. Any thread; does not wait for it.
  virtual void order(Rank agent, const std::string& text) = 0;
};

}  // namespace troupe
