#include "tools/launcher/signals.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>

namespace troupe {

SignalQueue::SignalQueue(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = Descriptor{::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC)};
  if (!descriptor_) throw std::runtime_error("signalfd failed");
}

std::optional<int> SignalQueue::next() const {
  signalfd_siginfo info{};
  if (::read(descriptor_.get(), &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace troupe
