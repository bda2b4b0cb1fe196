#include "tools/dashboard/dashboard.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "src/trace/run_timeline.hpp"
#include "tools/dashboard/connection_queue.hpp"
#include "tools/dashboard/metrics_history.hpp"
#include "tools/dashboard/prometheus.hpp"
#include "tools/launcher/live_traces.hpp"
#include "tools/web/page.hpp"
#include "tools/web/timeline_page.hpp"

namespace troupe {
namespace {

using httplib::Request;
using httplib::Response;
using nlohmann::json;
constexpr std::size_t journal_bytes = 256 << 10, most_points = 4000;
constexpr std::chrono::seconds longest_recording{120}, read_limit{2};
constexpr std::size_t most_threads = 64, most_waiting = 256;  ///< whoever opens a connection and says nothing holds a thread for a second

bool same(const std::string& a, const std::string& b) { return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

/// The last lines of a file, oldest first; the first is whole.
std::vector<std::string> last_lines(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const auto size = static_cast<std::size_t>(in.tellg()), from = size > journal_bytes ? size - journal_bytes : 0;
  in.seekg(static_cast<std::streamoff>(from));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line) && !in.eof();) lines.push_back(line);
  if (from > 0 && !lines.empty()) lines.erase(lines.begin());
  return lines;
}

class Server final : public Dashboard {
 public:
  explicit Server(DashboardOptions options) : options_(std::move(options)), history_(options_.run_folder / "metrics.jsonl") {
    server_.new_task_queue = [] { return new ConnectionQueue(most_threads, most_waiting); };  // NOLINT(cppcoreguidelines-owning-memory): httplib's interface
    server_.set_payload_max_length(1 << 16);
    server_.set_keep_alive_timeout(1);  // its threads end no sooner when the run does
    server_.set_read_timeout(read_limit);
    route();
  }
  ~Server() override {
    over_ = true;
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Result<void> listen() {
    constexpr const char* host = "127.0.0.1";
    port_ = options_.port == 0 ? server_.bind_to_any_port(host) : server_.bind_to_port(host, options_.port) ? options_.port : -1;
    if (port_ <= 0)
      return Error{fmt::format("--dashboard-port: cannot listen on {}:{}: is it in use? Give another, or none for any free one", host, options_.port)};
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    return {};
  }
  [[nodiscard]] std::string url() const override { return fmt::format("http://127.0.0.1:{}/?token={}", port_, options_.token); }

 private:
  using Handler = std::function<void(const Request&, Response&)>;

  /// A page of another site must not reach this through its reader's browser, under a name that points to the loopback.
  [[nodiscard]] bool is_for_us(const Request& request) const {
    const std::string host = request.get_header_value("Host");
    return host == fmt::format("127.0.0.1:{}", port_) || host == fmt::format("localhost:{}", port_);
  }
  /// Browsers share the cookies of a host among its ports: those of two runs on one machine need two names.
  [[nodiscard]] std::string cookie() const { return fmt::format("troupe_token_{}", port_); }
  [[nodiscard]] bool knows_token(const Request& request) const {
    if (same(request.get_header_value("X-Troupe-Token"), options_.token) || same(request.get_param_value("token"), options_.token)) return true;
    const std::string cookies = request.get_header_value("Cookie"), start = cookie() + "=";
    const std::size_t found = cookies.find(start);
    return found != std::string::npos && same(cookies.substr(found + start.size(), options_.token.size()), options_.token);
  }
  static void refuse(Response& response, int status, const std::string& why) {
    response.status = status;
    response.set_content(json{{"error", why}}.dump(), "application/json");
  }

  /// Every answer of a handler that is asked by the right host, and with the token where that is needed.
  Handler guarded(Handler handler, bool token = true) {
    return [this, handler = std::move(handler), token](const Request& request, Response& response) {
      response.set_header("X-Content-Type-Options", "nosniff");
      response.set_header("Cache-Control", "no-store");
      response.set_header("Content-Security-Policy",
                          "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:");
      if (!is_for_us(request)) return refuse(response, 403, "this is a job's dashboard; open it as http://127.0.0.1");
      if (token && !knows_token(request)) return refuse(response, 403, "the token is missing: open the whole URL that troupe train has printed");
      try {
        handler(request, response);
      } catch (const std::exception& problem) {
        refuse(response, 500, problem.what());
      }
    };
  }

  void route() {
    server_.Get("/", guarded([this](const Request& request, Response& response) { page(request, response); }));
    server_.Get("/api/state", guarded([this](const Request&, Response& response) { response.set_content(state(), "application/json"); }));
    server_.Get("/api/history", guarded([this](const Request& request, Response& response) {
                  const std::string points = request.get_param_value("points");
                  const std::size_t wanted = points.empty() ? 800 : std::min<std::size_t>(std::stoul(points), most_points);
                  response.set_content(history_.chart_json(wanted), "application/json");
                }));
    server_.Get("/api/journal", guarded([this](const Request&, Response& response) { response.set_content(journal(), "application/json"); }));
    server_.Post("/api/set", guarded([this](const Request& request, Response& response) { set(request, response); }));
    server_.Get("/timeline", guarded([this](const Request& request, Response& response) { timeline(request, response); }));
    server_.Get("/metrics", guarded(
                                [this](const Request&, Response& response) {
                                  const std::string newest = history_.newest();
                                  response.set_content(
                                      prometheus_text(options_.ask(R"({"ask": "inspect"})"), newest, history_.not_committed(), options_.step_times->get()),
                                      "text/plain; version=0.0.4");
                                },
                                false));
  }

  void page(const Request& request, Response& response) const {
    if (request.has_param("token")) {  // once in the address; from then on in a cookie, so that it stays out of the history
      response.set_header("Set-Cookie", fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict", cookie(), options_.token));
      response.set_redirect("/");
      return;
    }
    std::string whole = whole_page("dashboard");
    put_json(whole, "dashboard-data", json{{"run", options_.run_folder.string()}, {"token", options_.token}}.dump());
    response.set_content(whole, "text/html; charset=utf-8");
  }

  std::string state() {
    json told = json::parse(options_.ask(R"({"ask": "inspect"})"));
    json times = json::array();
    for (const StepTimes::Entry& entry : options_.step_times->get()) {
      json ranks = json::array();
      for (const auto& [rank, length] : entry.ranks) ranks.push_back({rank.value(), static_cast<double>(length.count()) / 1e9});
      times.push_back({entry.step.value(), ranks});
    }
    told["step_times"] = times;
    told["settings"] = json::parse(options_.settings());
    const std::string newest = history_.newest();
    told["newest"] = newest.empty() ? json() : json::parse(newest);
    return told.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  std::string journal() const {
    json lines = json::array();
    for (const std::string& line : last_lines(options_.run_folder / "journal.jsonl")) {
      json read = json::parse(line, nullptr, false);
      if (read.is_object()) lines.push_back(std::move(read));
    }
    return lines.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  /// A change needs the token in a header, which no other site's form can send.
  void set(const Request& request, Response& response) {
    if (!same(request.get_header_value("X-Troupe-Token"), options_.token))
      return refuse(response, 403, "a change needs the token in the header X-Troupe-Token");
    const json wanted = json::parse(request.body, nullptr, false);
    if (!wanted.is_object() || !wanted.contains("changes")) return refuse(response, 400, R"(expected {"changes": ["KEY=VALUE"]})");
    const json ask{{"ask", "set"}, {"changes", wanted["changes"]}, {"dry_run", wanted.value("dry_run", false)}, {"by", "the dashboard"}};
    const std::string answer = options_.ask(ask.dump());
    if (json::parse(answer).contains("error")) response.status = 409;
    response.set_content(answer, "application/json");
  }

  [[nodiscard]] std::uint64_t newest_step() const { return json::parse(options_.ask(R"({"ask": "inspect"})")).at("view").at("step").get<std::uint64_t>(); }

  void timeline(const Request& request, Response& response) {
    if (recording_.exchange(true))  // it takes a thread for as long as the steps do: one at a time, or the page would get none
      return refuse(response, 429, "steps are being recorded for another request: try again when it has its timeline");
    const std::unique_ptr<std::atomic<bool>, void (*)(std::atomic<bool>*)> recorded(&recording_, [](std::atomic<bool>* flag) { flag->store(false); });
    record(request, response);
  }

  void record(const Request& request, Response& response) {
    const std::string wanted = request.get_param_value("steps");
    const std::uint64_t steps = wanted.empty() ? 1 : std::clamp<std::uint64_t>(std::stoull(wanted), 1, 1000), before = newest_step();
    const auto deadline = std::chrono::steady_clock::now() + longest_recording;
    while (newest_step() < before + steps && !over_ && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds{20});
    LiveTraces live;
    const auto files = live.record(options_.ask, std::chrono::seconds{20});
    if (!files) return refuse(response, 409, files.error().message);
    const std::uint64_t after = newest_step();
    // Fewer came than were asked for where the run hangs: then all that there is, for that is what one wants to see.
    const auto timeline =
        after > before ? read_run_timeline(*files, std::pair{Step{before + 1}, Step{std::min(after, before + steps)}}) : read_run_timeline(*files);
    if (!timeline) return refuse(response, 409, timeline.error().message);
    response.set_content(timeline_page(*timeline, options_.run_folder.string()), "text/html; charset=utf-8");
  }

  DashboardOptions options_;
  MetricsHistory history_;
  httplib::Server server_;
  int port_ = 0;
  std::atomic<bool> over_ = false, recording_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Dashboard>> Dashboard::start(DashboardOptions options, Log& log) {
  auto server = std::make_unique<Server>(std::move(options));
  if (auto listening = server->listen(); !listening) return listening.error();
  log.info("dashboard: " + server->url());
  return std::unique_ptr<Dashboard>{std::move(server)};
}

}  // namespace troupe
