"""`python trainers/sft.py --config configs/sft_almanac.yaml`: the command of `trainers/sft_parts/sft.py`."""

import sys

from rubricem_trainers.sft_parts.sft import main

if __name__ == "__main__":
    sys.exit(main())
