"""`python trainers/sft.py --config configs/sft_almanac.yaml`: the command of `trainers/fine_tuning/sft.py`."""

import sys

from rubricem_trainers.fine_tuning.sft import main

if __name__ == "__main__":
    sys.exit(main())
