"""Tells vLLM of our plugin, as an installed package of ours would: metadata alone, in the lane's own environment."""

from importlib.metadata import distribution
from pathlib import Path

NAME = "rubricem-vllm-cpu"
ENTRY_POINTS = "[vllm.general_plugins]\nrubricem_cpu = trainers.verl_backend.cpu.vllm:keep_weights\n"


def main() -> None:
    """Write rubricem_vllm_cpu-0.dist-info; doing it twice does no harm."""
    folder = Path(str(distribution("vllm-cpu").locate_file("rubricem_vllm_cpu-0.dist-info")))
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0\n")
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "RECORD").write_text("")


if __name__ == "__main__":
    main()
