"""`trainers/sft.py` on many GPUs.

accelerate launch --config_file configs/accelerate_zero3.yaml trainers/sft_accelerate.py --config
configs/sft_qwen3_8b.yaml
"""

import sys

from rubricem_trainers.fine_tuning.accelerated import Accelerated
from rubricem_trainers.fine_tuning.sft import run_sft

if __name__ == "__main__":
    sys.exit(run_sft(None, Accelerated.here))
