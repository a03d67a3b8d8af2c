"""`trainers/sft.py` on many GPUs.

accelerate launch --config_file configs/accelerate_zero3.yaml trainers/sft_accelerate.py --config configs/sft_qwen3_8b.yaml
"""

import sys
from collections.abc import Sequence

from rubricem_env.domain.errors import RubricEMError
from trainers.sft import read_arguments, run
from trainers.sft_parts.accelerated import Accelerated


def main(arguments: Sequence[str] | None = None) -> int:
    """Train with the processes that accelerate has started; 2 and one sentence on stderr for a mistake."""
    try:
        config = read_arguments(arguments)
        run(config, Accelerated.here(config.precision))
    except RubricEMError as mistake:
        sys.stderr.write(f"sft: {mistake}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
