#pragma once
#include <functional>

#include "src/device/device.hpp"

namespace troupe {

/// How the copy lane of a rank takes state out of `device`, which outlives it: done on return, because that lane is a thread of the host.
[[nodiscard]] inline std::function<void(Stream&, const TensorView& from, std::byte* to)> copies_out_of(Device& device) {
  return [&device](Stream& stream, const TensorView& from, std::byte* to) {
    device.download(stream, bytes_of(from), {to, from.bytes()});
    device.wait(stream);
  };
}

/// How a restore on the main thread puts state into `device`. Empty where files can be read into its memory.
[[nodiscard]] inline std::function<void(const std::byte* from, const TensorView& to)> copies_into(Device& device) {
  if (device.host_visible()) return {};
  return [&device](const std::byte* from, const TensorView& to) { device.upload_now({from, to.bytes()}, bytes_of(to)); };
}

}  // namespace troupe
