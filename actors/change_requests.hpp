#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/base/ids.hpp"
#include "src/base/result.hpp"

namespace troupe {

/// What became of a request.
struct Agreed {
  std::string text;          ///< one line
  std::uint64_t change = 0;  ///< its number among those that take a new epoch (JobView::changes says how they fare); 0: it is done
};

/// What somebody wants of a live run.
struct ChangeRequest {
  std::vector<std::string> set;  ///< "optimizer.lr=1e-4": keys and values, checked
  std::string fault_rule;        ///< or a rule to add, checked
  std::uint32_t join = 0;        ///< or so many ranks to add
  std::vector<Rank> which = {};  ///< join: of these all that are no members and were not asked to leave; empty: the lowest that are free
  std::uint32_t leave = 0;       ///< or so many to let go
  std::string by;                ///< who asks: "troupe set"; empty: only say what would be
  bool new_epoch = false;        ///< `set` takes a new epoch
  std::uint32_t ranks = 0;       ///< that its plans were compiled and checked for, before the Coordinator is asked
  std::string means;             ///< for memory and plans, for whoever only asks; empty: nothing is said
  /// Called once with what was agreed, or why nothing was; must not block. May be empty.
  std::function<void(const Result<Agreed>&)> answer;
};

/// On its way to the Coordinator, who is told by a ChangeRequested letter. Any thread.
class ChangeRequests {
 public:
  void add(ChangeRequest request) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(request));
  }
  [[nodiscard]] std::vector<ChangeRequest> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(waiting_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<ChangeRequest> waiting_;
};

}  // namespace troupe
