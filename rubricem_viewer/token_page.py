"""Lists the tokens of an attempt with their advantages."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from rubricem_env.domain.inputs import read_text, validating
from rubricem_records.rollouts.run_record import RECORD_FOLDER, VOCABULARY_FILE
from rubricem_viewer.api.trajectories import TokenPage
from rubricem_viewer.attempt_view import read_entry
from rubricem_viewer.run_folder import RunFolder


def list_tokens(run: RunFolder, rollout_id: str, *, offset: int, limit: int) -> TokenPage:
    """Tokens of a trajectory from `offset` on, with the advantage of the stage that each belongs to.

    Raises:
        NotThereError: there is none of that id.
        FileFormatError: the recorded tokens are damaged.
    """
    entry = read_entry(run, rollout_id)
    vocabulary = _vocabulary(run.folder)
    if entry.tokens is None:
        return TokenPage(total=0, offset=0, prompt_length=0, texts=(), stages=(), logprobs=(), advantages=())
    ids, stages, logprobs = (column[offset : offset + limit].tolist() for column in entry.tokens.unpack())
    advantages = entry.advantages or (None,) * len(run.record.stages)
    credit = (*advantages, None)
    return TokenPage(
        total=entry.tokens.length,
        offset=offset,
        prompt_length=entry.tokens.prompt_length,
        windows=tuple(start for start in entry.tokens.window_starts[1:] if offset <= start < offset + limit),
        texts=tuple(vocabulary[token] if 0 <= token < len(vocabulary) else f"#{token}" for token in ids),
        stages=tuple(stages),
        logprobs=tuple(
            round(logprob, 3) if stage >= 0 else None for logprob, stage in zip(logprobs, stages, strict=True)
        ),
        advantages=tuple(credit[stage] if -1 <= stage < len(advantages) else None for stage in stages),
    )


def _vocabulary(run: Path) -> Sequence[str]:
    """What each token says; empty where that was not recorded."""
    path = run / RECORD_FOLDER / VOCABULARY_FILE
    if not path.is_file():
        return ()
    with validating(f"{path} cannot be read", "Remove it to see token numbers instead."):
        return TypeAdapter(tuple[str, ...]).validate_json(read_text(path, "a run's vocabulary"))
