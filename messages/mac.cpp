#include <openssl/evp.h>
#include <openssl/params.h>

#include <stdexcept>

#include "messages/frame.hpp"

namespace troupe {

struct SessionMac::State {
  EVP_MAC* algorithm = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  EVP_MAC_CTX* context = algorithm == nullptr ? nullptr : EVP_MAC_CTX_new(algorithm);
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(algorithm);
  }
};

SessionMac::SessionMac(std::span<const std::byte, 32> key) : state_(std::make_unique<State>()) {
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0), OSSL_PARAM_construct_end()};
  if (state_->context == nullptr || EVP_MAC_init(state_->context, reinterpret_cast<const unsigned char*>(key.data()), key.size(), parameters) != 1) {
    throw std::runtime_error("OpenSSL offers no HMAC-SHA256, which every frame between processes needs");
  }
}

SessionMac::~SessionMac() = default;

void SessionMac::compute(std::span<const std::byte> data, std::span<std::byte, frame_mac_bytes> mac) {
  std::array<unsigned char, 32> full{};
  std::size_t length = 0;
  const bool done = EVP_MAC_init(state_->context, nullptr, 0, nullptr) == 1 &&
                    EVP_MAC_update(state_->context, reinterpret_cast<const unsigned char*>(data.data()), data.size()) == 1 &&
                    EVP_MAC_final(state_->context, full.data(), &length, full.size()) == 1 && length == full.size();
  if (!done) throw std::runtime_error("OpenSSL failed to compute HMAC-SHA256");
  for (std::size_t i = 0; i < mac.size(); ++i) mac[i] = static_cast<std::byte>(full[i]);
}

}  // namespace troupe
