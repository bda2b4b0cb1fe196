#include "src/config/unbuilt_sections.hpp"

namespace troupe {
namespace {

using Names = std::vector<std::string>;

void describe_low_precision(Schema& schema) {
  const std::string missing = "MXFP8", experts = "mixture of experts", by = "model.converters";
  schema.section("quantize.linear.mx", "MXFP8 linear layers.");
  schema.not_built("recipe_name", "mxfp8_cublas", "granularity and rounding", missing).part_of(by).alias("mx.recipe_name");
  schema.not_built("filter_fqns", Names{"output"}, "linear layers that stay as they are", missing).or_single().part_of(by).alias("mx.filter_fqns");
  schema.not_built("mxfp8_dim1_cast_kernel_choice", "triton", "kernel of the casts", missing).part_of(by).one_of({"triton", "cuda", "torch"});
  schema.not_built("use_fp8_dim1_cast_triton_kernel", true, "kernel of the casts", missing).part_of(by).alias("mx.use_fp8_dim1_cast_triton_kernel");
  schema.section("quantize.grouped_mm.float8", "FP8 products of experts.");
  schema.not_built("fqns", Names{}, "modules whose experts compute in fp8", experts).or_single().part_of(by);
  schema.section("quantize.grouped_mm.mx", "MXFP8 products of experts.");
  schema.not_built("fqns", Names{}, "modules whose experts compute in mxfp8", experts).or_single().part_of(by);
  schema.not_built("recipe_name", "mxfp8", "granularity", experts).part_of(by).one_of({"mxfp8"});
}

void describe_fault_tolerance(Schema& schema) {
  schema.section("fault_tolerance", "torchtitan's replica groups, which outlive each other.");
  const std::string missing = "replica groups", by = "fault_tolerance.enable";
  schema.not_built("enable", false, "this job is one group of several", missing);
  schema.not_built("replica_id", 0, "number of this group", missing).at_least(0).part_of(by);
  schema.not_built("group_size", 0, "groups that there are", missing).at_least(0).part_of(by);
  schema.not_built("min_replica_size", 1, "groups without which no step is made", missing).at_least(0).part_of(by);
  schema.not_built("process_group", "gloo", "what joins the groups", missing).one_of({"gloo", "nccl"}).part_of(by);
  schema.not_built("process_group_timeout_ms", 10000, "limit of its waiting", missing).at_least(1).part_of(by);
  schema.not_built("semi_sync_method", std::optional<std::string>{}, "groups that agree seldom", missing).one_of({"local_sgd", "diloco"}).part_of(by);
  schema.not_built("sync_steps", 5, "steps between agreements", missing).at_least(1).part_of(by);
  schema.not_built("should_quantize", false, "agree in fewer bits", missing).part_of(by);
  schema.not_built("num_fragments", 1, "parts of the model that agree in turn", missing).at_least(1).part_of(by);
  schema.not_built("fragment_sync_delay", 0, "steps by which an agreement comes late", missing).at_least(0).part_of(by);
  schema.not_built("fragment_update_alpha", 0.0, "share of the old value", missing).at_least(0).at_most(1).part_of(by);
  schema.not_built("module_fqns_per_model_fragment", Names{}, "modules of each part", missing).part_of(by);
}

void describe_memory_estimation(Schema& schema) {
  schema.section("memory_estimation", "torchtitan's estimate in place of a run.");
  const std::string instead = "`troupe train --dry-run` prints the memory";
  schema.not_built("enable", false, "estimate instead of training", instead).alias("memory_estimation.enabled");
  schema.not_built("disable_fake_mode", false, "allocate while estimating", instead).part_of("memory_estimation.enable");
}

/// Keys that torchtitan's Flux and its experiments add by a configuration module of their own.
void describe_other_families(Schema& schema) {
  const std::string images = "models of images", by = "model.name";
  const auto later = [&](const char* name, HeldValue initial, const char* doc) -> Key& {
    return schema.not_built(name, std::move(initial), doc, images).part_of(by);
  };
  schema.section("training");
  later("classifier_free_guidance_prob", 0.0, "share of samples without a prompt").alias("training.classifer_free_guidance_prob");
  later("img_size", 256, "pixels of a side");
  later("test_mode", false, "without the encoders");
  schema.section("encoder", "Encoders of models of images.");
  later("t5_encoder", "google/t5-v1_1-small", "of prompts");
  later("clip_encoder", "openai/clip-vit-large-patch14", "of prompts");
  later("autoencoder_path", std::optional<std::string>{}, "of images");
  later("max_t5_encoding_len", 256, "tokens of a prompt");
  later("test_mode", false, "without weights");
  schema.section("validation");
  later("enable_classifier_free_guidance", false, "when drawing");
  later("classifier_free_guidance_scale", 5.0, "when drawing");
  later("denoising_steps", 50, "when drawing");
  later("all_timesteps", false, "loss at all noise levels");
  later("save_img_count", 1, "pictures kept");
  later("save_img_folder", "img", "folder of pictures");
  schema.section("eval", "Evaluation of models of images.");
  later("enable_classifer_free_guidance", false, "when drawing");
  later("classifer_free_guidance_scale", 5.0, "when drawing");
  later("denoising_steps", 50, "when drawing");
  later("eval_freq", 100, "steps between evaluations");
  later("save_img_folder", "img", "folder of pictures");
  schema.section("inference", "Drawing with models of images.");
  later("local_batch_size", 2, "pictures at once");
  later("prompts_path", "", "file of prompts");
  later("save_img_folder", "inference_results", "folder of pictures");
  schema.section("data");
  later("max_images_per_batch", 64, "of models that read images");
  later("max_patches_per_image", 1024, "of models that read images");
  schema.section("hf_transformers", "Models of Hugging Face's classes.");
  later("model", "", "name of the model");
}

}  // namespace

void describe_unbuilt_sections(Schema& schema) {
  describe_low_precision(schema);
  describe_fault_tolerance(schema);
  describe_memory_estimation(schema);
  describe_other_families(schema);
}

}  // namespace troupe
