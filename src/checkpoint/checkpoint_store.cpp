#include "src/checkpoint/checkpoint_store.hpp"

#include <algorithm>
#include <charconv>

#include "src/checkpoint/shard_file.hpp"
#include "src/checkpoint/shard_reads.hpp"

namespace troupe {
namespace {

constexpr const char* manifest_name = "manifest.json";

/// N of "step-N" with this tail; nothing for any other name.
std::optional<Step> step_of(std::string_view name, std::string_view tail_begins) {
  if (!name.starts_with("step-")) return std::nullopt;
  name.remove_prefix(5);
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  const auto tail = name.substr(static_cast<std::size_t>(end - name.data()));
  if (error != std::errc{} || (name.front() == '0' && end - name.data() > 1)) return std::nullopt;
  return (tail_begins.empty() ? tail.empty() : tail.starts_with(tail_begins)) ? std::optional(Step{step}) : std::nullopt;
}

Result<std::string> read_all(Storage& storage, const std::filesystem::path& file) {
  auto reader = storage.open(file);
  if (!reader) return reader.error();
  std::string text((*reader)->size(), '\0');
  if (auto read = (*reader)->read_at(0, std::as_writable_bytes(std::span(text))); !read) return read.error();
  return text;
}

/// By size and header.
Result<void> check_file(Storage& storage, const std::filesystem::path& folder, const SavedShard& file) {
  auto reader = storage.open(folder / file.file);
  if (!reader) return reader.error();
  const auto header = read_shard_header(**reader, folder, file);
  return header ? Result<void>{} : Result<void>{header.error()};
}

std::string listed(const std::vector<Step>& steps) {
  std::string text;
  for (const Step step : steps) text += (text.empty() ? "" : ", ") + std::to_string(step.value());
  return text.empty() ? "none" : text;
}

}  // namespace

std::filesystem::path CheckpointStore::sealed_folder(Step step) const { return folder_ / ("step-" + std::to_string(step.value())); }

std::filesystem::path CheckpointStore::writing_folder(Step step, EpochId epoch) const {
  return folder_ / ("step-" + std::to_string(step.value()) + ".tmp-" + std::to_string(epoch.value()));
}

Result<void> CheckpointStore::seal(const RunPosition& position, const std::vector<SavedShard>& shards) {
  const auto writing = writing_folder(position.step, position.epoch), sealed = sealed_folder(position.step);
  const auto manifest = assemble_manifest(storage_, writing, position, shards);
  if (!manifest) return manifest.error();
  auto writer = storage_.create(writing / manifest_name);
  if (!writer) return writer.error();
  const std::string text = manifest->to_json();
  if (auto written = (*writer)->write(std::as_bytes(std::span(text))); !written) return written;
  if (auto synced = (*writer)->sync(); !synced) return synced;
  writer->reset();
  if (auto synced = storage_.sync_folder(writing); !synced) return synced;
  const auto aside = sealed.string() + ".old";
  const bool replaced = storage_.exists(sealed);
  if (replaced) {
    if (auto removed = storage_.remove(aside); !removed) return removed;
    if (auto moved = storage_.rename(sealed, aside); !moved) return moved;
  }
  if (auto renamed = storage_.rename(writing, sealed); !renamed) {
    if (replaced) (void)storage_.rename(aside, sealed);
    return renamed;
  }
  if (auto synced = storage_.sync_folder(folder_); !synced) return synced;
  if (auto synced = storage_.sync_folder(folder_.parent_path()); !synced) return synced;  // the first save made folder_
  // From here on it is sealed; what cannot be removed now goes at the next start.
  if (replaced) (void)storage_.remove(aside);
  remove_older_leftovers(position.step);
  return {};
}

void CheckpointStore::remove_older_leftovers(Step sealed) {
  const auto entries = storage_.list(folder_);
  if (!entries) return;
  for (const auto& entry : *entries) {
    const auto step = step_of(entry.name, ".tmp");
    if (step && entry.folder && *step < sealed) (void)storage_.remove(folder_ / entry.name);
  }
}

Result<void> CheckpointStore::give_up(Step step, EpochId epoch) { return storage_.remove(writing_folder(step, epoch)); }

Result<std::vector<Step>> CheckpointStore::steps() const {
  auto entries = storage_.list(folder_);
  if (!entries) return entries.error();
  std::vector<Step> steps;
  for (const auto& entry : *entries) {
    const auto step = step_of(entry.name, "");
    if (step && entry.folder && storage_.exists(folder_ / entry.name / manifest_name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<FoundCheckpoint> CheckpointStore::open(Step step) const {
  const auto folder = sealed_folder(step), file = folder / manifest_name;
  const auto text = read_all(storage_, file);
  if (!text) return text.error();
  auto manifest = Manifest::from_json(*text, file.string());
  if (!manifest) return manifest.error();
  if (manifest->position.step != step) return Error{file.string() + ": is of step " + std::to_string(manifest->position.step.value())};
  return FoundCheckpoint{folder, std::move(*manifest)};
}

Result<FoundCheckpoint> CheckpointStore::check(Step step, bool hashes) const {
  auto found = open(step);
  if (!found) return found;
  for (const auto& file : found->manifest.files) {
    if (auto whole = check_file(storage_, found->folder, file); !whole) return whole.error();
  }
  if (!hashes) return found;
  ShardReads reads(found->manifest, found->folder, storage_);
  if (auto all = reads.add_all(); !all) return all.error();
  std::function<void(std::uint64_t, std::uint64_t)> told;
  if (progress_) told = [this, step](std::uint64_t done, std::uint64_t total) { progress_(step, done, total); };
  if (auto read = reads.run(told); !read) return read.error();
  return found;
}

Result<std::optional<FoundCheckpoint>> CheckpointStore::find(std::int64_t load_step, bool hashes, std::vector<std::string>& warnings) const {
  auto entries = storage_.list(folder_);
  if (!entries) return entries.error();
  std::vector<Step> named;
  for (const auto& entry : *entries) {
    if (const auto step = step_of(entry.name, ""); step && entry.folder) named.push_back(*step);
  }
  std::sort(named.begin(), named.end());
  if (load_step >= 0) {
    const Step wanted{static_cast<std::uint64_t>(load_step)};
    if (!std::binary_search(named.begin(), named.end(), wanted)) {
      return Error{"checkpoint.load_step = " + std::to_string(load_step) + ": no such checkpoint in " + folder_.string() + "; there are: " + listed(named)};
    }
    auto found = check(wanted, hashes);
    if (!found) return Error{"checkpoint.load_step = " + std::to_string(load_step) + ": " + found.error().message + "; there are: " + listed(named)};
    return std::optional(std::move(*found));
  }
  for (auto step = named.rbegin(); step != named.rend(); ++step) {
    auto found = check(*step, hashes);
    if (found) return std::optional(std::move(*found));
    warnings.push_back("the checkpoint of step " + std::to_string(step->value()) + " cannot be used: " + found.error().message);
  }
  if (named.empty()) return std::optional<FoundCheckpoint>{};
  return Error{"none of the checkpoints in " + folder_.string() + " (steps " + listed(named) + ") can be used; the newest: " + warnings.front() +
               ". Move them away to start from the beginning"};
}

Result<void> CheckpointStore::purge(std::int64_t keep, std::optional<Step> spare) {
  if (keep <= 0) return {};
  const auto all = steps();
  if (!all) return all.error();
  std::int64_t whole = 0;
  for (auto step = all->rbegin(); step != all->rend(); ++step) {
    if (!check(*step, false)) continue;
    if (++whole <= keep || step->value() == (spare ? spare->value() : 0)) continue;
    // Under another name first: a half-deleted checkpoint never looks whole.
    const auto doomed = sealed_folder(*step).string() + ".tmp-purge";
    if (auto renamed = storage_.rename(sealed_folder(*step), doomed); !renamed) return renamed;
    if (auto removed = storage_.remove(doomed); !removed) return removed;
  }
  return {};
}

Result<std::vector<std::string>> CheckpointStore::set_aside_after(Step step, Step until) {
  const auto entries = storage_.list(folder_);
  if (!entries) return entries.error();
  std::vector<std::string> names;
  for (const auto& entry : *entries) {
    const auto later = step_of(entry.name, "");
    if (!later || !entry.folder || *later <= step || *later > until) continue;
    std::string name;
    for (std::uint64_t k = 1; name.empty() || storage_.exists(folder_ / name); ++k) name = entry.name + ".abandoned-" + std::to_string(k);
    if (auto moved = storage_.rename(folder_ / entry.name, folder_ / name); !moved) return moved.error();
    names.push_back(std::move(name));
  }
  if (names.empty()) return names;
  if (auto synced = storage_.sync_folder(folder_); !synced) return synced.error();
  return names;
}

Result<std::vector<std::string>> CheckpointStore::clean() {
  auto entries = storage_.list(folder_);
  if (!entries) return entries.error();
  std::vector<std::string> removed;
  for (const auto& entry : *entries) {
    if (!entry.folder) continue;
    const auto path = folder_ / entry.name;
    if (const auto replaced = step_of(entry.name, ".old"); replaced && !storage_.exists(sealed_folder(*replaced))) {
      if (auto back = storage_.rename(path, sealed_folder(*replaced)); !back) return back.error();
    } else if (replaced || step_of(entry.name, ".tmp")) {
      if (auto gone = storage_.remove(path); !gone) return gone.error();
      removed.push_back(entry.name);
    }
  }
  return removed;
}

}  // namespace troupe
