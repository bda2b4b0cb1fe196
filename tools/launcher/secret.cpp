#include "tools/launcher/secret.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace troupe {

Digest random_nonce() {
  Digest bytes{};
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) != 1)
    throw std::runtime_error("the system's random generator failed");
  return bytes;
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte byte : bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    text += digits[std::to_integer<unsigned>(byte) >> 4U];
    text += digits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

Result<std::vector<std::byte>> from_hex(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  if (text.size() % 2 != 0) return Error{fmt::format("expected an even number of hexadecimal digits, found {}", text.size())};
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) return Error{fmt::format("expected hexadecimal digits, found something else at position {}", i)};
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return bytes;
}

Secret Secret::random() {
  Secret secret;
  secret.bytes_ = random_nonce();
  return secret;
}

Result<Secret> Secret::from_hex(std::string_view text) {
  auto bytes = troupe::from_hex(text);
  if (!bytes) return Error{"the job's secret: " + bytes.error().message};
  Secret secret;
  if (bytes->size() != secret.bytes_.size())
    return Error{fmt::format("the job's secret: expected {} hexadecimal digits, found {}", 2 * secret.bytes_.size(), text.size())};
  std::ranges::copy(*bytes, secret.bytes_.begin());
  return secret;
}

Result<Secret> Secret::from_file(const std::filesystem::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return Error{fmt::format("the job's secret: cannot read {} (TROUPE_SECRET_FILE)", file.string())};
  if ((status.st_mode & 077U) != 0)
    return Error{fmt::format("the job's secret: {} may be read by others (mode {:o}); chmod 600 it", file.string(), status.st_mode & 0777U)};
  std::ifstream stream(file);
  std::string text;
  stream >> text;
  auto secret = from_hex(text);
  if (!secret) return Error{fmt::format("{} (in {})", secret.error().message, file.string())};
  return secret;
}

std::string Secret::hex() const { return to_hex(bytes_); }

Digest Secret::authenticate(std::string_view purpose, std::span<const std::span<const std::byte>> parts) const {
  std::vector<unsigned char> message(purpose.begin(), purpose.end());
  message.push_back(0);
  for (const auto& part : parts) {
    const auto* data = reinterpret_cast<const unsigned char*>(part.data());
    message.insert(message.end(), data, data + part.size());
  }
  Digest digest{};
  unsigned int length = 0;
  if (HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()), message.data(), message.size(), reinterpret_cast<unsigned char*>(digest.data()),
           &length) == nullptr)
    throw std::runtime_error("HMAC-SHA256 failed");
  return digest;
}

}  // namespace troupe
