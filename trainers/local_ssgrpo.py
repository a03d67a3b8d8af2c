"""`python trainers/local_ssgrpo.py --config configs/local_almanac.yaml`: the command of `trainers/local/command.py`."""

import sys

from rubricem_trainers.local.command import main

if __name__ == "__main__":
    sys.exit(main())
