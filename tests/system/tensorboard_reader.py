"""TensorBoard's own reader over an event folder: prints {tag: [[step, value], …]} as JSON. Run by the Python of third_party/venv."""
import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
print(json.dumps({tag: [[point.step, point.value] for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
