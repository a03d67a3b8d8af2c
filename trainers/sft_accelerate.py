"""`trainers/sft.py` on many GPUs.

accelerate launch --config_file configs/accelerate_zero3.yaml trainers/sft_accelerate.py --config configs/sft_qwen3_8b.yaml
"""

import sys
from collections.abc import Sequence

from trainers.sft import run_sft
from trainers.sft_parts.accelerated import Accelerated


def main(arguments: Sequence[str] | None = None) -> int:
    """Train with the processes that accelerate has started."""
    return run_sft(arguments, Accelerated.here)


if __name__ == "__main__":
    sys.exit(main())
