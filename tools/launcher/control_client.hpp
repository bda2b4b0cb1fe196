#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "tools/launcher/control_protocol.hpp"
#include "tools/launcher/socket.hpp"

namespace troupe {

/// A worker's end of the control connection. Made and proved by connect(); then a thread watches it.
class ControlClient {
 public:
  struct Handler {
    std::function<void(const std::vector<Peer>&)> peers;        ///< all ranks are here
    std::function<void(std::string why)> gone;                  ///< the launcher's end closed: it is dead, or it dropped us
    std::function<void(const std::string& folder)> trace = {};  ///< somebody wants this process's timeline in that folder
    std::function<void(const std::string& text)> order = {};    ///< a host agent is to do something
  };
  /// Tries until `limit` is over while nobody listens there or the other side's secret differs (`secret`, and then `hello`, are asked anew each time);
  /// a refusal ends it at once, its reason in the error. So does `interrupt`, a descriptor, once it can be read (signals; -1: none).
  [[nodiscard]] static Result<std::unique_ptr<ControlClient>> connect(const std::string& host, std::uint16_t port,
                                                                      const std::function<Result<Secret>()>& secret,
                                                                      const std::function<Result<Hello>(const Secret&)>& hello, std::chrono::milliseconds limit,
                                                                      int interrupt = -1);
  /// The same where `where`, asked anew each time, says where to try.
  [[nodiscard]] static Result<std::unique_ptr<ControlClient>> connect(const std::function<Result<HostPort>()>& where,
                                                                      const std::function<Result<Secret>()>& secret,
                                                                      const std::function<Result<Hello>(const Secret&)>& hello, std::chrono::milliseconds limit,
                                                                      int interrupt = -1);
  virtual ~ControlClient() = default;
  [[nodiscard]] virtual const Welcome& welcome() const noexcept = 0;
  [[nodiscard]] virtual const Secret& secret() const noexcept = 0;
  /// Starts the watching thread, which calls the handler.
  virtual void watch(Handler handler) = 0;
  /// A host agent tells the launcher something. One thread at a time; blocks no longer than ten seconds.
  [[nodiscard]] virtual Result<void> tell(const std::string& text) = 0;
};

/// Asks the job that listens there one thing, as a tool: JSON to JSON, see live_requests.hpp. Blocks, at most `limit`. The error says what was
/// found in place of an answer.
[[nodiscard]] Result<std::string> ask_job(const std::string& host, std::uint16_t port, const Secret& secret, const std::string& request,
                                          std::chrono::milliseconds limit);

}  // namespace troupe
