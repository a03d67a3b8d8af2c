"""The questions that RL trains on: one `Query` a line, as `rubricem data prepare` writes them."""

from pathlib import Path

from pydantic import ValidationError

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.query import Query
from rubricem_env.domain.trajectory_json import first_problem

_WAY_OUT = "Make it with: rubricem data prepare SOURCE -o FILE"


def read_training_set(path: Path) -> tuple[Query, ...]:
    """The questions of a file, in its order.

    Raises:
        FileFormatError: it cannot be read, a line is no `Query` or has no rubrics, or a question stands twice.
    """
    queries: dict[str, Query] = {}
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                query = _read_line(line, f"{path}, line {number}")
                if query.key in queries:
                    raise FileFormatError(f"{path}, line {number}: the question stands there already. {_WAY_OUT}")
                queries[query.key] = query
    except OSError as cause:
        raise FileFormatError(f"cannot read the questions {path}: {cause.strerror or cause}. {_WAY_OUT}") from cause
    if not queries:
        raise FileFormatError(f"{path} holds no question. {_WAY_OUT}")
    return tuple(queries.values())


def _read_line(line: bytes, where: str) -> Query:
    try:
        query = Query.model_validate_json(line)
    except ValidationError as cause:
        raise FileFormatError(f"{where} is no training question: {first_problem(cause)} {_WAY_OUT}") from cause
    if not query.rubrics:
        raise FileFormatError(f"{where}: the question has no persistent rubrics. {_WAY_OUT}")
    return query
