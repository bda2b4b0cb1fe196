#pragma once
#include <memory>
#include <optional>

#include "messages/edge_kind.hpp"
#include "src/model/programs.hpp"
#include "src/runtime/runtime.hpp"

namespace troupe {

/// A ComputeProgram that, at each forward, looks again at the weights of the forward before: their slot has gone home.
[[nodiscard]] std::shared_ptr<ComputeProgram> reads_weights_after_release(std::shared_ptr<ComputeProgram> inner);

/// A ShardProgram that takes the first unit's sum over replicas for done: what one replica has then differs from the others.
[[nodiscard]] std::shared_ptr<ShardProgram> forgets_a_sum_over_replicas(std::shared_ptr<ShardProgram> inner);

/// A PostOffice that loses the letters of a kind from its `first` on (counted from 1), or sends each of them twice; or of SlotHome those
/// of one edge alone.
class BrokenPostOffice final : public PostOffice {
 public:
  enum class Fault { loses, doubles };
  BrokenPostOffice(PostOffice& inner, schema::Envelope::Body::Which kind, Fault fault, int first = 1)
      : inner_(inner), kind_(kind), fault_(fault), first_(first) {}
  BrokenPostOffice(PostOffice& inner, schema::Envelope::Body::Which kind, Fault fault, EdgeKind edge) : BrokenPostOffice(inner, kind, fault) { edge_ = edge; }
  void post(std::shared_ptr<const Parcel> parcel) override {
    const auto body = parcel->envelope().getBody();
    const bool meant = body.which() == kind_ && (!edge_ || body.getSlotHome().getEdge() == static_cast<std::uint16_t>(*edge_));
    const bool struck = meant && ++seen_ >= first_;
    if (struck && fault_ == Fault::loses) return;
    if (struck) inner_.post(parcel);
    inner_.post(std::move(parcel));
  }

 private:
  PostOffice& inner_;
  const schema::Envelope::Body::Which kind_;
  const Fault fault_;
  const int first_;
  std::optional<EdgeKind> edge_;
  int seen_ = 0;
};

}  // namespace troupe
