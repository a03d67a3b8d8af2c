"""`python trainers/verl_ssgrpo.py`: the command of `trainers/verl_backend/command.py`."""

import sys

from rubricem_trainers.verl_backend.command import main

if __name__ == "__main__":
    sys.exit(main())
