"""The picture of a terminal in the README, for scripts/generate.py: a command's output with its colours, as SVG."""

from __future__ import annotations

import io
import re

COMMAND = "preflight estimate examples/readme/sweep.yaml"
_LINES = 22
"""Of the output: the tiers, the parts, and the drawing of a step."""
_COLUMNS = 105


def terminal(command: str, output: str) -> str:
    """A window with the command and the first lines of what it printed (ANSI colours)."""
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.terminal_theme import MONOKAI
    from rich.text import Text

    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {command}"), soft_wrap=True)
    for line in output.splitlines()[:_LINES]:
        console.print(Text.from_ansi(line), soft_wrap=True)
    # A page that shows the picture must not load fonts from elsewhere.
    template = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="preflight", theme=MONOKAI, code_format=template, unique_id="preflight") + "\n"
