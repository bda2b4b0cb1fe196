#pragma once
#include <atomic>
#include <memory>

#include "messages/letter.hpp"
#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace troupe {

class Tracer;

/// Delivers letters: to an actor of this process as a pointer, to another process through the transport. Any thread; never blocks;
/// a letter to nobody is dropped and counted.
class PostOffice {
 public:
  virtual ~PostOffice() = default;
  virtual void post(std::shared_ptr<const Parcel> parcel) = 0;
};

/// The bundle that every actor and lane closure gets by reference. main() makes it and outlives all users.
struct Runtime {
  Clock& clock;
  Log& log;
  PostOffice& post_office;
  Tracer* tracer = nullptr;  ///< null: tracing is off
};

/// Writes a letter of kind T and posts it. `fill` sets the body: [](auto body) { body.setTokens(4); }. Any thread.
/// Defined in src/runtime/send.hpp.
template <class T, class Fill>
void send(Runtime& runtime, const Heading& heading, Fill&& fill, Lease lease = {});

}  // namespace troupe
