#!/usr/bin/env bash
# Runs on a GPU machine, inside a bundle of tools/gpu_bundle --tests: every step has its own limit, a failure does not stop the rest.
#   on_gpu.sh            all tests for one GPU: facts seam lanes model training kernels suites
#   on_gpu.sh STEP…      also: quickstart debug two_ranks replicas kill resume early curves start loop layers8 layers8_stay layers8_half layers8_bf16 layers8_bf16_stay rows rows_stay rows_bf16 preset preset_batch1 torchtitan
#   OUT: where logs go (default ./out); TITAN: torchtitan's folder, for the step of that name
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-$PWD/out}
mkdir -p "$out"
export NCCL_NVLS_ENABLE=0
runs=$(mktemp -d)
gpus=$(nvidia-smi -L | wc -l)
began=$SECONDS

# step LIMIT NAME COMMAND…
step() {
  local limit=$1 name=$2 start=$SECONDS rc=0
  shift 2
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null || rc=$?
  printf '%-22s rc %3d  %3d s\n' "$name" $rc $((SECONDS - start))
  [ $rc = 0 ] || tail -n "${TAIL:-12}" "$out/$name.log" | cut -c1-300
  return $rc
}
# train LIMIT NAME CONFIG OVERRIDES…: a run of the launcher, with its metrics and the ranks' own words kept
train() {
  local limit=$1 name=$2 config=$3
  shift 3
  step "$limit" "$name" "$here/bin/troupe" train "$here/configs/$config" --job.dump_folder "$runs/$name" --overwrite "$@"
  local rc=$?
  cp "$runs/$name/metrics.jsonl" "$out/$name.metrics.jsonl" 2>/dev/null
  cp "$runs/$name/trace/rank-0.json" "$out/$name.trace.json" 2>/dev/null
  grep -h 'memory: at most' "$out/$name.log" | cut -c1-220
  if [ $rc != 0 ]; then tail -n 6 "$runs/$name"/logs/rank-*.log 2>/dev/null | cut -c1-300; fi
  tail -n 3 "$out/$name.log" | cut -c1-200
  return $rc
}
eight_b=(--training.steps "${STEPS:-12}" --lr_scheduler.total_steps 1000 --trace.enable)  # the learning rate rises as it does in a long run
# kill_one: SIGKILL to one of two ranks in the middle of a step; both must end, with an error, within 20 s
kill_one() {
  local log=$out/kill.log began_at
  "$here/bin/troupe" train "$here/configs/debug_llama3.toml" --job.dump_folder "$runs/kill" --overwrite --nproc 2 --device cuda --training.steps 100000 \
    --metrics.log_freq 200 "${text[@]}" >"$log" 2>&1 </dev/null &
  local launcher=$!
  for _ in $(seq 100); do grep -q 'step: 200' "$log" && break; sleep 0.2; done
  local victim; victim=$(pgrep -P $launcher -f troupe-worker | tail -n 1)
  began_at=$(date +%s%N)
  kill -9 "$victim"
  local rc=0; for _ in $(seq 300); do kill -0 $launcher 2>/dev/null || break; sleep 0.1; done
  if kill -0 $launcher 2>/dev/null; then echo "kill: the launcher still runs 30 s later"; kill -9 $launcher; rc=99; fi
  wait $launcher || rc=$?
  echo "kill                   the run ended $(( ($(date +%s%N) - began_at) / 1000000 )) ms after SIGKILL of pid $victim, exit code $rc; workers left: $(pgrep -f "$runs/kill" | wc -l), GPU processes: $(nvidia-smi --query-compute-apps=pid --format=csv,noheader | wc -l)"
  tail -n 4 "$log" | cut -c1-300
  tail -n 2 "$runs"/kill/logs/rank-*.log | cut -c1-300
}
# curves: 200 steps of a 1B layout in fp8 and twice in bf16, side by side: the second bf16 run shows how far two runs of the same differ
curves() {
  local common=(--model.flavor 1B --model.no_tied_embeddings --model.vocab_size 258 --training.seq_len 2048 --training.local_batch_size 4 --training.steps 200
    --lr_scheduler.warmup_steps 20 --optimizer.lr 3e-4 --checkpoint.no_enable "${text[@]}")
  CUDA_VISIBLE_DEVICES=0 train 200 curve_bf16 llama3_8b.toml --nproc 1 --model.converters '' "${common[@]}" &
  CUDA_VISIBLE_DEVICES=$((gpus > 1)) train 200 curve_fp8 llama3_8b.toml --nproc 1 "${common[@]}" &
  CUDA_VISIBLE_DEVICES=$((gpus > 1)) train 200 curve_bf16_again llama3_8b.toml --nproc 1 --model.converters '' "${common[@]}" &
  wait
  python3 - "$out" <<'PYTHON'
import json, sys
losses = {}
for name in ("bf16", "fp8", "bf16_again"):
    rows = [json.loads(line) for line in open(f"{sys.argv[1]}/curve_{name}.metrics.jsonl")]
    losses[name] = [r["loss"] for r in rows if "loss" in r]
for first in range(0, 200, 25):
    base, fp8, again = (sum(losses[n][first:first + 25]) / 25 for n in losses)
    print(f"curve steps {first + 1:3d}-{first + 25:3d}: bf16 {base:.4f}  fp8 {fp8:.4f} ({100 * (fp8 / base - 1):+.2f} %)  bf16 again {again:.4f} ({100 * (again / base - 1):+.2f} %)")
PYTHON
}
# one_gpu NAME OVERRIDES…: 8 layers of the 8B on one GPU, tokens with the rank law of text
one_gpu() {
  local name=$1
  shift
  [ -e "$runs/law.idx" ] || python3 "$here/token_law.py" "$runs/law" 128
  train 120 "$name" llama3_8b.toml --nproc 1 --model.n_layers 8 --checkpoint.no_enable --training.dataset megatron --training.dataset_path "[\"$runs/law\"]" \
    --data.no_add_bos --data.no_add_eos --data.no_mask_document_boundaries --metrics.log_freq 1 "${eight_b[@]}" "$@"
  python3 - "$out/$name.metrics.jsonl" <<'PYTHON'
import json, statistics, sys
rows = [r for r in map(json.loads, open(sys.argv[1])) if "loss" in r]
times = [1e3 * r["step_seconds"] for r in rows if "step_seconds" in r][2:]
if times: print(f"  steps 3 to {len(times) + 2}: median {statistics.median(times):.1f} ms, {min(times):.1f} to {max(times):.1f}")
PYTHON
}
# rows NAME OVERRIDES…: the same with every kernel traced, and the table of benchmarks/gpu_rows.py
rows() {
  local name=$1
  shift
  CUDA_INJECTION64_PATH=$here/lib/libtroupe_kernel_trace.so TROUPE_KERNEL_TRACE=$runs/$name.kernels \
    LD_LIBRARY_PATH=/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} one_gpu "$name" "$@"
  python3 "$here/gpu_rows.py" "$(ls -S "$runs/$name".kernels.* | head -n 1)" --target --kernels 70 $([[ $name == *bf16 ]] && echo --bf16) | tee "$out/$name.table.txt" | head -n 45
}
# loop: 125 steps of 4 layers of the 8B driven by actors against the same operations in a plain loop, in turns
loop() {
  [ -e "$runs/law.idx" ] || python3 "$here/token_law.py" "$runs/law" 128
  step 240 loop "$here/bin/bench_step" "$here/configs/llama3_8b.toml" --job.dump_folder "$runs/loop" --model.n_layers 4 --training.local_batch_size 1 --checkpoint.no_enable \
    --training.dataset megatron --training.dataset_path "[\"$runs/law\"]" --data.no_add_bos --data.no_add_eos --data.no_mask_document_boundaries "$@"
  cat "$out/loop.log"
}
# resume: with debug.deterministic a run that stopped half-way goes on bit for bit
resume() {
  local common=(--nproc "$gpus" --device cuda --debug.deterministic --checkpoint.interval 20 --lr_scheduler.total_steps 40 --trace.no_enable "${text[@]}")
  train 60 straight quickstart.toml --training.steps 40 "${common[@]}"
  train 60 halved quickstart.toml --training.steps 20 "${common[@]}"
  step 60 resumed "$here/bin/troupe" train "$here/configs/quickstart.toml" --job.dump_folder "$runs/halved" --training.steps 40 "${common[@]}"
  cp "$runs/halved/metrics.jsonl" "$out/resumed.metrics.jsonl"
  python3 - "$out" <<'PYTHON'
import json, sys
def read(name):
    rows = [json.loads(line) for line in open(f"{sys.argv[1]}/{name}.metrics.jsonl")]
    return {r["step"]: (r["loss"], r["grad_norm"]) for r in rows if "loss" in r}
straight, resumed = read("straight"), read("resumed")
same = sum(straight[s] == resumed.get(s) for s in straight)
print(f"resume: {same} of {len(straight)} steps have the same loss and gradient norm to the last bit; the last: {straight[max(straight)]}, {resumed[max(resumed)]}")
PYTHON
}
# early: each layer updated in the backward pass, and all behind it: the same losses to the last bit
early() {
  local common=(--nproc 1 --device cuda --debug.deterministic --training.steps 40 --training.max_norm 0 --training.guard.nonfinite stop --checkpoint.no_enable "${text[@]}")
  train 60 late quickstart.toml "${common[@]}"
  train 60 early quickstart.toml "${common[@]}" --optimizer.early_step_in_backward
  python3 - "$out" <<'PYTHON'
import json, sys
def read(name):
    return {r["step"]: r["loss"] for r in map(json.loads, open(f"{sys.argv[1]}/{name}.metrics.jsonl")) if "loss" in r}
late, early = read("late"), read("early")
print(f"early: {sum(late[s] == early.get(s) for s in late)} of {len(late)} losses are the same to the last bit; the last: {late[max(late)]}, {early[max(early)]}")
PYTHON
}
text=(--training.dataset_path "[\"$here/data/*\"]")

# suites: the launcher's system tests with --device cuda, side by side; those that need more GPUs are left out, and say so
suites() {
  local names=(gpu train numerics checkpoints refusals deaths metrics extension) rc=0
  # The programs themselves: some tests look at the children of the process that they start.
  local torch nvidia
  torch=${LIBTORCH:-$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')}
  nvidia=$(dirname "$torch")/nvidia
  export TROUPE=$here/libexec/troupe TROUPE_WORKER=$here/libexec/troupe-worker TROUPE_ROOT=$here PYTHONDONTWRITEBYTECODE=1 UCX_WARN_UNUSED_ENV_VARS=n
  export LD_LIBRARY_PATH=$here/lib:$torch/lib:$nvidia/cu13/lib:$nvidia/cudnn/lib:$nvidia/nccl/lib:$nvidia/cusparselt/lib:$nvidia/nvshmem/lib
  for name in "${names[@]}"; do
    (cd "$here/system" && [ "$name" = gpu ] || export TROUPE_DEVICE=cuda; cd "$here/system" && timeout -k 5 240 python3 -m unittest -v "${name}_test" >"$out/suite_$name.log" 2>&1 </dev/null) &
  done
  wait
  for name in "${names[@]}"; do
    printf 'suite %-12s %s; %s\n' "$name" "$(grep -E '^Ran ' "$out/suite_$name.log")" "$(tail -n 1 "$out/suite_$name.log")"
    if ! tail -n 1 "$out/suite_$name.log" | grep -q '^OK'; then rc=1; grep -E '^(FAIL|ERROR):' "$out/suite_$name.log"; fi
  done
  return $rc
}
# since_command NAME BEGAN: seconds from BEGAN (of date +%s.%N) to the first finished step in the console's lines, and what the parts of the start took
since_command() {
  python3 - "$out/$1.log" "$2" <<'PYTHON'
import datetime, re, sys
lines = open(sys.argv[1], errors="replace").read().splitlines()
def time_of(line):
    return datetime.datetime.strptime(re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", line).group(), "%Y-%m-%d %H:%M:%S.%f").timestamp() - float(sys.argv[2])
for text in ("started ", "have joined", "Starting job", "built: ", "are ready", "step:  1 "):
    found = [line for line in lines if text in line]
    if found: print(f"  {time_of(found[0]):6.2f} s  {found[0].split(' - ')[-1][:150]}")
PYTHON
}
# start: from the command to the first finished step, twice: with nothing in the system's cache of files that can be dropped, and again
start() {
  export TROUPE_CACHE=$out/cache
  for again in cold warm warm_again; do
    if [ $again = cold ]; then sync; echo 3 >/proc/sys/vm/drop_caches 2>/dev/null; fi
    local began; began=$(date +%s.%N)
    STEPS=3 train 120 "start_$again" llama3_8b.toml --nproc 1 --model.n_layers 8 --checkpoint.no_enable "${text[@]}" --metrics.log_freq 1 --training.steps 3
    since_command "start_$again" "$began"
  done
}
# predicted NAME: the printed prediction of the device's memory against the measured peak, of a run's log; more than 3 % apart is a failure
predicted() {
  python3 - "$out/$1.log" <<'PYTHON'
import re, sys
text = open(sys.argv[1], errors="replace").read()
predicted, found = (float(re.search(pattern, text).group(1)) for pattern in (r"memory: ([\d.]+) GiB of the device predicted", r"memory: at most ([\d.]+) GiB"))
print(f"  memory: {predicted} GiB predicted, {found} found: {100 * (predicted / found - 1):+.2f} %")
sys.exit(abs(predicted / found - 1) > 0.03)
PYTHON
}

[ $# -gt 0 ] || set -- facts seam lanes model training kernels suites
for wanted in "$@"; do
  case $wanted in
    facts)
      nvidia-smi --query-gpu=index,name,driver_version,memory.total,power.limit,clocks.sm --format=csv
      "$here/bin/troupe" --version
      ldd "$here/lib/libtroupe_cuda.so" | grep -c 'not found'
      ;;
    seam) step 120 seam "$here/bin/cuda_seam_test" ;;
    lanes) step 60 lanes "$here/bin/cuda_lanes_test" ;;
    model) step 150 model "$here/bin/cuda_model_test"; grep -E 'step [18]:' "$out/model.log" ;;
    training) step 200 training "$here/bin/cuda_training_test"; grep -E 'predicted .* found' "$out/training.log" ;;
    kernels) step 120 kernels "$here/bin/cuda_kernels_test" ;;
    suites) suites ;;
    start) start ;;
    torchtitan) step 280 torchtitan python3 "$here/torchtitan_losses.py" "$here/bin/troupe" "$here/bin/cuda_parity_inputs" "${TITAN:?the folder of torchtitan}" "$out/torchtitan_losses.txt"
      grep -E 'agrees|DIFFERS' "$out/torchtitan_losses.txt" ;;
    quickstart)
      train 60 quickstart_cpu quickstart.toml --nproc 1 --training.steps 60 "${text[@]}"
      train 60 quickstart_gpu quickstart.toml --nproc 1 --device cuda --training.steps 60 "${text[@]}"
      train 60 quickstart_gpu_ahead quickstart.toml --nproc 1 --device cuda --runtime.run_ahead 3 --training.steps 60 "${text[@]}"
      ;;
    debug) train 60 debug_gpu debug_llama3.toml --nproc 1 --device cuda --training.steps 20 "${text[@]}" ;;
    two_ranks)
      for device in cpu cuda; do
        train 60 two_quickstart_$device quickstart.toml --nproc 2 --device $device --training.steps 40 "${text[@]}"
        train 60 two_debug_$device debug_llama3.toml --nproc 2 --device $device --training.steps 20 "${text[@]}"
      done
      train 60 two_quickstart_ahead quickstart.toml --nproc 2 --device cuda --runtime.run_ahead 3 --training.steps 40 "${text[@]}"
      ;;
    kill) kill_one ;;
    curves) curves ;;
    resume) resume ;;
    early) early ;;
    replicas)
      train 60 replicas quickstart.toml --nproc 2 --device cuda --parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 1 --training.steps 40 "${text[@]}"
      train 60 kept_weights quickstart.toml --nproc 2 --device cuda --parallelism.fsdp_reshard_after_forward never --training.steps 40 "${text[@]}"
      ;;
    loop) loop ;;
    layers8) one_gpu layers8 && predicted layers8 ;;
    layers8_ahead0) one_gpu layers8_ahead0 --runtime.run_ahead 0 ;;
    layers8_stay) one_gpu layers8_stay --parallelism.fsdp_reshard_after_forward never ;;
    layers8_half) one_gpu layers8_half --parallelism.fsdp_reshard_after_forward never --training.weight_gradients bfloat16 && predicted layers8_half ;;
    layers8_bf16) one_gpu layers8_bf16 --model.converters '' ;;
    layers8_bf16_stay) one_gpu layers8_bf16_stay --model.converters '' --parallelism.fsdp_reshard_after_forward never ;;
    rows) rows rows ;;
    rows_stay) rows rows_stay --parallelism.fsdp_reshard_after_forward never ;;
    rows_half) rows rows_half --parallelism.fsdp_reshard_after_forward never --training.weight_gradients bfloat16 ;;
    rows_bf16) rows rows_bf16 --model.converters '' ;;
    preset) train 180 preset llama3_8b.toml --nproc 2 --checkpoint.no_enable "${text[@]}" --metrics.log_freq 1 "${eight_b[@]}" && predicted preset ;;
    preset_batch1) train 180 preset_batch1 llama3_8b.toml --nproc 2 --training.local_batch_size 1 --checkpoint.no_enable "${text[@]}" --metrics.log_freq 1 "${eight_b[@]}" ;;
    *) echo "on_gpu.sh: unknown step '$wanted'"; exit 2 ;;
  esac
done
echo "all: $((SECONDS - began)) s, $gpus GPUs"
