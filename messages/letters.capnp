@0xd2c7a15e0b9f4e31;
# Every letter of Troupe. A letter is a fact ("this happened"), one way, never a request. Inside a process it travels as a
# pointer, between processes as these very words behind a frame (messages/frame.hpp) that carries job, incarnation, sequence and MAC.
#
# Evolution: only add fields and kinds, with higher numbers; never remove, renumber or re-type. A reader that does not know a
# kind drops the letter and counts it. tests/unit/golden_letters_test.cpp holds envelopes written by earlier versions.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::schema");

struct Address {
  rank @0 :UInt32;       # 0xffffffff: the launcher's process (Coordinator, host agent)
  actor @1 :UInt16;      # messages/actor_kind.hpp: ActorKind
}

struct Where {
  # The coordinates of a fact. Zero where one has no meaning.
  epoch @0 :UInt64;      # letters of an older epoch are dropped in one place
  step @1 :UInt64;       # from 1
  micro @2 :UInt32;
  unit @3 :UInt32;       # 0 embedding, 1…L blocks, L+1 norm and head
  operation @4 :UInt32;  # index in the sender's plan of the operation that made the fact true
  slot @5 :UInt32;       # of the lease that travels with the letter
}

struct Envelope {
  to @0 :Address;
  from @1 :Address;
  where @2 :Where;
  sentNanos @3 :UInt64;  # the sender's monotonic clock
  flow @4 :UInt64;       # joins sender's and receiver's spans in the trace

  body :union {
    # --- the step (inside a rank, but for StepReport, BatchReady with a loader host) ---
    stepBegin @5 :StepBegin;
    batchReady @6 :BatchReady;
    weightsGathered @7 :WeightsGathered;
    gradientReady @8 :GradientReady;
    gradientReduced @9 :GradientReduced;
    microBatchDone @10 :MicroBatchDone;
    stepReport @11 :StepReport;
    slotHome @12 :SlotHome;
    laneDone @13 :LaneDone;
    retired14 @14 :AnyPointer;  # no version sent it

    # --- membership and control (between processes) ---
    join @15 :Join;
    epochBegin @16 :EpochBegin;
    epochReady @17 :EpochReady;
    horizon @18 :Horizon;
    heartbeat @19 :Heartbeat;
    faultReport @20 :FaultReport;
    epochEnd @21 :EpochEnd;
    drain @22 :Drain;
    stopped @23 :Stopped;

    # --- checkpoints ---
    snapshotTaken @24 :SnapshotTaken;
    shardSaved @25 :ShardSaved;
    checkpointSealed @26 :CheckpointSealed;

    # --- inspection ---
    inspect @27 :Inspect;
    inspection @28 :Inspection;
    tick @29 :Tick;
    stopRequested @30 :StopRequested;

    # --- collectives between hosts ---
    collectivePart @31 :CollectivePart;

    # --- recovery ---
    snapshotKept @32 :SnapshotKept;

    # --- a live run's changes ---
    faultFired @33 :FaultFired;
    faultRules @34 :FaultRules;
    changeRequested @35 :ChangeRequested;
  }
}

enum StepKind { train @0; trainAndSnapshot @1; trainAndEvaluate @2; trainSnapshotAndEvaluate @3; }
enum StepOutcome { commit @0; skip @1; void @2; }

struct StepBegin {
  # Supervisor → DataLoader, Compute, Sharding, Checkpoint: this step may be posted. Sent once the horizon covers it.
  kind @0 :StepKind;
  last @1 :Bool;                  # no step follows: the run drains after it
  learningRate @2 :Float64;
  keep @3 :UInt8;                 # 1, 2: copy the state after it into this snapshot in the host agent's memory; 0: do not
}
struct BatchReady {
  # DataLoader → Compute, with the lease of a slot of `batches`. Across processes the payload is received into such a slot.
  tokens @0 :UInt64;              # valid targets in it
  digest @1 :UInt64;              # sum over its rows of the XXH3 of their token ids, each seeded with the row's number
}
struct WeightsGathered { backward @0 :Bool; }     # Sharding → Compute, with the lease of a slot of `weights`
struct GradientReady {}           # Compute → Sharding, with the lease of a slot of `gradients`
struct GradientReduced {}         # Sharding → itself: a reduce is done (its slot goes home by the lease)
struct MicroBatchDone {
  # Compute → Sharding: all of a micro-batch's backward ran; its loss stands in device memory, counted here for the report.
  tokens @0 :UInt64;
  digest @1 :UInt64;
  waitBatchNanos @2 :UInt64;      # Compute idle for want of a batch, since the micro-batch before
  waitWeightsNanos @3 :UInt64;    # the same, for want of gathered weights
  waitGradientsNanos @4 :UInt64;  # the same, for want of a free slot of gradients
}
struct StepReport {
  # Sharding → Supervisor → Coordinator: the verdict as read from the device, and what the step was.
  outcome @0 :StepOutcome;
  loss @1 :Float64;               # mean over all valid tokens of the global batch
  gradNorm @2 :Float64;           # before clipping
  learningRate @3 :Float64;       # used in this step
  tokens @4 :UInt64;              # valid tokens of the global batch
  localTokens @5 :UInt64;         # this rank's
  digest @6 :UInt64;              # of this rank's token ids
  stepNanos @7 :UInt64;           # from the previous step's report to this one's
  arenaPeakBytes @8 :UInt64;
  bytesGathered @9 :UInt64;       # moved by all-gathers in this step, this rank's receive side
  bytesReduced @10 :UInt64;
  waitBatchNanos @11 :UInt64;     # Compute idle for want of a batch
  kind @12 :StepKind;
  nonFinite @13 :UInt64;          # values counted bad by the verdict
  ownLoss @14 :Float64;           # mean over this rank's valid tokens
  waitWeightsNanos @15 :UInt64;   # Compute idle for want of gathered weights
  waitGradientsNanos @16 :UInt64; # Compute idle for want of a free slot of gradients
  waitSnapshotsNanos @17 :UInt64; # the optimizer idle until the state of the step before was copied
  float8Saturated @18 :UInt64;    # values that fp8 casts of all ranks cut to the format's largest
  float8NonFinite @19 :UInt64;    # values that fp8 casts of all ranks found not finite
  evaluationLoss @20 :Float64;    # mean over the validation set, after this step
  evaluationTokens @21 :UInt64;   # valid tokens of it; 0: none was due
  evaluationNanos @22 :UInt64;    # that it took, beside stepNanos
  sourceLosses @23 :List(Float64); # Σ −log p over this rank's valid tokens, by source of a blend; empty: one source
  sourceTokens @24 :List(UInt64);  # those tokens
}
struct SlotHome {
  # A lease's end → the slot's owner (in process only): the slot may be used again.
  edge @0 :UInt16;                # messages/edge_kind.hpp: EdgeKind
  slot @1 :UInt32;
  generation @2 :UInt64;          # how often the slot was taken; a stale one is ignored
}
struct LaneDone {
  # A lane → the actor that posted (in process only): the operation `where.operation` is over.
  outcome @0 :UInt8;              # src/base/outcome.hpp: Outcome::Kind
  cause @1 :Text;
  lane @2 :UInt8;
}

struct Join {
  # Supervisor → Coordinator, first letter of a worker. One for each rank that its process hosts.
  worldSize @0 :UInt32;
  configHash @1 :UInt64;          # all ranks must agree
  planHashes @2 :List(PlanHash);
  host @3 :Text;
  pid @4 :UInt32;
  restored @5 :UInt64;            # step of the checkpoint that this rank found newest; 0: none
  incarnation @6 :UInt32;         # of its process: 0, then +1 for each respawn
}
struct PlanHash { communicator @0 :UInt16; hash @1 :UInt64; }
struct EpochBegin {
  # Coordinator → Supervisors: the epoch's members and start. Actors build slot tables, communicators and state, then answer EpochReady.
  members @0 :List(UInt32);
  firstStep @1 :UInt64;           # first step to run
  restoreStep @2 :UInt64;         # sealed checkpoint to load; 0: initialise from the seed
  communicatorTag @3 :Text;       # names this epoch's communicators; unique for each epoch of each run
  memorySlot @4 :UInt8;           # 1, 2: restore from this snapshot in the host agent's memory; 0: from disk or the seed
  restoreEpoch @5 :UInt64;        # with memorySlot: the epoch in which that snapshot was copied
  dataRow @6 :UInt64;             # rows of data used before firstStep
  respawns @7 :UInt64;            # processes that were started again so far: wait for a list of peers with as many
  changes @8 :List(Text);         # "training.local_batch_size=2": applied to the run's configuration since it began, in order
  faultRules @9 :List(Text);      # sent to the live run so far, in order; they follow the configuration's
}
struct EpochReady {
  # Supervisor → Coordinator: state is in place, plans and hashes below; steps may be granted.
  planHashes @0 :List(PlanHash);
  arenaBytes @1 :UInt64;          # device memory planned
  peakFlops @2 :Float64;          # of the rank's device in bf16, per second; 0: unknown
  peakFlopsFp8 @3 :Float64;       # the same in fp8
  deviceBytes @4 :UInt64;         # memory of the device; 0: unknown
}
struct Grant { step @0 :UInt64; kind @1 :StepKind; last @2 :Bool; learningRate @3 :Float64; keep @4 :UInt8; }
struct Horizon {
  # Coordinator → Supervisors: these steps may begin. A step that was never granted never begins.
  grants @0 :List(Grant);
}
struct Heartbeat {
  # Supervisor → Coordinator, every second: alive, and what is the oldest thing it waits for.
  step @0 :UInt64;
  oldest @1 :Text;                # "comm: gather L2", empty when nothing is pending
  oldestNanos @2 :UInt64;         # age
  actors @3 :List(ActorState);    # of the rank's five, as each last said
  residentBytes @4 :UInt64;       # memory of the process
  struct ActorState { actor @0 :UInt16; text @1 :Text; waiting @2 :Text; }
}
struct FaultReport {
  # Whoever noticed → Supervisor → Coordinator. The first of an epoch is its cause, later ones are consequences.
  rank @0 :UInt32;                # that is at fault; may differ from the sender
  cause @1 :Text;
  signal @2 :Int32;               # the process's, if the agent saw it die; 0 otherwise
  incarnation @3 :UInt32;         # from the launcher's process: which life of the rank's process has ended
  restoreLost @4 :Bool;           # the point that the epoch was to begin from could not be read: take another
}
struct EpochEnd {
  # Coordinator → Supervisors: abort. Halt lanes, abort communicators, drain, answer Stopped; exit if `final`, else another epoch follows.
  cause @0 :Text;
  final @1 :Bool;
}
struct Drain {
  # Coordinator → Supervisors: the last granted step is done everywhere; leave cleanly and answer Stopped.
  another @0 :Bool;               # another epoch follows, with other members or a changed configuration: the process stays
  handOver @1 :UInt8;             # 1, 2: leave the state in this slot of the host agent's memory, for the next epoch's ranks; 0: do not
}
struct Stopped {
  # Supervisor → Coordinator: lanes are idle, leases are home, files are closed.
  step @0 :UInt64;                # last committed or skipped
  leasesOut @1 :UInt32;           # slots that did not come home; 0 in a healthy run
  handedOver @2 :Bool;            # the state stands where Drain.handOver wanted it
  problem @3 :Text;               # else why not
}

struct SnapshotTaken {}           # Checkpoint's copy lane → Sharding: the state may be overwritten from here on (snapshot, keep)
struct ShardSaved {
  # Checkpoint → Coordinator: this rank's shard of the checkpoint of `where.step` is on disk, synced.
  file @0 :Text;                  # relative to the checkpoint's folder
  bytes @1 :UInt64;
  hash @2 :UInt64;                # XXH3 of the file
  ok @3 :Bool;
  problem @4 :Text;               # when not ok: what the storage said
}
struct CheckpointSealed {
  # Coordinator → Checkpoint actors: the manifest of `where.step` was renamed into place, or given up.
  ok @0 :Bool;
  problem @1 :Text;
  epoch @2 :UInt64;               # in which its parts were written
}
struct SnapshotKept {
  # Checkpoint → Coordinator: the state after `where.step` stands in the host agent's memory. From a rank's ActorKind none: its copy in another agent's memory does.
  # Host agent → host agent, with the lease of a piece: part `where.unit` of such a state of rank `where.micro`, which has `bytes` in all (snapshot_courier.hpp).
  slot @0 :UInt8;                 # 1 or 2
  bytes @1 :UInt64;
  hash @2 :UInt64;                # XXH3 of it
  ok @3 :Bool;
  problem @4 :Text;               # when not ok
}

struct FaultFired {
  # The host agent → Coordinator: a fault rule has fired on a rank, at `where`. It read that in memory that outlives the process.
  rank @0 :UInt32;
  rule @1 :UInt32;                # from 0
  operation @2 :Text;
}
struct FaultRules {
  # Coordinator → Supervisors: all rules that were sent to the live run so far.
  rules @0 :List(Text);
}
struct ChangeRequested {}         # the control connection → Coordinator: somebody has put a change where it takes them

struct Inspect {}                 # Supervisor → actors of its rank: say what you wait for (in process)
struct Inspection {
  # Actor → Supervisor: plan position, slots held, last letter; also what `troupe inspect` prints.
  text @0 :Text;
  waiting @1 :Text;               # "weights of L3 (backward)"; empty when nothing is awaited
  leasesOut @2 :UInt32;
}
struct Tick {}                    # the clock → an actor: a timer that it set
struct StopRequested {
  # The launcher's signal handler, or a worker's → Coordinator: save at the next step boundary and stop.
  reason @0 :Text;
}

struct CollectivePart {
  # A member of a communicator → another member's process. Handled beside the actors, by the process's CollectiveMail.
  communicator @0 :UInt64;        # hash of its tag, which names run, epoch and purpose
  member @1 :UInt32;              # the sender's rank in the communicator
  content :union {
    joined @2 :Terms;             # the sender is there; all members must offer the same terms
    call @3 :Call;                # what the sender calls now
    chunk @4 :UInt64;             # number of the chunk that is the payload
    abort @5 :Text;               # the communicator is dead, and why
  }
  struct Terms { size @0 :UInt32; chunks @1 :UInt32; chunkBytes @2 :UInt64; }
  struct Call { kind @0 :UInt32; dtype @1 :UInt32; detail @2 :UInt32; pieces @3 :UInt32; bytes @4 :UInt64; layout @5 :UInt64; number @6 :UInt64; }
}
