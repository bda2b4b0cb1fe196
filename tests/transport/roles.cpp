#include <unistd.h>

#include <iostream>

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

/// transports, letters, payload bytes, close: sends that many letters; then closes cleanly and ends (1) or lives on (0).
int source(const std::vector<std::string>& arguments) {
  Node node(peer, arguments.at(0));
  meet(node);
  const auto count = std::stoull(arguments.at(1));
  for (std::uint64_t step = 1; step <= count; ++step) node.send(tester, batch(peer, tester, step, std::stoul(arguments.at(2))));
  if (arguments.at(3) == "1") {
    const std::string problem = node.close(tester, CloseMode::flush);
    std::cout << "closed " << problem << std::endl;
    return problem.empty() ? 0 : 4;
  }
  std::string line;
  while (std::getline(std::cin, line)) {}
  return 0;
}

}  // namespace

const std::map<std::string, Role>& roles() {
  static const std::map<std::string, Role> all = {{"sink", sink}, {"source", source}};
  return all;
}

}  // namespace troupe::test
