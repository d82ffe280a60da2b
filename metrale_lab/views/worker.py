"""The thread that carries out what panel buttons ask for.

Widget handlers only put jobs here: they run on the kernel's main thread or on a subshell's, and
must be gone at once. The thread starts with the first job and ends when there is nothing to do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

Job = Callable[[], None]


class Worker:
    """Runs jobs in order on one daemon thread; a job should deal with its own errors."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._thread: threading.Thread | None = None

    def put(self, job: Job) -> None:
        """Run `job` after the ones before it; returns at once."""
        with self._lock:
            self._jobs.append(job)
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="metrale-lab buttons", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
                job = self._jobs.popleft()
            try:
                job()
            except BaseException:
                with self._lock:
                    self._start()  # this thread ends by telling what was raised
                raise


WORKER = Worker()
