#include <cstdio>

#include "src/checkpoint/checkpoint_store.hpp"
#include "src/checkpoint/export_hugging_face.hpp"
#include "src/config/load_extension.hpp"
#include "tools/commands/commands.hpp"
#include "tools/launcher/checkpoint_path.hpp"
#include "tools/launcher/foreign_start.hpp"

namespace troupe {
namespace {

Result<void> convert_checkpoint(const ConvertRequest& request) {
  const auto storage = make_posix_storage();
  const auto found = open_checkpoint_at(request.checkpoint, *storage);
  if (!found) return found.error();
  const auto config = with_extension(JobConfig::parse(found->manifest.position.config, (found->folder / "manifest.json").string() + ", config"));
  if (!config) return config.error();
  auto plan = plan_export(*config, *storage);
  if (!plan) return plan.error();
  if (!request.tokenizer.empty()) plan->assets = request.tokenizer;
  if (request.dtype == "float32") plan->dtype = StoredType::f32;
  if (request.dtype == "bfloat16") plan->dtype = StoredType::bf16;
  if (request.dtype == "float16") plan->dtype = StoredType::f16;
  plan->most_file_bytes = request.most_file_mib << 20U;
  return export_hugging_face(*found, *storage, *plan, request.out);
}

}  // namespace

int convert_weights(const ConvertRequest& request) {
  if (auto done = convert_checkpoint(request); !done) {
    std::fprintf(stderr, "troupe convert: %s\n", done.error().message.c_str());
    return exit_failed;
  }
  std::printf("%s\n", request.out.string().c_str());
  return exit_done;
}

}  // namespace troupe
