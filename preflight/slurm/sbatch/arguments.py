"""The command line of `preflight sbatch`: takes our own options out and leaves sbatch's arguments as they are.

Our options start with `--preflight-`. Like sbatch's options they come before the script's name; what follows the name
belongs to the script. Arguments are read as sbatch reads them (src/sbatch/opt.c: getopt_long with "+"; `:` between the
parts of a heterogeneous job).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.documents.directives import option_at
from preflight.vocabulary.errors import UsageError, suggestion

PREFIX = "--preflight-"
SHOWN = ("wrapper", "cli-filter")
ABOUT = """\
Checks a job script with sbatch's arguments and the environment, then calls the real sbatch with exactly these
arguments. If the job will be killed for its memory, it says why and exits with status 1."""
MODES = ("off", "warn", "on", "strict")
SECONDS = 20.0
"""How long a submission waits for its check: 20 times the usual duration (docs/how-to/admin.md)."""

OPTIONS: Mapping[str, tuple[str, str]] = {
    "fix": ("", "Submit the script with its safe fixes; the file is not changed."),
    "exit-zero": ("", "Submit the job despite findings; the same as --preflight-mode=warn."),
    "mode": ("MODE", "off: submit without a check; warn: submit and print the findings; on: stop jobs that will be "
                     "killed for their memory (default); strict: stop at every error. Default: PREFLIGHT_SBATCH."),
    "default": ("MODE", "The mode without --preflight-mode and PREFLIGHT_SBATCH; for a site's wrapper."),
    "only": ("", "Check and do not submit; exit status 1 if the job would be stopped."),
    "verbose": ("", "Show the whole report, also when nothing is wrong."),
    "machine": ("NAME|FILE", "The cluster. Default: PREFLIGHT_MACHINE, /etc/preflight/cluster.toml, the settings."),
    "sbatch": ("PATH", "The real sbatch. Default: PREFLIGHT_REAL_SBATCH, else the next one in PATH."),
    "timeout": ("SECONDS", f"Submit unchecked when the check takes longer (default: {SECONDS:g})."),
    "log": ("FILE|syslog", "Add a line of JSON for each submission."),
    "print": ("WHAT", "Print wrapper (a script to install as sbatch) or cli-filter (for SLURM's cli_filter/lua)."),
    "help": ("", "Show this text; --help is sbatch's own."),
}  # fmt: skip
"""Option -> the name of its value ("": it has none), and its help."""


class Own(Struct, frozen=True):
    """Our own options. `mode` is "" if no mode is given."""

    mode: str = ""
    default: str = "on"
    fix: bool = False
    only: bool = False
    verbose: bool = False
    machine: str | None = None
    sbatch: str | None = None
    seconds: float = SECONDS
    log: str | None = None
    show: str | None = None


class SbatchCommandLine(Struct, frozen=True):
    """`words` are sbatch's, ours left out: `options` up to the script, whose index is `script_at` (None: the script
    comes from standard input or from `wrap`), then the script's `arguments`."""

    own: Own
    words: tuple[str, ...]
    options: tuple[str, ...]
    script_at: int | None = None
    wrap: str | None = None
    answers: bool = False
    """Only help or a version is asked for."""
    quiet: bool = False
    strange: tuple[str, ...] = ()
    """Options that sbatch(1) does not list: a plugin's, a newer version's, or mistakes."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The last value of each long option that was given one."""

    @property
    def script(self) -> str | None:
        return None if self.script_at is None else self.words[self.script_at]

    @property
    def arguments(self) -> tuple[str, ...]:
        return () if self.script_at is None else self.words[self.script_at + 1 :]


_FIELDS = {"exit-zero": "mode", "help": "show", "print": "show"}
"""Option -> field of Own, where their names differ."""


def parse(words: Sequence[str], plugins: Mapping[str, bool] | None = None) -> SbatchCommandLine:
    """Takes a command line apart. `plugins`: options of the site's plugins, and whether each takes a value.

    Raises UsageError for an unknown option that starts with --preflight-.
    """
    own, kept, options, strange = Own(), list[str](), list[str](), list[str]()
    values: dict[str, str] = {}
    names: set[str] = set()
    index = 0
    while index < len(words):
        word = words[index]
        if word == ":":
            kept.append(word)
            options.append(word)
        elif word == "--" or not word.startswith("-") or word == "-":
            break
        elif word.startswith(PREFIX):
            own = _own(own, word)
        elif (takes := _plugin(word, plugins or {})) is not None:
            kept += words[index : index + 1 + takes]  # says nothing about what the job gets
            index += takes
        else:
            found, takes = option_at(words, index)
            kept += words[index : index + 1 + takes]
            options += words[index : index + 1 + takes]
            strange += [one.name for one in found if not one.known]
            names |= {one.name for one in found}
            values |= {one.name: one.value for one in found if one.value is not None}
            index += takes
        index += 1
    end = ["--"] if index < len(words) and words[index] == "--" else []
    rest = words[index + len(end) :]
    return SbatchCommandLine(
        own,
        words=(*kept, *end, *rest),
        options=tuple(options),
        script_at=len(kept) + len(end) if rest else None,
        wrap=values.get("wrap"),
        answers=bool(names & {"help", "usage", "version"}),
        quiet="quiet" in names,
        strange=tuple(strange),
        values=values,
    )


def _plugin(word: str, plugins: Mapping[str, bool]) -> int | None:
    """How many of the next arguments belong to a plugin's option; None: it is not a plugin's."""
    name, equals, _ = word[2:].partition("=")
    if not word.startswith("--") or name not in plugins:
        return None
    return int(plugins[name] and not equals)


def plugin_options(help_text: str) -> dict[str, bool]:
    """The options in what `sbatch --help` prints, and whether each takes a value: those of plugins are among them."""
    found = re.finditer(r"^ {2,}(?:-\w, )?--([\w-]+)(\[?=)?", help_text, re.MULTILINE)
    return {match[1]: match[2] == "=" for match in found}


def _own(own: Own, word: str) -> Own:
    name, equals, value = word[len(PREFIX) :].partition("=")
    if name not in OPTIONS:
        known = (PREFIX + one for one in OPTIONS)
        raise UsageError(
            f"there is no option {PREFIX}{name}{suggestion(PREFIX + name, known)}; {PREFIX}help lists them"
        )
    if bool(OPTIONS[name][0]) != bool(value) or (equals and not OPTIONS[name][0]):
        raise UsageError(f"{word}: write {PREFIX}{name}" + (f"={OPTIONS[name][0]}" if OPTIONS[name][0] else ""))
    allowed = {"mode": MODES, "default": MODES, "print": SHOWN}.get(name)
    if allowed is not None and value not in allowed:
        raise UsageError(f"{word}: write one of {', '.join(allowed)}")
    if name == "timeout":
        return replace(own, seconds=_seconds(word, value))
    changed: dict[str, Any] = {
        _FIELDS.get(name, name): value or {"exit-zero": "warn", "help": "help"}.get(name) or True
    }
    return replace(own, **changed)


def _seconds(word: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3600:
        raise UsageError(f"{word}: write seconds, more than 0 and less than 3600")
    return seconds


def usage() -> str:
    """The text of --preflight-help."""
    lines = ["Usage: preflight sbatch [--preflight-...] [sbatch's arguments]", "", *ABOUT.splitlines(), ""]
    for name, (value, text) in OPTIONS.items():
        head = f"  {PREFIX}{name}" + (f"={value}" if value else "")
        body = textwrap.wrap(text, 66)
        lines += [head, *(f"      {line}" for line in body)]
    return "\n".join(lines) + "\n"
