#include "tools/launcher/network_interface.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace troupe {

Result<std::string> address_of_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return Error{fmt::format("cannot list the network interfaces of this host: {}", std::strerror(errno))};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &::freeifaddrs);
  std::string known;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if (name == entry->ifa_name) {
      sockaddr_in address{};
      std::memcpy(&address, entry->ifa_addr, sizeof(address));
      std::array<char, INET_ADDRSTRLEN> text{};
      ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
      return std::string{text.data()};
    }
    known += (known.empty() ? "" : ", ") + std::string{entry->ifa_name};
  }
  return Error{fmt::format("comm.interface = \"{}\": this host has no such interface with an IPv4 address; it has {}", name, known.empty() ? "none" : known)};
}

}  // namespace troupe
