"""The file that an option names, written in one go."""

from pathlib import Path

from rubricem_env.domain.errors import ConfigError


def write_out(file: Path, text: str, *, option: str) -> None:
    """Write the text.

    Raises:
        ConfigError: the file cannot be written; `option` is what named it.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as cause:
        raise ConfigError(f"cannot write {file}: {cause.strerror}. Choose another file with {option}.") from cause
