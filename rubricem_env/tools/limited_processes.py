"""Work in processes of our own with a limit of time: one that hangs or breaks ends alone, and is replaced."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


class LimitedProcesses:
    """Processes that run one of our modules, start at the first request, and have no key in their environment.

    A process reads a request from its standard input and answers with one line.
    """

    def __init__(self, module: str, arguments: Sequence[str] = (), *, processes: int = 2, seconds: float) -> None:
        self.seconds = seconds
        self.processes = processes
        self.threads = ThreadPoolExecutor(processes, thread_name_prefix=module.rpartition(".")[2])
        """As many requests as there are threads are worked on at once."""
        # -P: a module that lies in the current folder is not imported.
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._idle: list[subprocess.Popen[bytes]] = []

    def ask(self, request: bytes) -> bytes:
        """The line that answers the request, without its end; empty where the process broke or took too long."""
        # Taken and given back in one step each: a list is safe among threads.
        process = self._idle.pop() if self._idle else self._start()
        clock = threading.Timer(self.seconds, process.kill)
        clock.start()
        reply = b""
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(request)
            process.stdin.flush()
            reply = process.stdout.readline()
        except BrokenPipeError:
            pass
        finally:
            clock.cancel()
            if reply.endswith(b"\n"):
                self._idle.append(process)
            else:
                _stop(process)
        return reply[:-1] if reply.endswith(b"\n") else b""

    def close(self) -> None:
        """End the processes."""
        self.threads.shutdown()
        while self._idle:
            _stop(self._idle.pop())

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": str(Path(__file__).parents[2])},
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
