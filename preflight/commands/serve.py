"""`preflight serve`: verdicts on Jobs by HTTP."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from preflight.commands.completion import complete_files
from preflight.commands.options import STATED
from preflight.vocabulary.errors import UsageError

WARM: Mapping[str, object] = {
    "model": "gpt2", "train": {"batch_size": 2, "seq_len": 64}, "machine": {"gpu": "a100-40gb"},
}  # fmt: skip
"""A Job that is judged before the first request: it imports what judging takes."""
GARBAGE = (2_000, 10, 10)
"""Objects between two collections. Commands that end soon have more: a refused body would stay here for minutes."""
MOST_WARM = 100_000
"""Rows of `--warm` that are judged."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", type=STATED, default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8750, show_default=True, help="The port to listen on.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="How long a request waits for its verdict.",
)
@click.option("--deny", is_flag=True, help="Refuse the admission of a job that exceeds; without it, warn.")
@click.option(
    "--warm",
    type=STATED,
    metavar="FILE",
    help="Judge the Jobs of a table first, last month's say, so that the first requests find their laws.",
    shell_complete=complete_files,
)
@click.option("--certificate", type=STATED, metavar="FILE", help="Serve HTTPS with this certificate.")
@click.option("--key", type=STATED, metavar="FILE", help="The key of the certificate.")
def command(
    host: str, port: int, seconds: float, deny: bool, warm: str | None, certificate: str | None, key: str | None
) -> None:
    """Serve verdicts on Jobs by HTTP: a Job in, a verdict out, and Kubernetes' AdmissionReview.

    No request makes it read a file or the network, trace a model or run code.
    """
    try:
        import uvicorn

        from preflight.batch.server import Limits, config
        from preflight.batch.service import Service
    except ImportError as error:
        raise UsageError('serve needs uvicorn and starlette: pip install "preflight-lint[serve]"') from error
    for name in (certificate, key):
        if name is not None and not os.path.isfile(name):
            raise UsageError(f"{name}: there is no such file")
    service = Service(seconds=seconds, deny=deny)
    service.warm([WARM])
    if warm is not None:
        for rows in _rows(Path(warm)):
            service.warm(rows)
    gc.freeze()  # laws live on; what requests leave behind is looked for as often as in any program
    gc.set_threshold(*GARBAGE)
    more = {"host": host, "port": port, "ssl_certfile": certificate, "ssl_keyfile": key}
    uvicorn.Server(config(service.app(), Limits(), **more)).run()


def _rows(path: Path) -> Iterator[list[object]]:
    """The first rows of a table. Raises UsageError."""
    from preflight.engine.score.columns import Answer
    from preflight.engine.score.files import source_of

    read = 0
    try:
        for rows, _ in source_of(path).pieces(0):
            yield [row for row in rows if not isinstance(row, Answer)]
            read += len(rows)
            if read >= MOST_WARM:
                return
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from error
