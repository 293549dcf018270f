"""`preflight lsp`: the language server, for an editor that starts it."""

from __future__ import annotations

import click

from preflight.vocabulary.errors import UsageError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Serve an editor: findings, fixes and needs beside the text, over standard input and output.

    The editor starts it, with the folder of the project as the current directory. No code of the project is run.
    """
    try:
        from preflight.editor.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise UsageError("preflight lsp needs pygls: pip install 'preflight-lint[lsp]'") from error
    serve()
