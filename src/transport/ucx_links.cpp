#include <algorithm>
#include <utility>

#include "src/transport/ucx_transport.hpp"

namespace troupe {
namespace {

std::string name(const UcxLink& link) { return "rank " + std::to_string(link.peer.rank.value()); }

}  // namespace

void UcxTransport::open_endpoint(const Link& link, const std::string& address) {
  known_[link->peer.rank] = link;
  attended_.push_back(link);
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.cb = &UcxTransport::endpoint_failed;
  parameters.err_handler.arg = link.get();
  const ucs_status_t status = ucp_ep_create(worker_->handle(), &parameters, &link->endpoint);
  if (status != UCS_OK) {
    link->endpoint = nullptr;
    link->broken = "no connection: " + std::string(ucs_status_string(status));
    return;
  }
  const auto process = process_in(address);
  if (process && process->host == self_.host) link->process = process;
  if (link->process) offer_ring(link);
  admit_early(link);
}

void UcxTransport::endpoint_failed(void* argument, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  auto& link = *static_cast<UcxLink*>(argument);
  if (!link.broken) link.broken = ucs_status_string(status);  // the endpoint is closed after progress, outside of UCX's callback
}

void UcxTransport::refuse_sends(const Link& link, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (link->accepts_sends) link->refusal = why;
  link->accepts_sends = false;
}

/// No frame of this link counts any more; UCX is asked to give everything back. A broken endpoint answers its requests by itself, but
/// not those that are pending when it is closed (1.22, over shared memory): attend() closes it after the last, or after some time.
void UcxTransport::end_link(const Link& link, const std::string& refusal) {
  refuse_sends(link, refusal);
  link->state = UcxLink::State::gone;
  link->deadline = clock_.now() + answer_limit;
  if (!link->broken || link->pending == 0) close_endpoint(link);
  drop_parked(*link);
  end_rings(link);
}

void UcxTransport::close_endpoint(const Link& link) {
  if (link->endpoint == nullptr || link->endpoint_closing) return;
  link->endpoint_closing = true;
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
  parameters.user_data = link.get();
  parameters.cb.send = [](void* request, ucs_status_t, void* user_data) {
    static_cast<UcxLink*>(user_data)->endpoint = nullptr;
    ucp_request_free(request);
  };
  void* request = ucp_ep_close_nbx(link->endpoint, &parameters);
  if (!UCS_PTR_IS_PTR(request)) link->endpoint = nullptr;
}

void UcxTransport::begin_close(const Link& link, CloseMode mode, Nanos deadline, Completion completion) {
  using State = UcxLink::State;
  if (link->state == State::gone || link->state == State::draining || link->state == State::parting) {
    if (completion) completion(link->state == State::gone ? Result<void>{} : Result<void>{Error{"the link to " + name(*link) + " is being closed already"}});
    return;
  }
  link->closed = std::move(completion);
  if (mode == CloseMode::force || link->endpoint == nullptr) {
    end_link(link, "its link was closed here");
    return finish_close(link, {});
  }
  if (link->state == State::left) return;  // ends by itself
  link->state = State::draining;
  link->deadline = deadline;
}

void UcxTransport::finish_close(const Link& link, const Result<void>& result) {
  if (const Completion closed = std::exchange(link->closed, nullptr)) closed(result);
}

void UcxTransport::lose(const Link& link, const std::string& cause) {
  using State = UcxLink::State;
  const auto before = link->state;
  end_link(link, "it was lost: " + cause);
  if (before == State::open) return handlers_.peer_lost(link->peer.rank, cause);
  // A peer that has parted closes only when it has our answer to its goodbye, and with that all that we sent.
  finish_close(link, link->peer_parted ? Result<void>{} : Result<void>{Error{name(*link) + " went away before it took everything in: " + cause}});
}

bool UcxTransport::attend_links() {
  bool worked = false;
  const Nanos now = clock_.now();
  for (std::size_t i = 0; i < attended_.size(); ++i) {
    const Link link = attended_[i];
    const auto before = link->state;
    attend(link, now);
    worked |= link->state != before;
  }
  const auto over = [](const Link& link) { return link->state == UcxLink::State::gone && link->endpoint == nullptr && link->pending == 0; };
  std::erase_if(attended_, over);
  return worked;
}

void UcxTransport::attend(const Link& link, Nanos now) {
  using State = UcxLink::State;
  if (link->state == State::gone) {
    if (link->pending != 0 && now < link->deadline) return;
    if (link->pending != 0) abandon(*link);
    close_endpoint(link);
    return;
  }
  if (link->broken) return lose(link, *link->broken);
  if (link->state == State::draining && link->pending == 0) {
    if (link->peer_parted) {
      link->state = State::left;
      link->deadline = now + linger;
    } else {
      link->state = State::parting;
      say(link, FrameType::goodbye);
    }
  }
  if (link->state == State::left && link->pending == 0) finish_close(link, {});
  if (link->state == State::open || now < link->deadline) return;
  const bool clean = link->peer_parted;
  end_link(link, clean ? "it has closed its link" : "its link was closed here");
  finish_close(link,
               clean ? Result<void>{} : Result<void>{Error{name(*link) + " did not take everything in before the close's time was over; the link was cut"}});
}

/// A frame without a letter. Through the queue, so that it is sent after what was sealed before it.
void UcxTransport::say(const Link& link, FrameType type, std::uint64_t payload_bytes, std::uint64_t hash) {
  const std::lock_guard lock(mutex_);
  auto* outgoing = new UcxOutgoing{link, nullptr, link->sealer.seal(type, payload_bytes, hash), 0, nullptr, clock_.now()};
  post_locked([this, outgoing] { put(outgoing); });
}

}  // namespace troupe
