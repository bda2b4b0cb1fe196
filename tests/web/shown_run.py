"""A training job with its dashboard, for the tests of that page."""
import re
import threading

PATIENCE = 90  # seconds; the machine may be busy


class ShownRun:
    """Of a job, until `end`: its launcher's process, and the dashboard's url, port and token."""

    def __init__(self, job, *arguments):
        self.process = job.start(*arguments, "--dashboard")
        for line in self.process.stdout:
            if found := re.search(r"dashboard: (http://127\.0\.0\.1:(\d+)/\?token=(\w+))", line):
                self.url, self.port, self.token = found.groups()
                break
        else:
            raise AssertionError(f"no dashboard: the launcher ended with {self.process.wait()}")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()  # or the pipe fills, and the launcher waits

    def end(self):
        self.process.send_signal(2)
        self.process.wait(PATIENCE)


__all__ = ["ShownRun"]
