"""The command line of the local trainer."""

import asyncio
import signal
import sys
from collections.abc import Sequence

from ..settings import INTERRUPTED, read_command, run_command
from .run import make_run, open_services
from .settings import LocalConfig
from .ssgrpo import train


def main(arguments: Sequence[str] | None = None) -> int:
    """Train. Returns 2, with one sentence on stderr, for a mistake or a refused step, and 130 for an interrupt."""

    async def connect_and_train(config: LocalConfig) -> None:
        async with open_services(config) as (toolbox, judge):
            await train(make_run(config, toolbox, judge))

    def run() -> None:
        config = read_command(
            arguments, LocalConfig, prog="python trainers/local_ssgrpo.py", description="Train in one process."
        )
        asyncio.run(connect_and_train(config))

    code = run_command("local_ssgrpo", run)
    if code == INTERRUPTED:
        # Only the decoding thread is left to end; a second interrupt would only print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    sys.exit(main())
