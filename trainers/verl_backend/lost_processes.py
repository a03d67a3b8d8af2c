"""Which process of a run has died, in one sentence, from what Ray says of it."""

import re

from rubricem_env.domain.errors import BoundaryError

LOGS = "its log, under /tmp/ray/session_latest/logs"
ENGINE_LOST = "the engine behind a vLLM server, whose own process is alive"
_NAMED = re.compile(r"class_name: (?:\S*\.)?(?P<name>\w+)\n(?:.*\n)*?\tpid: (?P<pid>\d+)\n(?:.*\n)*?\tip: (?P<ip>\S+)")
"""How Ray names an actor that has died, in ten lines."""
_NOT_STARTED = "error raised in its creation task"
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception): .*\S)", re.MULTILINE)
"""The last line of a traceback."""


def lost_process(message: str) -> BoundaryError:
    """The error for a process that died, from Ray's message or `ENGINE_LOST`, in one sentence."""
    text = " ".join(message.split()).rstrip(".")
    if _NOT_STARTED in message:
        reason = _RAISED.findall(message)
        return BoundaryError(f"a process of the run could not start: {reason[-1] if reason else text}. See {LOGS}.")
    named = _NAMED.search(message)
    gone = "{name}, process {pid} on {ip}".format(**named.groupdict()) if named else text
    return BoundaryError(
        f"a process of the run is gone: {gone}. See {LOGS}; the usual reason is that memory ran out. The same command "
        "resumes from the last checkpoint."
    )
