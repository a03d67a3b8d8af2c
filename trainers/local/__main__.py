"""`python -m rubricem_trainers.local`: the local trainer. Its modules are not looked through for garbage."""

import sys
from importlib import import_module

from rubricem_env.heap import filling_heap, settle_heap

if __name__ == "__main__":
    with filling_heap():
        command = import_module("rubricem_trainers.local.command")
    settle_heap()
    sys.exit(command.main())
