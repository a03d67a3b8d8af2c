"""Reads the rows of a trajectory file, which may hold one trajectory or many."""

from pathlib import Path

from rubricem_env.domain.errors import FileFormatError


def read_trajectory_rows(file: Path) -> dict[int, str]:
    """The text of each trajectory of a JSONL file by its line number; a file of one JSON object is row 1.

    Raises:
        FileFormatError: the file cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="surrogatepass")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {file}: {cause}. Give the path of a trajectory file.") from cause
    # Not splitlines: a line separator such as U+2028 may stand inside a JSON string.
    rows = {number: row for number, row in enumerate(text.split("\n"), start=1) if row.strip()}
    is_jsonl = len(rows) > 1 and all(row[0] == "{" and row.rstrip()[-1] == "}" for row in list(rows.values())[:2])
    return rows if is_jsonl else {1: text}
