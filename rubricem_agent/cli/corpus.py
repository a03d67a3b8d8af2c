"""`rubricem corpus`: index one's own documents for the search tools."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.build.data import build_corpus
from rubricem_agent.cli.terminal import Terminal, command, inert

corpus_app = typer.Typer(
    help="Index your own documents for the search tools.", no_args_is_help=True, callback=lambda: None
)
_SHOWN = 5


@corpus_app.command()
@command
def build(
    terminal: Terminal,
    sources: Annotated[
        list[Path],
        typer.Argument(help="Folders, or files: text, Markdown, HTML, PDF, JSONL, parquet, a Wikipedia dump."),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder of the index. The same folder again updates it.")
    ],
    passage: Annotated[int, typer.Option(min=100, max=20_000, help="The most characters of a passage.")] = 600,
    embedder: Annotated[
        str | None, typer.Option(help="Search by meaning as well: minilm, qwen3-embedding-0.6b or hashing.")
    ] = None,
    embedder_path: Annotated[Path | None, typer.Option(help="The folder of the embedder's model.")] = None,
) -> None:
    """Index documents, so that `--tools INDEX` searches them.

    The same command goes on after a kill, reads files again that are new or have changed, and drops those that are gone.
    """
    with terminal.progress() as bars:
        task = bars.add_task("passages", total=None)
        built, passed = build_corpus(
            sources,
            out,
            passage=passage,
            embedder=embedder,
            embedder_path=embedder_path,
            on_passages=lambda count: bars.advance(task, count),
        )
    for name, problem in list(built.skipped.items())[:_SHOWN]:
        terminal.warn(f"{inert(name)}: {inert(problem)}")
    others = [
        (len(built.skipped) - _SHOWN, "more files lack documents"),
        (len(passed), f"files are of no kind that can be read, such as {inert(passed[0].name)}" if passed else ""),
    ]
    for count, what in others:
        if count > 0:
            terminal.warn(f"{count:,} {what}")
    document = {**built._asdict(), "passed": len(passed), "index": str(out)}
    gone = f", {built.dropped:,} gone" if built.dropped else ""
    terminal.close(
        document,
        f"{out}: {built.passages:,} passages of {built.files:,} files ({built.read:,} read now{gone}). Search them with "
        f"--tools {out}.",
        brief=str(out),
    )
