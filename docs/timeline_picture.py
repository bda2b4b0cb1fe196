#!/usr/bin/env python3
"""Draws docs/timeline.png: the lanes of all ranks during two steps of a real run. Needs matplotlib.

    build/dev/bin/troupe trace outputs/quickstart -o /tmp/trace.json
    python3 docs/timeline_picture.py /tmp/trace.json docs/timeline.png 200 201
"""
import json
import re
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Patch

COLOURS = {"load": "#9aa0a6", "scales": "#b39ddb", "gather": "#4f9dde", "forward": "#66bb6a", "backward": "#2e7d32", "accumulate": "#f6c28b", "reduce": "#ef8a3c", "all_reduce": "#c75b12",
           "verdict": "#d64550", "optimize": "#8d6e63", "snapshot": "#607d8b", "save": "#37474f"}
LANES = {"load": "disk", "scales": "comm", "gather": "comm", "accumulate": "comm", "reduce": "comm", "all_reduce": "comm", "verdict": "comm", "forward": "compute", "backward": "compute", "optimize": "optimizer",
         "snapshot": "copy", "save": "storage"}


def main(trace, picture, first, last, of="configs/quickstart.toml: two processes on two cores, slots of two"):
    events = json.load(open(trace))["traceEvents"]
    spans = []
    for event in events:
        kind = re.match(r"[a-z]+", event.get("name", ""))
        if event["ph"] != "X" or "queued" not in event.get("args", {}) or not kind or kind.group() not in COLOURS:
            continue
        if first <= event["args"]["step"] <= last:
            spans.append((event["pid"], LANES[kind.group()], kind.group(), event["ts"] / 1e3, event["dur"] / 1e3))
    start = min(span[3] for span in spans if span[2] == "gather")
    end = max(span[3] + span[4] for span in spans)
    rows = [(rank, lane) for rank in sorted({span[0] for span in spans}) for lane in ("disk", "comm", "compute", "optimizer")]
    figure, axes = plt.subplots(figsize=(13, 0.42 * len(rows) + 1.6), dpi=110)
    for rank, lane, kind, at, duration in spans:
        if (rank, lane) in rows:
            axes.barh(rows.index((rank, lane)), duration, left=at - start, height=0.78, color=COLOURS[kind], edgecolor="white", linewidth=0.4)
    axes.set_yticks(range(len(rows)), [f"rank {rank}  {lane}" for rank, lane in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, end - start)
    axes.set_xlabel("milliseconds")
    axes.set_title(f"Steps {first} and {last} of {of}", fontsize=11)
    used = [kind for kind in COLOURS if any(span[2] == kind for span in spans)]
    axes.legend(handles=[Patch(color=COLOURS[kind], label=kind) for kind in used], ncols=len(used), loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False, fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
