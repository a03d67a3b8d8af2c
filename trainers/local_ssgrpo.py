"""`python trainers/local_ssgrpo.py --config configs/local_almanac.yaml`: the command of `trainers/local/ssgrpo.py`."""

import sys

from rubricem_trainers.local.ssgrpo import main

if __name__ == "__main__":
    sys.exit(main())
