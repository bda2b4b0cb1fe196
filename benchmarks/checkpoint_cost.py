# benchmark checkpoint_cost: what saving beside the training costs a step, in one run
"""A run of one rank saves every 8 steps. Its steps without a save beside them are the measure for those in which the state is copied and written."""
import json
import statistics
import sys
import tempfile

from small_job import SmallJob

INTERVAL, STEPS = 8, 49


def run(binaries, mode):
    saving = {"enable": True, "interval": INTERVAL, "async_mode": mode, "keep_latest_k": 2, "last_save_model_only": False}
    with tempfile.TemporaryDirectory(dir="build", prefix="checkpoint-cost-") as folder:
        lines, run = SmallJob(binaries, folder, STEPS, training={"local_batch_size": 2, "seq_len": 512}, checkpoint=saving).train()
        bytes_of_state = sum(file["bytes"] for file in json.loads(next((run / "checkpoint").glob("step-*/manifest.json")).read_text())["files"])
    return {line["step"]: line["step_seconds"] for line in lines}, bytes_of_state


def main():
    for mode in ("async", "disabled"):
        seconds, bytes_of_state = run(sys.argv[1], mode)
        # A period begins with the step behind a save, in which the copy is taken and the file is written; the last half of it is at rest.
        periods = [[seconds[step] for step in range(first, first + INTERVAL)] for first in range(INTERVAL + 1, STEPS - INTERVAL + 1, INTERVAL)]
        rest = statistics.median(second for period in periods for second in period[INTERVAL // 2:])
        periods_cost = [sum(second - rest for second in period[:INTERVAL // 2]) / rest for period in periods]
        print(f"async_mode {mode}: {bytes_of_state / 1048576:.0f} MiB of state every {INTERVAL} steps of {rest:.3f} s")
        print(f"  each save costs {statistics.median(periods_cost):.3f} steps (each period: {' '.join(f'{cost:.3f}' for cost in periods_cost)})")
        print(f"  of a step, spread over the interval: {100 * statistics.median(periods_cost) / INTERVAL:.2f} %; at the default interval of 500: "
              f"{100 * statistics.median(periods_cost) / 500:.3f} %")


main()
