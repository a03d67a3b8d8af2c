"""pytest plugin: imports and collects once, then forks processes that share the files; `-p tests.forked --forks 2`.

pytest-xdist starts processes that import and collect everything each for itself. Reports are pytest's own. A process
that dies fails the test it was at, and another takes its place. A file stays in one process. The fork server that
tests have from multiprocessing is a fork as well, so that what it copies has imported everything.
"""

import gc
import os
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, Pipe, arbitrary_address, wait
from tempfile import TemporaryFile
from typing import Any, NoReturn

import pytest

Group = list[int]
"""Indices of the items of one file, in their order."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run the files in N forked processes")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.forks:
        # Imports make a million objects that stay. Looking for garbage among them takes a fifth of the time.
        gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Takes the place of pytest's own loop, which runs the items in this process."""
    if not session.config.option.forks:
        return None
    if session.config.option.collectonly or session.testsfailed:
        gc.enable()
        return None
    Dispatcher(session).run(session.config.option.forks)
    return True


def fork_server() -> int | None:
    """Forks this process as the fork server of multiprocessing, and gives its pid: a started one imports torch for 5 s.

    Python 3.14 has another protocol; there each process of the tests starts a server when it needs one.
    """
    if sys.version_info >= (3, 14):
        return None
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address := arbitrary_address("AF_UNIX"))
        listener.listen()
        readable, alive = os.pipe()
        pid = os.fork()
        if pid == 0:
            stop_coverage()
            os.close(alive)
            try:
                forkserver.main(os.dup(listener.fileno()), readable, [])
            finally:
                os._exit(0)
        os.close(readable)
    one = forkserver._forkserver
    one._forkserver_address, one._forkserver_alive_fd, one._forkserver_pid = address, alive, pid
    # Its own looks whether the server is alive, and can do so in the parent of the server alone.
    one.ensure_running = lambda: None
    return pid


def stop_coverage() -> Any:
    """The coverage that ran here, if any did."""
    running = sys.modules["coverage"].Coverage.current() if "coverage" in sys.modules else None
    if running is not None:
        running.stop()
    return running


class Dispatcher:
    """Gives each process a file whenever it has none, and passes its reports on to pytest."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.hook = session.config.hook
        self.children: dict[Connection, int] = {}
        """The pid at the other end."""
        self.given: dict[Connection, deque[int]] = {}
        """What each process has still to do; it is at the first."""
        files: dict[object, Group] = {}
        for index, item in enumerate(session.items):
            files.setdefault(item.path, []).append(index)
        self.waiting = deque(files.values())

    def run(self, count: int) -> None:
        if threading.active_count() > 1:
            raise pytest.UsageError(
                f"a module starts a thread when it is imported, and no fork has it: {threading.enumerate()}"
            )
        # One folder for the files of all processes. What is frozen is not copied when a process collects its garbage.
        self.session.config._tmp_path_factory.getbasetemp()
        gc.collect()
        gc.freeze()
        gc.enable()
        server = fork_server()
        try:
            for _ in range(min(count, len(self.waiting))):
                self.fork()
            while self.children:
                for pipe in wait(list(self.children)):
                    self.receive(pipe)
        finally:
            for pid in self.children.values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                os.waitpid(pid, 0)
            if server is not None:
                os.kill(server, signal.SIGTERM)
                os.waitpid(server, 0)

    def fork(self) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for other in self.children:
                other.close()
            Worker(self.session, theirs).run_and_exit()
        theirs.close()
        self.children[ours] = pid
        self.given[ours] = deque()
        self.give(ours)

    def give(self, pipe: Connection) -> None:
        group = self.waiting.popleft() if self.waiting else []
        self.given[pipe] = deque(group)
        with suppress(BrokenPipeError):
            pipe.send(group)

    def receive(self, pipe: Connection) -> None:
        kind, content = "closed", None
        with suppress(EOFError, ConnectionResetError):
            kind, content = pipe.recv()
        if kind == "closed":
            self.bury(pipe)
        elif kind == "report":
            self.hook.pytest_runtest_logreport(
                report=self.hook.pytest_report_from_serializable(config=self.session.config, data=content)
            )
        elif kind == "warning":
            self.hook.pytest_warning_recorded.call_historic(kwargs=content)
        elif kind == "ended":
            self.given[pipe].popleft()
            if self.session.shouldfail:
                raise self.session.Failed(self.session.shouldfail)
            if not self.given[pipe]:
                self.give(pipe)

    def bury(self, pipe: Connection) -> None:
        """A process has ended: well if it had nothing to do, or else its test has failed and the others are run."""
        pid, left = self.children.pop(pipe), self.given.pop(pipe)
        pipe.close()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if not left and code == 0:
            return
        item = self.session.items[left.popleft()] if left else None
        ended = f"a process of the tests ended with {code}" + (" at this test" if item else " after its tests")
        nodeid, where = (item.nodeid, item.location) if item else ("processes", ("processes", None, "processes"))
        self.hook.pytest_runtest_logreport(
            report=pytest.TestReport(nodeid, where, {}, "failed", longrepr=ended, when="call")
        )
        if left:
            self.waiting.appendleft(list(left))
        if self.waiting:
            self.fork()


class Worker:
    """The forked process: runs what it is given and sends the reports."""

    def __init__(self, session: pytest.Session, pipe: Connection) -> None:
        self.session = session
        self.config = session.config
        self.pipe = pipe
        self.begun = False

    def run_and_exit(self) -> NoReturn:
        code = 1
        try:
            self.prepare()
            while group := self.pipe.recv():
                for index, following in zip(group, [*group[1:], None], strict=True):
                    after = None if following is None else self.session.items[following]
                    self.config.hook.pytest_runtest_protocol(item=self.session.items[index], nextitem=after)
                    self.pipe.send(("ended", index))
            self.finish()
            code = 0
        except KeyboardInterrupt:
            code = 130
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            # What the parent left to be done at its exit is not done here.
            os._exit(code)

    def prepare(self) -> None:
        plugins = self.config.pluginmanager
        plugins.unregister(name="terminalreporter")
        # pytest tells a new plugin the warnings of before, which have been told.
        plugins.register(self, "forked-worker")
        self.begun = True
        # Modules may hold the parent's objects, so output goes to files of this process under the parent's numbers.
        capture = plugins.getplugin("capturemanager")
        if capture._method == "fd":
            for stream in (capture._global_capturing.out, capture._global_capturing.err):
                with TemporaryFile() as file:
                    os.dup2(file.fileno(), stream.tmpfile.fileno(), inheritable=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.pipe.send(("report", data))

    def pytest_warning_recorded(self, warning_message, when, nodeid, location) -> None:
        content = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        if self.begun:
            self.pipe.send(("warning", content))

    def finish(self) -> None:
        """What a process leaves at its end: what it has covered, and exceptions that nobody has seen."""
        if running := stop_coverage():
            running.save()
        self.config._ensure_unconfigure()
