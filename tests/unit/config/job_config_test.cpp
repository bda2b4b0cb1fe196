#include "src/config/job_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

JobConfig accepted(const std::string& text, const Arguments& arguments = {}) {
  auto config = JobConfig::parse(text, "run.toml", arguments);
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : JobConfig{};
}

std::string refusal(const std::string& text, const Arguments& arguments = {}) {
  auto config = JobConfig::parse(text, "run.toml", arguments);
  return config ? "accepted" : config.error().message;
}

TEST(JobConfig, DefaultsAreTorchtitans) {
  const JobConfig config = accepted("");
  EXPECT_EQ(config.optimizer.lr, 8e-4);
  EXPECT_EQ(config.training.seq_len, 2048);
  EXPECT_EQ(config.lr_scheduler.decay_ratio, std::nullopt);
  EXPECT_EQ(config.parallelism.data_parallel_shard_degree, -1);
}

TEST(JobConfig, TheCommandLineWinsOverTheFileAndTheFileOverTheDefault) {
  const JobConfig config = accepted("[training]\nsteps = 20\nseq_len = 64\n", {"--training.steps", "30"});
  EXPECT_EQ(config.training.steps, 30);
  EXPECT_EQ(config.training.seq_len, 64);
  EXPECT_EQ(config.training.local_batch_size, 8);
  EXPECT_EQ(config.origins.at("training.steps").source, KeySource::command_line);
  EXPECT_EQ(config.origins.at("training.seq_len").where, "run.toml:3:1");
  EXPECT_EQ(config.origins.count("training.local_batch_size"), 0U);
}

TEST(JobConfig, EveryTypeHasItsForms) {
  const JobConfig config = accepted("[model]\nconverters = [\"float8\"]\ndim = 256\n[float8]\nfilter_fqns = \"output\"\n[optimizer]\nlr = 1\n",
                                    {"--float8.filter-fqns=output,router.gate", "--lr_scheduler.decay_ratio", "0.5", "--trace.steps", "3,5", "--model.dim",
                                     "none", "--job.description=", "--training.dataset_path", "[\"a b\", \"c\"]"});
  EXPECT_TRUE(config.model.float8());
  EXPECT_THAT(config.float8.filter_fqns, ElementsAre("output", "router.gate"));
  EXPECT_EQ(config.lr_scheduler.decay_ratio, 0.5);
  EXPECT_THAT(config.trace.steps, ElementsAre(3, 5));
  EXPECT_EQ(config.model.dim, std::nullopt);
  EXPECT_EQ(config.optimizer.lr, 1.0);
  EXPECT_EQ(config.job.description, "");
  EXPECT_THAT(config.data.dataset_path, ElementsAre("a b", "c"));
}

// B128
TEST(JobConfig, ABooleanOfTheFileCanBeTurnedOffAndOn) {
  const std::string on = "[checkpoint]\nenable = true\n";
  for (const Arguments& off :
       {Arguments{"--checkpoint.enable=false"}, {"--checkpoint.no_enable"}, {"--checkpoint.no-enable"}, {"--checkpoint.enable", "false"}}) {
    EXPECT_FALSE(accepted(on, off).checkpoint.enable) << off.front();
  }
  EXPECT_TRUE(accepted("", {"--checkpoint.enable"}).checkpoint.enable);
  EXPECT_TRUE(accepted("", {"--checkpoint.enable", "--training.steps", "3"}).checkpoint.enable);
  EXPECT_THAT(refusal(on, {"--checkpoint.enable", "perhaps"}), HasSubstr("unexpected 'perhaps'"));
  EXPECT_THAT(refusal(on, {"--checkpoint.enable=0"}), HasSubstr("checkpoint.enable: expected a boolean, found the string \"0\""));
  EXPECT_FALSE(*accepted("", {"--debug.no_deterministic"}).debug.deterministic);
}

// B129
TEST(JobConfig, MisspeltNamesAreRefusedWithPlaceAndNearestName) {
  EXPECT_EQ(refusal("[training]\nstep = 10\n"), "run.toml:2:1: unknown key 'training.step'; did you mean 'training.steps'?");
  EXPECT_EQ(refusal("\n[trainign]\nsteps = 10\n"), "run.toml:2:2: unknown section 'trainign' (in '[trainign]'); did you mean 'training'?");
  EXPECT_EQ(refusal("", {"--training.stps", "3"}), "command line: unknown key 'training.stps'; did you mean 'training.steps'?");
  EXPECT_EQ(refusal("", {"--optimiser.lr=1"}), "command line: unknown section 'optimiser' (in 'optimiser.lr'); did you mean 'optimizer'?");
  EXPECT_THAT(refusal("[training]\nlr = 1e-3\n"), HasSubstr("did you mean 'optimizer.lr'?"));
  EXPECT_THAT(refusal("[training]\nquaternions = 1\n"), HasSubstr("lists all keys"));
  EXPECT_THAT(refusal("steps = 3\n"), HasSubstr("unknown section 'steps'"));
}

// B129
TEST(JobConfig, WrongTypesAndValuesAreRefusedWithWhatWasFound) {
  EXPECT_EQ(refusal("[training]\nsteps = \"ten\"\n"), "run.toml:2:1: training.steps: expected an integer, found the string \"ten\"");
  EXPECT_EQ(refusal("[training]\nsteps = \"8\"\n"), "run.toml:2:1: training.steps: expected an integer, found the string \"8\"");
  EXPECT_EQ(refusal("[training]\nsteps = 1e3\n"), "run.toml:2:1: training.steps: expected an integer, found the number 1000.0");
  EXPECT_EQ(refusal("[training]\nsteps = 1.5\n"), "run.toml:2:1: training.steps: expected an integer, found the number 1.5");
  EXPECT_EQ(refusal("[training]\nseq_len = 0\n"), "run.toml:2:1: training.seq_len: expected a value at least 1, at most 16777216, found 0");
  EXPECT_EQ(refusal("[comm]\ninit_timeout_seconds = 200000000\n"),
            "run.toml:2:1: comm.init_timeout_seconds: expected a value at least 1, at most 1000000, found 200000000");
  EXPECT_EQ(refusal("[optimizer]\nlr = nan\n"), "run.toml:2:1: optimizer.lr: expected a value at least 0, found nan");
  EXPECT_THAT(refusal("[optimizer]\nlr = 1e300\n"), HasSubstr("optimizer.lr: expected a number that 32-bit floats hold"));
  EXPECT_THAT(refusal("", {"--optimizer.eps=1e-300"}), HasSubstr("optimizer.eps: expected a number that 32-bit floats hold"));
  EXPECT_THAT(refusal("[job]\ndump_folder = \"a\\u0000b\"\n"), HasSubstr("job.dump_folder: expected text without NUL characters"));
  EXPECT_EQ(refusal("[optimizer]\nlr = \"banana\"\n"), "run.toml:2:1: optimizer.lr: expected a number, found the string \"banana\"");
  EXPECT_EQ(refusal("[optimizer]\nlr = true\n"), "run.toml:2:1: optimizer.lr: expected a number, found the boolean true");
  EXPECT_EQ(refusal("[checkpoint]\nenable = 1\n"), "run.toml:2:1: checkpoint.enable: expected a boolean, found the integer 1");
  EXPECT_EQ(refusal("[lr_scheduler]\ndecay_type = \"cubic\"\n"), "run.toml:2:1: lr_scheduler.decay_type: expected linear | sqrt | cosine, found \"cubic\"");
  EXPECT_EQ(refusal("[job]\ndescription = 1979-05-27\n"), "run.toml:2:1: job.description: expected a string, found a date or time");
  EXPECT_EQ(refusal("", {"--training.steps", "1e3"}), "command line: training.steps: expected an integer, found the string \"1e3\"");
  EXPECT_EQ(refusal("", {"--training.steps", "99999999999999999999"}),
            "command line: training.steps: expected an integer, found the string \"99999999999999999999\"");
  EXPECT_THAT(refusal("[trace]\nsteps = [1, \"2\"]\n"), HasSubstr("trace.steps: expected an integer, found the string \"2\""));
  EXPECT_THAT(refusal("[training.steps]\nx = 1\n"), HasSubstr("training.steps: expected an integer, found a table"));
  EXPECT_THAT(refusal("training = 3\n"), HasSubstr("training: is a section; write [training]"));
  EXPECT_THAT(refusal("", {"--training.steps"}), HasSubstr("training.steps: a value is missing"));
}

TEST(JobConfig, AllProblemsAreNamedAtOnce) {
  const std::string message = refusal("[training]\nstep = 1\nseq_len = 0\n", {"--optimizer.lr", "x", "stray"});
  EXPECT_THAT(message, HasSubstr("run.toml:2:1: unknown key"));
  EXPECT_THAT(message, HasSubstr("\nrun.toml:3:1: training.seq_len"));
  EXPECT_THAT(message, HasSubstr("\ncommand line: optimizer.lr"));
  EXPECT_THAT(message, HasSubstr("\ncommand line: unexpected 'stray'"));
}

TEST(JobConfig, AKeySetTwiceInOneSourceIsRefused) {
  EXPECT_THAT(refusal("[training]\nsteps = 1\nsteps = 2\n"), HasSubstr("run.toml:3:"));
  EXPECT_EQ(refusal("[training]\nseed = 1\n[debug]\nseed = 2\n"),
            "run.toml:4:1: debug.seed: 'debug.seed' was already set at run.toml:2:1; keep one of the two");
  EXPECT_THAT(refusal("", {"--training.steps=1", "--training.steps=2"}), HasSubstr("was already set at command line"));
}

TEST(JobConfig, BrokenTomlIsNamedByPlace) { EXPECT_THAT(refusal("[training]\nsteps = \n"), HasSubstr("run.toml:2:")); }

TEST(JobConfig, OtherSpellingsOfTorchtitanSetTheSameKeys) {
  const JobConfig config = accepted(
      "[checkpoint]\nenable_checkpoint = true\nmodel_weights_only = false\n[lr_scheduler]\nlr_min = 0.1\n[training]\nseed = 5\n"
      "[quantize.linear.float8]\nfilter_fqns = [\"output\"]\n");
  EXPECT_TRUE(config.checkpoint.enable);
  EXPECT_FALSE(config.checkpoint.last_save_model_only);
  EXPECT_EQ(config.lr_scheduler.min_lr_factor, 0.1);
  EXPECT_EQ(config.debug.seed, 5);
  EXPECT_THAT(config.float8.filter_fqns, ElementsAre("output"));
}

TEST(JobConfig, KeysWithoutEffectAreAcceptedAndSaidSo) {
  const JobConfig config = accepted("[training]\ncompile = true\ngc_freq = 50\n");
  EXPECT_THAT(config.notes, ElementsAre("run.toml:2:1: training.compile has no effect: operations are compiled ahead of time",
                                        "run.toml:3:1: training.gc_freq has no effect: there is no garbage collector"));
}

TEST(JobConfig, WhatIsNotBuiltYetIsShownAndRefusedByNameAndPlaceWhenARunAsksForIt) {
  const JobConfig config = accepted("[parallelism]\ntensor_parallel_degree = 8\n[training]\nsteps = 3\n", {"--fault_tolerance.enable"});
  EXPECT_THAT(config.not_built, ElementsAre("run.toml:2:1: parallelism.tensor_parallel_degree = 8 is not built yet: tensor parallelism; built: 1",
                                            "command line: fault_tolerance.enable = true is not built yet: replica groups; leave it out, or set false"));
  EXPECT_THAT(config.can_run().error().message, HasSubstr("run.toml:2:1: parallelism.tensor_parallel_degree = 8"));
  const std::string table = config.table();
  EXPECT_THAT(table, ::testing::ContainsRegex("parallelism.tensor_parallel_degree +8 +run.toml:2:1 +epoch +not built yet\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("fault_tolerance.enable +true +command line +- +not built yet\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("compile.backend +\"inductor\" +default +- +without effect here\n"));
  EXPECT_TRUE(accepted("").can_run());
}

// B133
TEST(JobConfig, ADegreeThatIsNotBuiltIsRefusedBeforeAnythingStarts) {
  for (const std::string key : {"parallelism.expert_parallel_degree", "parallelism.context_parallel_degree"})
    EXPECT_THAT(accepted("", {"--" + key + "=3"}).can_run().error().message, HasSubstr(key + " = 3 is not built yet"));
}

TEST(JobConfig, APartOfWhatIsNotAskedForRefusesNoRun) {
  EXPECT_TRUE(accepted("[fault_tolerance]\ngroup_size = 2\n[parallelism]\npipeline_parallel_schedule = \"Interleaved1F1B\"\n").can_run());
  EXPECT_TRUE(accepted("[fault_tolerance]\nenable = false\n").can_run());
}

TEST(JobConfig, AKeyThatIsNotBuiltIsCheckedLikeAnyOther) {
  EXPECT_EQ(refusal("[fault_tolerance]\nenable = 1\n"), "run.toml:2:1: fault_tolerance.enable: expected a boolean, found the integer 1");
  EXPECT_EQ(refusal("[fault_tolerance]\ngroup_size = -1\n"), "run.toml:2:1: fault_tolerance.group_size: expected a value at least 0, found -1");
  EXPECT_THAT(refusal("[fault_tolerance]\ngroup_sise = 1\n"), HasSubstr("did you mean 'fault_tolerance.group_size'?"));
  const JobConfig again = accepted(accepted("[fault_tolerance]\ngroup_size = 2\n").to_toml());
  EXPECT_THAT(again.to_toml(), HasSubstr("group_size = 2\n"));
}

TEST(JobConfig, TheMergedTomlReadsBackToTheSameValues) {
  const JobConfig config = accepted(
      "[model]\nn_layers = 3\n[optimizer]\nlr = 0.1\neps = 1e-15\n[job]\ndescription = \"a \\\"b\\\" \\\\ \\u0001\\n\"\n[debug]\nseed = 9007199254740993\n",
      {"--training.dataset_path", "x,y"});
  const JobConfig again = accepted(config.to_toml());
  EXPECT_EQ(again.to_toml(), config.to_toml());
  EXPECT_EQ(again.hash(), config.hash());
  EXPECT_EQ(again.optimizer.lr, 0.1);
  EXPECT_EQ(again.job.description, config.job.description);
  EXPECT_EQ(again.debug.seed, 9007199254740993);
  EXPECT_EQ(again.model.n_layers, 3);
}

TEST(JobConfig, TheHashIsOfWhatRanksMustAgreeIn) {
  const auto hash = [](const Arguments& arguments) { return accepted("", arguments).hash(); };
  EXPECT_EQ(hash({}), hash({"--job.dump_folder=elsewhere", "--metrics.log_freq=1", "--trace.enable", "--training.dataset_path=/mnt/x"}));
  EXPECT_NE(hash({}), hash({"--optimizer.lr=0.1"}));
  EXPECT_NE(hash({}), hash({"--slots.weights=3"}));
}

TEST(JobConfig, TheTableNamesValueSourceClassAndState) {
  const std::string table = accepted("[training]\nsteps = 5\n", {"--model.dim=8"}).table();
  EXPECT_THAT(table, ::testing::ContainsRegex("training.steps +5 +run.toml:2:1 +live +built\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("model.dim +8 +command line +frozen +built\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("model.n_heads +none +default +frozen +built\n"));
}

// B130
TEST(JobConfig, AMeshThatDoesNotMakeTheWorldIsRefusedWithAllFactors) {
  const auto problem = [](const Arguments& arguments, std::int64_t world) {
    const auto mesh = accepted("", arguments).mesh(world);
    return mesh ? "accepted" : mesh.error().message;
  };
  EXPECT_THAT(problem({"--parallelism.tensor_parallel_degree=3"}, 4), HasSubstr("tensor 3: the world of 4 ranks is no multiple of 3"));
  EXPECT_EQ(problem({"--parallelism.tensor_parallel_degree=2", "--parallelism.pipeline_parallel_degree=2", "--parallelism.data_parallel_shard_degree=2"}, 4),
            "parallelism: pipeline 2 x data_parallel_replicate 1 x data_parallel_shard 2 x context 1 x tensor 2 = 8, but the world has 4 ranks; change a "
            "degree or --nproc");
  EXPECT_THAT(problem({"--parallelism.data_parallel_replicate_degree=-1"}, 4), HasSubstr("only one degree may be -1"));
  EXPECT_THAT(problem({"--parallelism.tensor_parallel_degree=2"}, 4), HasSubstr("in this version only the two data-parallel degrees may be above 1"));
  EXPECT_THAT(problem({}, 0), HasSubstr("at least 1 is needed"));
  EXPECT_THAT(problem({"--parallelism.data_parallel_replicate_degree=1048576", "--parallelism.tensor_parallel_degree=1048576",
                       "--parallelism.pipeline_parallel_degree=1048576", "--parallelism.context_parallel_degree=16"},
                      4),
              HasSubstr("the world of 4 ranks is no multiple of"))
      << "2^64 is more than an integer holds, and must not come out as 0";
  EXPECT_THAT(refusal("", {"--parallelism.data_parallel_shard_degree=8589934592"}), HasSubstr("at most 1048576"));
  EXPECT_THAT(refusal("", {"--parallelism.data_parallel_shard_degree=0"}), HasSubstr("not 0, found 0"));
  EXPECT_EQ(accepted("").mesh(4)->shard, 4);
  EXPECT_EQ(accepted("", {"--parallelism.data_parallel_shard_degree=2"}).mesh(2)->data_parallel(), 2);
  EXPECT_EQ(accepted("", {"--parallelism.data_parallel_shard_degree=2", "--parallelism.data_parallel_replicate_degree=-1"}).mesh(6)->replicate, 3);
}

TEST(JobConfig, AGlobalBatchIsCutIntoAsFewMicroBatchesAsHoldItsRows) {
  const JobConfig config = accepted("[training]\nlocal_batch_size = 2\nglobal_batch_size = 12\n");
  EXPECT_EQ(config.micro_batches(2), 3);
  EXPECT_EQ(config.micro_batches(4), 2);
  EXPECT_EQ(config.micro_batches(8), 1);
  EXPECT_EQ(config.global_rows(4), 12);
  EXPECT_EQ(accepted("").micro_batches(4), 1);
  EXPECT_EQ(accepted("[training]\nlocal_batch_size = 3\n").global_rows(4), 12);
}

// B082: the configuration wins over the checkpoint, and a resumed run says what changed
TEST(JobConfig, AResumedRunCanNameWhatChanged) {
  const std::string before = accepted("", {"--training.steps=10", "--job.dump_folder=a"}).to_toml();
  const JobConfig now = accepted("", {"--training.steps=20", "--optimizer.lr=4e-4", "--lr_scheduler.total_steps=20", "--job.dump_folder=b"});
  EXPECT_THAT(now.changes_since(before),
              ElementsAre("optimizer.lr: 8e-04 before, 4e-04 now", "lr_scheduler.total_steps: none before, 20 now", "training.steps: 10 before, 20 now"));
  EXPECT_THAT(now.changes_since(now.to_toml()), ElementsAre());
  EXPECT_THAT(now.changes_since("not ours"), ElementsAre());
}

// B092
TEST(JobConfig, KeepingOneCheckpointIsRefused) {
  EXPECT_THAT(refusal("[checkpoint]\nkeep_latest_k = 1\n"), HasSubstr("use 0 (keep all) or at least 2"));
  EXPECT_THAT(refusal("[checkpoint]\nkeep_latest_k = -1\n"), HasSubstr("at least 0"));
}

TEST(JobConfig, AFaultRuleThatCannotBeObeyedIsNamedWithItsLine) {
  EXPECT_THAT(refusal("[faults]\nrules = [\"site=lane action=fail\", \"site=lane action=torn\"]\n"),
              AllOf(HasSubstr("run.toml:2"), HasSubstr("faults.rules: rule 2, 'site=lane action=torn'"), HasSubstr("a lane can delay, fail, stall, crash")));
  EXPECT_EQ(accepted("", {"--faults.rules=site=lane kind=gather action=delay for=1ms"}).faults.rules.size(), 1U);
}

TEST(JobConfig, AFileThatCannotBeReadIsNamed) {
  const testing::TemporaryFolder folder;
  const auto path = (folder.path() / "none.toml").string();
  EXPECT_EQ(JobConfig::load(path).error().message, "cannot read the configuration file " + path + ": no such file");
  EXPECT_FALSE(JobConfig::load(folder.path()));
  EXPECT_EQ(JobConfig::load(folder.write("x.toml", "[training]\nsteps = 7\n"))->training.steps, 7);
}

TEST(JobConfig, AFaultRuleMayBeATableOfItsOwn) {
  const auto config = JobConfig::parse("[[faults.rules]]\nsite = \"collective\"\nkind = \"gather L3\"\nstep = 7\naction = \"stall\"\nfor = \"2s\"\n", "test");
  ASSERT_TRUE(config) << config.error().message;
  const auto rules = rules_of(config->faults);
  ASSERT_TRUE(rules) << rules.error().message;
  EXPECT_EQ(rules->front(), parse_fault_rule("site=collective kind=\"gather L3\" step=7 action=stall for=2s").value());
}

TEST(JobConfig, TheReferencePageIsCurrent) {
  EXPECT_EQ(testing::read_file(std::filesystem::path(TROUPE_SOURCE_DIR) / "docs/config.md"), JobConfig::reference_markdown())
      << "run: build/<preset>/bin/troupe config --doc > docs/config.md";
}

}  // namespace
}  // namespace troupe
