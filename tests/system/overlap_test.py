"""What slots do to a real run of two processes, measured from its traces (docs/one_step.md): the number of weights slots is the depth of the overlap."""
import json
import statistics
import unittest

from job import Job

WARM = 4  # steps before the first one that is looked at


class Timeline:
    """Lane operations of one rank: {(step, name): (start, end)} in microseconds."""

    def __init__(self, file):
        events = json.loads(file.read_text())["traceEvents"]
        self.spans = {(event["args"]["step"], event["name"]): (event["ts"], event["ts"] + event["dur"]) for event in events
                      if event["ph"] == "X" and event["name"].startswith(("gather L", "forward L"))}

    def of(self, kind, step):
        """Spans of the operations 'kind L0', 'kind L1', … of one step, in the order of layers; without those of the backward pass."""
        return [span for (at, name), span in sorted(self.spans.items(), key=lambda item: item[1])
                if at == step and name.startswith(kind + " ") and not name.endswith("(backward)")]

    def waits(self, step):
        """How long compute waited for weights before each forward of a step but the first, in the order of layers."""
        spans = self.of("forward", step)
        return [later[0] - earlier[1] for earlier, later in zip(spans, spans[1:])]


def length(span):
    return span[1] - span[0]


def under(span, others):
    """The time of `span` in which one of the others, which follow each other, ran."""
    return sum(max(0.0, min(span[1], other[1]) - max(span[0], other[0])) for other in others)


class OverlapTest(unittest.TestCase):
    def timelines(self, slots, steps, rules=(), **sizes):
        job = Job(steps=steps, checkpoint=False)
        self.addCleanup(job.remove)
        text = job.config.read_text().replace("[metrics]\nlog_freq = 1\n", "[metrics]\nlog_freq = 1000\n")
        for key, value in sizes.items():
            begin = text.index(f"\n{key} = ") + 1
            text = text[:begin] + f"{key} = {value}" + text[text.index("\n", begin):]
        job.config.write_text(f"{text}[trace]\nenable = true\n[slots]\nweights = {slots}\n[faults]\nrules = {json.dumps(list(rules))}\n")
        code, output = job.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        return [Timeline(job.run / "trace" / f"rank-{rank}.json") for rank in range(2)]

    def gathers_under_forwards(self, slots):
        """Of the gathers of the forward pass, the part that ran beside a forward of the same rank; without the first of a step, before which
        there is none. Both are some milliseconds longer than they would be, so that they are seen; a forward is the longer one, as with large layers."""
        steps = 20
        rules = ["site=lane kind=gather times=always action=delay for=2ms", "site=lane kind=forward times=always action=delay for=5ms"]
        ranks = self.timelines(slots, steps, rules, dim=192, n_layers=6, ffn_hidden=512, local_batch_size=2, seq_len=128)
        overlaps = []
        for rank in ranks:
            for step in range(WARM, steps + 1):
                gathers, forwards = rank.of("gather", step), rank.of("forward", step)
                self.assertEqual((len(gathers), len(forwards)), (8, 8), f"step {step}")
                overlaps += [under(gather, forwards) for gather in gathers[1:]]
        return sum(overlap > 0 for overlap in overlaps) / len(overlaps)

    def share_of_a_late_gather(self, slots):
        """What a delay of one forward's time, put on one gather of rank 1 in every second step, adds to the forward pass, as a part of itself.
        The plan gives the forwards their length, and what is counted is the time between them: a machine that stands still for a moment,
        as busy ones do, lengthens a forward and seldom a gap. Of each gap its medians are compared, so that seldom is never."""
        steps, forward = 36, "for=20ms"
        late, plain = range(WARM, steps, 2), range(WARM + 1, steps + 1, 2)
        rules = [f"site=lane kind=forward times=always action=delay {forward}"]
        rules += [f"site=lane rank=1 kind=gather unit=4 step={step} action=delay {forward}" for step in late]
        ranks = self.timelines(slots, steps, rules, n_layers=6)

        def gather(of):
            return statistics.median(length(ranks[1].spans[(step, "gather L4")]) for step in of)

        def waits(of):
            return statistics.mean(sum(statistics.median(gap) for gap in zip(*(rank.waits(step) for step in of))) for rank in ranks)

        delay = gather(late) - gather(plain)
        forwards = statistics.median(length(span) for rank in ranks for step in plain for span in rank.of("forward", step))
        self.assertAlmostEqual(delay / forwards, 1, delta=0.2)
        return (waits(late) - waits(plain)) / delay

    def test_with_one_slot_of_weights_no_gather_runs_under_a_forward(self):
        self.assertEqual(self.gathers_under_forwards(1), 0)

    def test_with_two_slots_of_weights_nearly_every_gather_runs_under_a_forward(self):
        self.assertGreater(self.gathers_under_forwards(2), 0.9)

    def test_with_one_slot_a_late_gather_costs_all_of_its_delay(self):
        self.assertGreater(self.share_of_a_late_gather(1), 0.9)

    def test_with_three_slots_a_late_gather_costs_little_of_its_delay(self):
        self.assertLess(self.share_of_a_late_gather(3), 0.2)


if __name__ == "__main__":
    unittest.main()
