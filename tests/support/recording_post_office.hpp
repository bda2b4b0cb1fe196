#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "messages/kinds.hpp"
#include "src/runtime/directory.hpp"

namespace troupe {

/// Passes letters on to a Directory and remembers them in order. Letters to addresses that are not there stay here with their leases,
/// until the test lets go of them. One thread.
class RecordingPostOffice final : public PostOffice {
 public:
  struct Entry {
    LetterKind kind{};
    ActorAddress from, to;
    Where where;
    OperationIndex operation;
    std::string slot;                      ///< of a SlotHome: "slot 0 of weights"
    std::shared_ptr<const Parcel> parcel;  ///< null if it was delivered
  };
  explicit RecordingPostOffice(Directory& directory) : directory_(directory) {}

  void post(std::shared_ptr<const Parcel> parcel) override;
  [[nodiscard]] const std::vector<Entry>& all() const noexcept { return entries_; }
  /// Those of one kind, oldest first.
  template <class T>
  [[nodiscard]] std::vector<Letter<T>> kept() const {
    std::vector<Letter<T>> result;
    for (const Entry& entry : entries_) {
      if (entry.kind == Body<T>::kind && entry.parcel) result.emplace_back(entry.parcel);
    }
    return result;
  }
  [[nodiscard]] std::size_t count(LetterKind kind) const {
    return static_cast<std::size_t>(std::count_if(entries_.begin(), entries_.end(), [kind](const Entry& entry) { return entry.kind == kind; }));
  }
  /// Lets go of all letters that were kept: their leases end.
  void forget();

 private:
  Directory& directory_;
  std::vector<Entry> entries_;
};

}  // namespace troupe
