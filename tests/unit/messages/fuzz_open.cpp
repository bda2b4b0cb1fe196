// Fuzz target: whatever bytes stand behind a right MAC, a FrameOpener answers with a frame that can be read in full, or refuses.
// Built with -DTROUPE_LIBFUZZER=ON and clang it is a libFuzzer program; otherwise main() below mutates a corpus of all kinds, always
// in the same way: fuzz_open [RUNS [SEED]].
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "messages/frame.hpp"
#include "messages/write.hpp"
#include "tests/unit/messages/any_letter.hpp"

namespace {

using namespace troupe;

constexpr Party sender{Rank{0}, Incarnation{0}}, receiver{Rank{1}, Incarnation{0}};
std::uint64_t accepted = 0;

void open_and_read(std::span<const std::byte> frame) {
  static FrameCounts counts;
  FrameOpener opener(Session{}, receiver, sender, counts);
  auto opened = opener.open(frame);
  if (!opened) return;
  ++accepted;
  if (opened->header.type != FrameType::letter) return;
  const auto parcel = std::make_shared<const Parcel>(kj::mv(opened->words), Lease{});
  if (!dispatch(parcel, [](const auto& letter) {
        (void)letter.where();
        (void)letter.body().totalSize();
      }))
    throw std::runtime_error("its kind is unknown");
  if (test::fields_of(parcel->envelope()).empty()) throw std::runtime_error("it has no fields");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  open_and_read(bytes);
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  sealed.resize(size + frame_mac_bytes);
  static SessionMac mac(Session{}.key);
  mac.compute(std::span(sealed).first(size), std::span(sealed).last<frame_mac_bytes>());
  open_and_read(sealed);
  return 0;
}

#ifndef TROUPE_LIBFUZZER
namespace {

/// Frames of all kinds, without their MAC.
std::vector<std::vector<std::uint8_t>> corpus() {
  std::vector<std::vector<std::uint8_t>> frames;
  for (const auto kind : test::all_kinds()) {
    FrameSealer sealer(Session{}, sender, receiver);
    const auto frame = sealer.seal(Parcel(test::filled_letter(kind), Lease{}), 0);
    std::vector<std::uint8_t> bytes(frame->size() - frame_mac_bytes);
    std::memcpy(bytes.data(), frame->data(), bytes.size());
    frames.push_back(std::move(bytes));
  }
  return frames;
}

void mutate(std::vector<std::uint8_t>& bytes, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  // Mostly behind the header, whose checks stop nearly everything else.
  const auto place = [&] {
    return bytes.size() > frame_header_bytes && random() % 8 != 0 ? frame_header_bytes + below(bytes.size() - frame_header_bytes) : below(bytes.size());
  };
  switch (random() % 6) {
    case 0: bytes[place()] ^= static_cast<std::uint8_t>(1U << (random() % 8)); break;
    case 1: bytes[place()] = static_cast<std::uint8_t>(random()); break;
    case 2: {  // a whole pointer or number
      const std::uint64_t values[] = {0, ~std::uint64_t{0}, random(), random() % 64, std::uint64_t{1} << (random() % 64)};
      const std::size_t at = place() / 8 * 8;
      if (at + 8 <= bytes.size()) std::memcpy(bytes.data() + at, &values[random() % 5], 8);
      break;
    }
    case 3: {  // a pointer elsewhere in the frame
      const std::size_t from = place() / 8 * 8, to = place() / 8 * 8;
      if (std::max(from, to) + 8 <= bytes.size()) std::memmove(bytes.data() + to, bytes.data() + from, 8);
      break;
    }
    case 4: bytes.resize(std::max<std::size_t>(1, bytes.size() - below(bytes.size()))); break;
    default: bytes.insert(bytes.end(), random() % 64, static_cast<std::uint8_t>(random())); break;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t runs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100000;
  std::mt19937_64 random(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  const auto seeds = corpus();
  for (const auto& seed : seeds) LLVMFuzzerTestOneInput(seed.data(), seed.size());
  if (accepted != seeds.size()) {
    std::fprintf(stderr, "only %llu of %zu unchanged frames were accepted\n", static_cast<unsigned long long>(accepted), seeds.size());
    return 1;
  }
  for (std::uint64_t run = 0; run < runs; ++run) {
    const std::size_t kind = random() % seeds.size();
    auto bytes = seeds[kind];
    for (std::uint64_t i = 0; i <= random() % 4; ++i) mutate(bytes, random);
    try {
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "run %llu, a changed %s, was accepted although it cannot be read: %s\n", static_cast<unsigned long long>(run),
                   name_of(test::all_kinds()[kind]), problem.what());
      return 1;
    }
  }
  std::printf("%llu mutated frames, %llu accepted and read in full\n", static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(accepted - seeds.size()));
  return 0;
}
#endif
