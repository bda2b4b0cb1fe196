#include "tools/launcher/control_protocol.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

using nlohmann::json;

std::vector<std::byte> bytes_of(const json& field) {
  auto bytes = from_hex(field.get<std::string>());
  if (!bytes) throw std::runtime_error(bytes.error().message);
  return std::move(bytes.value());
}

template <class T, class Read>
Result<T> parse(std::string_view what, std::string_view text, Read&& read) {
  try {
    return read(json::parse(text));
  } catch (const std::exception& problem) {
    return Error{fmt::format("control connection: cannot read {}: {}", what, problem.what())};
  }
}

Digest proof(std::string_view purpose, const Secret& secret, const Digest& worker_nonce, const Digest& launcher_nonce, Rank rank) {
  const std::uint32_t number = rank.value();
  const std::array<std::span<const std::byte>, 3> parts{std::span<const std::byte>{worker_nonce}, std::span<const std::byte>{launcher_nonce},
                                                        std::as_bytes(std::span<const std::uint32_t, 1>{&number, 1})};
  return secret.authenticate(purpose, parts);
}

}  // namespace

std::string write(const Hello& hello) {
  return json{{"first", hello.first.value()},
              {"ranks", hello.ranks},
              {"world_size", hello.world_size},
              {"pid", hello.pid},
              {"host", hello.host},
              {"address", to_hex(hello.address)},
              {"incarnation", hello.incarnation.value()}}
      .dump();
}
std::string write(const Welcome& welcome) {
  return json{{"config", welcome.config},
              {"job", welcome.job},
              {"run_folder", welcome.run_folder},
              {"incarnation", welcome.incarnation.value()},
              {"restore_step", welcome.restore_step.value()},
              {"address", to_hex(welcome.address)}}
      .dump();
}
std::string write(const std::vector<Peer>& peers) {
  json all = json::array();
  for (const Peer& peer : peers)
    all.push_back({{"first", peer.first.value()},
                   {"ranks", peer.ranks},
                   {"pid", peer.pid},
                   {"host", peer.host},
                   {"address", to_hex(peer.address)},
                   {"incarnation", peer.incarnation.value()}});
  return all.dump();
}

Result<Hello> read_hello(std::string_view text) {
  return parse<Hello>("a worker's hello", text, [](const json& j) {
    return Hello{Rank{j.at("first").get<std::uint32_t>()}, j.at("ranks").get<std::uint32_t>(), j.at("world_size").get<std::uint32_t>(),
                 j.at("pid").get<std::uint32_t>(),         j.at("host").get<std::string>(),    bytes_of(j.at("address")),
                 Incarnation{j.value("incarnation", 0U)}};
  });
}
Result<Welcome> read_welcome(std::string_view text) {
  return parse<Welcome>("the launcher's welcome", text, [](const json& j) {
    return Welcome{j.at("config").get<std::string>(),
                   j.at("job").get<std::string>(),
                   j.at("run_folder").get<std::string>(),
                   Incarnation{j.at("incarnation").get<std::uint32_t>()},
                   Step{j.at("restore_step").get<std::uint64_t>()},
                   bytes_of(j.at("address"))};
  });
}
Result<std::vector<Peer>> read_peers(std::string_view text) {
  return parse<std::vector<Peer>>("the list of peers", text, [](const json& j) {
    std::vector<Peer> peers;
    for (const json& p : j)
      peers.push_back(Peer{Rank{p.at("first").get<std::uint32_t>()}, p.at("ranks").get<std::uint32_t>(), p.at("pid").get<std::uint32_t>(),
                           p.at("host").get<std::string>(), bytes_of(p.at("address")), Incarnation{p.value("incarnation", 0U)}});
    return peers;
  });
}

Incarnation incarnation_of_agent(std::chrono::system_clock::time_point start) noexcept {
  constexpr std::chrono::sys_days since{std::chrono::year{2026} / 1 / 1};
  return Incarnation{static_cast<std::uint32_t>((start - since) / std::chrono::milliseconds{100})};
}

std::string encode(ControlKind kind, std::string_view payload) {
  const auto length = static_cast<std::uint32_t>(payload.size());
  std::string frame(sizeof(length) + 1, '\0');
  std::memcpy(frame.data(), &length, sizeof(length));
  frame[sizeof(length)] = static_cast<char>(kind);
  return frame.append(payload);
}

Result<std::optional<ControlFrame>> FrameCutter::next() {
  std::uint32_t length = 0;
  constexpr std::size_t head = sizeof(length) + 1;
  if (pending_.size() < head) return std::optional<ControlFrame>{};
  std::memcpy(&length, pending_.data(), sizeof(length));
  const auto kind = static_cast<std::uint8_t>(pending_[sizeof(length)]);
  if (kind < static_cast<std::uint8_t>(ControlKind::challenge) || kind > static_cast<std::uint8_t>(ControlKind::later))
    return Error{fmt::format("a frame of unknown kind {}", kind)};
  if (length > limit_) return Error{fmt::format("a frame of {} bytes where at most {} are allowed", length, limit_)};
  if (pending_.size() < head + length) return std::optional<ControlFrame>{};
  ControlFrame frame{static_cast<ControlKind>(kind), pending_.substr(head, length)};
  pending_.erase(0, head + length);
  return std::optional<ControlFrame>{std::move(frame)};
}

Digest launcher_proof(const Secret& secret, const Digest& worker_nonce, const Digest& launcher_nonce, Rank rank) {
  return proof("troupe launcher", secret, worker_nonce, launcher_nonce, rank);
}
Digest worker_proof(const Secret& secret, const Digest& worker_nonce, const Digest& launcher_nonce, Rank rank) {
  return proof("troupe worker", secret, worker_nonce, launcher_nonce, rank);
}

}  // namespace troupe
