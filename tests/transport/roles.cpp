#include <unistd.h>

#include <iostream>

#include "src/transport/ucx_worker.hpp"
#include "tests/transport/node.hpp"
#include "tests/transport/peer_process.hpp"

namespace troupe::test {
namespace {

constexpr Rank tester{0}, peer{1};

/// Tells the tester our address, learns its, and connects.
void meet(Node& node) {
  std::cout << to_hex(node.transport().address()) << std::endl;
  std::string line;
  std::getline(std::cin, line);
  if (!node.transport().connect(tester, Incarnation{0}, from_hex(line)).ok()) _exit(3);
}

/// transports, slots, slot bytes, say: prints each letter it gets ("step slots-intact") when `say` is 1; lives until its input ends or says so.
int sink(const std::vector<std::string>& arguments) {
  const bool say = arguments.at(3) == "1";
  Node node(peer, arguments.at(0), std::stoul(arguments.at(1)), std::stoul(arguments.at(2)), [say](Node&, const std::shared_ptr<const Parcel>& parcel) {
    if (!say) return;
    const auto step = parcel->envelope().getWhere().getStep();
    const bool intact = !parcel->lease() || is_batch_payload(parcel->lease().bytes(), step);
    std::cout << step << (parcel->lease() ? " payload " : " plain ") << (intact ? "intact" : "torn") << std::endl;
  });
  meet(node);
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line == "refused") {
      for (const auto count : node.transport().counters().refused) std::cout << count << " ";
      std::cout << std::endl;
    }
    if (line == "close") std::cout << "closed " << node.close(tester, CloseMode::flush) << std::endl;
  }
  return 0;
}

/// transports, letters, payload bytes, close, later payloads' bytes: sends that many letters; then closes cleanly and ends (1) or lives on (0).
int source(const std::vector<std::string>& arguments) {
  Node node(peer, arguments.at(0));
  meet(node);
  const auto count = std::stoull(arguments.at(1));
  for (std::uint64_t step = 1; step <= count; ++step) {
    const std::size_t payload = std::stoul(arguments.size() > 4 && step > 1 ? arguments[4] : arguments.at(2));
    node.send(tester, batch(peer, tester, step, payload));
  }
  if (arguments.at(3) == "1") {
    const std::string problem = node.close(tester, CloseMode::flush);
    std::cout << "closed " << problem << std::endl;
    return problem.empty() ? 0 : 4;
  }
  std::string line;
  while (std::getline(std::cin, line)) {}
  return 0;
}

/// An attacker on the job's network who holds a captured frame: sends it twice, then with each byte flipped, then frames of an older life
/// and of another job; last an honest one. transports.
int forger(const std::vector<std::string>& arguments) {
  TransportOptions options;
  options.transports = arguments.at(0);
  UcxWorker worker(options, [](void*, const void*, std::size_t, void*, std::size_t, const ucp_am_recv_param_t*) { return UCS_OK; }, nullptr);
  std::cout << to_hex(worker.address()) << std::endl;
  std::string line;
  std::getline(std::cin, line);
  const std::string address = from_hex(line);
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  ucp_ep_h endpoint = nullptr;
  if (ucp_ep_create(worker.handle(), &parameters, &endpoint) != UCS_OK) return 5;
  const auto finish = [&](void* request) {
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) worker.progress();
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  };
  const auto send = [&](const std::vector<std::byte>& frame) {
    ucp_request_param_t none{};
    finish(ucp_am_send_nbx(endpoint, frame_message, frame.data(), frame.size(), nullptr, 0, &none));
  };
  const Party self{peer, Incarnation{0}}, to{tester, Incarnation{0}};
  FrameSealer sealer(test_session(), self, to);
  const auto captured = *sealer.seal(*batch(peer, tester, 1), 0);
  send(captured);
  send(captured);
  for (std::size_t i = 0; i < captured.size(); ++i) {
    auto flipped = captured;
    flipped[i] ^= std::byte{0x10};
    send(flipped);
  }
  Session other_job = test_session();
  other_job.job = 43;
  FrameSealer foreign(other_job, self, to), older(test_session(), {peer, Incarnation{7}}, to);
  send(*foreign.seal(*batch(peer, tester, 50), 0));
  send(*older.seal(*batch(peer, tester, 51), 0));
  send(*sealer.seal(*batch(peer, tester, 2), 0));
  std::cout << captured.size() << std::endl;
  ucp_request_param_t none{};
  finish(ucp_ep_flush_nbx(endpoint, &none));
  while (std::getline(std::cin, line)) {}
  return 0;
}

}  // namespace

const std::map<std::string, Role>& roles() {
  static const std::map<std::string, Role> all = {{"sink", sink}, {"source", source}, {"forger", forger}};
  return all;
}

}  // namespace troupe::test
