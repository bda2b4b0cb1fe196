#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "src/base/result.hpp"
#include "src/metrics/metric_sink.hpp"

namespace troupe {

/// A TensorBoard event file: records in TFRecord framing (length, masked CRC-32C of it, an Event message, masked CRC-32C of that). Each
/// record is one write, so a killed process tears none but the last; each start makes a file of its own, which begins with the file's version
/// and a session's start at the first step to come, so that a viewer drops what an earlier file in the same folder says of later steps.
/// Values that are not finite are stored as such. Steps of one call share one record.
class TensorBoardFile final : public MetricSink {
 public:
  /// Makes `folder` and in it events.out.tfevents.SECONDS.HOST.PID.NUMBER. `first`: the first step that will be written.
  [[nodiscard]] static Result<std::unique_ptr<TensorBoardFile>> open(const std::filesystem::path& folder, Step first, double wall_time);
  TensorBoardFile(const TensorBoardFile&) = delete;
  TensorBoardFile& operator=(const TensorBoardFile&) = delete;
  ~TensorBoardFile() override;
  [[nodiscard]] Result<void> write(Step step, double wall_time, std::span<const Scalar> scalars) override;
  [[nodiscard]] Result<void> close() override;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  TensorBoardFile(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {}
  [[nodiscard]] Result<void> append(const std::string& event);
  int descriptor_;
  std::filesystem::path path_;
};

/// Where a run's event files go, as torchtitan names it: PARENT/YYYYMMDD-HHMM, the time of the run's start. A run that resumes goes on in the
/// newest such folder, so that a viewer shows one curve.
[[nodiscard]] std::filesystem::path tensorboard_folder(const std::filesystem::path& parent, bool resumes, double wall_time);

}  // namespace troupe
