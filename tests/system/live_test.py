"""What a live run is asked and told: inspect, inject, set."""
import json
import os
import re
import signal
import socket
import subprocess
import time
import unittest

from job import PATIENCE, TROUPE, Job, finish, wait_until
from recovery_test import journal, told


def ask(command, job, *arguments):
    began = time.monotonic()
    done = subprocess.run([TROUPE, command, str(job.run), *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - began


def end_ahead(job, step=1):
    """Sets the end of a live run some steps ahead of this one: the step that it then ends with."""
    while True:
        step += 1500
        code, output, _ = ask("set", job, f"training.steps={step}")
        if code == 0:
            return step
        first = re.search(r"step (\d+) is the first that can change", output)  # a run that is quicker than the question says how far it is
        assert first, output
        step = int(first[1])


class LiveTest(unittest.TestCase):
    def start(self, *arguments, steps=100000, ranks=2):
        self.job = Job(steps=steps, checkpoint=False)
        self.addCleanup(self.job.remove)
        process = self.job.start("--nproc", ranks, "--metrics.log_freq", 1000, *arguments)  # nobody reads its output meanwhile
        self.addCleanup(process.kill)
        return process

    def test_inspect_names_the_rank_that_holds_the_others_up_within_a_second(self):
        process = self.start("--comm.train_timeout_seconds", 1000)
        self.job.wait_for_step(5, process)
        code, output, _ = ask("inspect", self.job)
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"^running: step \d+ of 100000, epoch 1, 2 ranks")
        victim = self.job.pid_of_rank(1)
        os.kill(victim, signal.SIGSTOP)

        times = []

        def named():
            code, output, took = ask("inspect", self.job)
            times.append(took)
            return f"rank 1 (pid {victim}" in output.splitlines()[0] and "holds up the others in comm: " in output.splitlines()[0]

        wait_until(named, "the first line names rank 1")
        self.assertLess(min(times), 1.5, "with the program's own start; a busy machine may hold up some")
        _, output, _ = ask("inspect", self.job)
        self.assertIn("; last letter ", output)
        self.assertNotIn("last letter Inspect", output)
        _, output, _ = ask("inspect", self.job, "--json")
        ranks = json.loads(output)["ranks"]
        self.assertEqual([rank["rank"] for rank in ranks], [0, 1])
        self.assertGreater(ranks[1]["silent_seconds"], 1)
        self.assertEqual([actor["actor"] for actor in ranks[0]["actors"]], ["data_loader", "compute", "sharding", "checkpoint", "metrics"])
        self.assertTrue(any(actor["waiting"] for actor in ranks[0]["actors"]))
        os.kill(victim, signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(finish(process)[0], 0)
        code, output, _ = ask("inspect", self.job)
        self.assertEqual(code, 1)
        self.assertIn("no run is going on there", output)

    def test_a_hang_that_ends_the_run_leaves_a_flight_record(self):
        process = self.start("--comm.train_timeout_seconds", 5)
        self.job.wait_for_step(5, process)
        victim = self.job.pid_of_rank(1)
        os.kill(victim, signal.SIGSTOP)
        code, output = finish(process)
        self.assertEqual(code, 1, output)
        self.assertIn(f"rank 1 (pid {victim}", output)
        flights = list(self.job.run.glob("flight-*.txt"))
        self.assertEqual(len(flights), 1)
        self.assertIn("SILENT", flights[0].read_text())

    def test_an_injected_crash_fires_once_is_in_the_journal_and_not_in_the_replay(self):
        whole = Job(steps=400, checkpoint=False)
        self.addCleanup(whole.remove)
        code, output = whole.train("--nproc", 2)
        self.assertEqual(code, 0, output)
        process = self.start("--elastic.policy", "respawn", "--faults.rules", "site=collective kind=reduce rank=1 step=33 action=crash", steps=400)
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        self.assertEqual(told(self.job), told(whole))
        fired = journal(self.job, "fault_fired")
        self.assertEqual([(line["rank"], line["rule"], line["step"]) for line in fired], [(1, 1, 33)])

    def test_what_is_refused_is_counted_and_shown(self):
        process = self.start("--faults.rules", "site=letter kind=StepReport rank=1 step=3 action=duplicate")
        self.job.wait_for_step(5, process)
        host, port = json.loads((self.job.run / "control.json").read_text())["address"].rsplit(":", 1)
        for nonsense in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", bytes(5) + b"\xff" * 40):
            with socket.create_connection((host, int(port)), 10) as stranger:
                stranger.settimeout(10)
                stranger.sendall(nonsense)
                try:
                    self.assertEqual(stranger.recv(1), b"", "it is dropped without an answer")
                except ConnectionResetError:
                    pass
        code, output, _ = ask("inspect", self.job)
        self.assertEqual(code, 0, output)
        self.assertIn("refused: 2 connections, 1 letter (sequence)", output)
        _, output, _ = ask("inspect", self.job, "--json")
        self.assertEqual(json.loads(output)["refused"], {"connections": 2, "letters": {"sequence": 1}})
        process.send_signal(signal.SIGTERM)
        self.assertEqual(finish(process)[0], 0)

    def test_every_question_ends_whatever_becomes_of_the_launcher(self):
        """B160: an answer, an error, or a limit."""
        process = self.start()
        self.job.wait_for_step(5, process)
        process.send_signal(signal.SIGSTOP)
        for command in (("inspect",), ("set", "optimizer.lr=1e-4"), ("inject", "site=lane action=delay for=1ms")):
            code, output, _ = ask(command[0], self.job, *command[1:])
            self.assertEqual(code, 1, output)
            self.assertRegex(output, r"does not answer")
        process.send_signal(signal.SIGCONT)
        code, output, _ = ask("inspect", self.job)
        self.assertEqual(code, 0, output)
        asking = [subprocess.Popen([TROUPE, "inspect", str(self.job.run)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(8)]
        process.kill()
        for one in asking:
            output, _ = one.communicate(timeout=PATIENCE)
            self.assertIn(one.returncode, (0, 1), output)
            self.assertTrue(output.strip(), "an answer, or why there is none")
        process.wait()

    def test_inject_sends_a_rule_to_a_live_run(self):
        process = self.start("--elastic.policy", "respawn")
        self.job.wait_for_step(5, process)
        code, output, _ = ask("inject", self.job, "site=lane kind=forward rank=1 action=crash")
        self.assertEqual(code, 0, output)
        wait_until(lambda: journal(self.job, "recovered"), "the run goes on")
        self.assertEqual([(line["rank"], line["operation"].split()[0]) for line in journal(self.job, "fault_fired")], [(1, "forward")])
        code, output, _ = ask("inject", self.job, "site=nowhere action=crash")
        self.assertEqual(code, 1)
        self.assertIn("nowhere", output)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(finish(process)[0], 0)

    def test_a_learning_rate_set_by_hand_gives_the_run_that_planned_it(self):
        endless = ("--lr_scheduler.total_steps", 100000)  # whenever the change comes, the rate has hardly fallen
        process = self.start(*endless)
        self.job.wait_for_step(20, process)
        code, output, _ = ask("set", self.job, "--dry-run", "optimizer.lr=1e-4")
        self.assertEqual(code, 0, output)
        self.assertIn("would be in force", output)
        code, output, _ = ask("set", self.job, "debug.seed=3", "optimizer.lr=1e-4")
        self.assertEqual(code, 1, output)
        self.assertIn("debug.seed is frozen", output)
        code, output, _ = ask("set", self.job, "optimizer.lr=1e-4", "lr_scheduler.min_lr_factor=0.3")
        self.assertEqual(code, 0, output)
        step = int(output.split("from step ")[1].split()[0])
        self.job.wait_for_step(step + 50, process)
        process.send_signal(signal.SIGTERM)
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        changed = journal(self.job, "changed")
        self.assertEqual([(line["from_step"], line["changes"]) for line in changed], [(step, ["optimizer.lr=1e-4", "lr_scheduler.min_lr_factor=0.3"])])
        rates = {line["step"]: line["lr"] for line in self.job.metrics()}
        self.assertLess(rates[step], rates[step - 1] / 5)
        self.assertLess(rates[step + 1], rates[step] * 1.01)
        planned = Job(steps=self.job.metrics()[-1]["step"], checkpoint=False)
        self.addCleanup(planned.remove)
        code, output = planned.train("--nproc", 2, *endless, "--live.changes", f"step={step} optimizer.lr=1e-4 lr_scheduler.min_lr_factor=0.3")
        self.assertEqual(code, 0, output)
        self.assertEqual(told(self.job), told(planned))

    def test_the_runs_end_its_checkpoints_and_its_lines_change_by_hand(self):
        self.job = Job(steps=100000)
        self.addCleanup(self.job.remove)
        process = self.job.start("--nproc", 2, "--metrics.log_freq", 1000, "--checkpoint.interval", 100000)
        self.addCleanup(process.kill)
        self.job.wait_for_step(10, process)
        code, output, _ = ask("set", self.job, "training.steps=3")
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"training\.steps = 3: step \d+ is the first that can change")
        code, output, _ = ask("set", self.job, "metrics.log_freq=7", "checkpoint.interval=50", "checkpoint.keep_latest_k=2")
        self.assertEqual(code, 0, output)
        step = int(output.split("from step ")[1].split()[0])
        last = end_ahead(self.job, step)
        code, output = finish(process)
        self.assertEqual(code, 0, output)
        self.assertEqual(self.job.metrics()[-1]["step"], last)
        self.assertIn(f"Training completed: {last} steps", output)
        lines = [int(line.split("step:")[1].split()[0]) for line in output.splitlines() if "  loss: " in line]
        self.assertEqual([line for line in lines if line >= step], [line for line in range(step, last + 1) if line % 7 == 0])
        names = self.job.checkpoints()
        self.assertEqual(len(names), 2, names)
        self.assertIn(f"step-{last}", names)

    def test_a_limit_on_waiting_set_by_hand_ends_a_hang(self):
        process = self.start("--comm.train_timeout_seconds", 1000)
        self.job.wait_for_step(5, process)
        code, output, _ = ask("set", self.job, "comm.train_timeout_seconds=10")
        self.assertEqual(code, 0, output)
        step = int(output.split("from step ")[1].split()[0])
        self.job.wait_for_step(step, process)
        os.kill(self.job.pid_of_rank(1), signal.SIGSTOP)
        code, output = finish(process)
        self.assertEqual(code, 1, output)
        self.assertIn("no step was finished for 10 s (comm.train_timeout_seconds)", output)


if __name__ == "__main__":
    unittest.main()
