"""The page of a rule, made from its docstring, options and examples."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from pathlib import PurePosixPath

from preflight.vocabulary.rule import Example, Rule

_LANGUAGES = {".yaml": "yaml", ".yml": "yaml", ".py": "python", ".sh": "bash", ".sbatch": "bash", ".slurm": "bash",
              ".json": "json", ".toml": "toml"}  # fmt: skip


def page(rule: type[Rule]) -> str:
    """The page in Markdown, one final newline."""
    return "\n".join(_lines(rule)).rstrip() + "\n"


def _lines(rule: type[Rule]) -> Iterator[str]:
    yield from (f"# {rule.name}", "", rule.summary, "")
    if rule.preview:
        yield from ("This rule is in preview: it runs only when it is selected.", "")
    if rule.__doc__:
        yield from (inspect.cleandoc(rule.__doc__), "")
    yield from _options(rule)
    wrong = [example for example in rule.examples if example.finds]
    right = [example for example in rule.examples if not example.finds]
    for heading, examples in (("Finds", wrong), ("Leaves alone", right)):
        if examples:
            yield from (f"## {heading}", "")
        for example in examples:
            yield from _example(example)
    yield from ("## Ignore it", "", "On the same line, or on a separate line above:", "")
    yield from ("```yaml", f"# preflight: ignore[{rule.name}] why", "```", "")


def _options(rule: type[Rule]) -> Iterator[str]:
    """The rule's own settings with their defaults."""
    if not rule.options.model_fields:
        return
    yield from ("## Options", "", f"In `[tool.preflight.rules.{rule.name}]`:", "")
    for name, info in rule.options.model_fields.items():
        text = f": {info.description}" if info.description else ""
        yield f"- `{name}` (default `{info.get_default(call_default_factory=True)!r}`){text}"
    yield ""


def _example(example: Example) -> Iterator[str]:
    yield from (f"### {example.title}", "")
    yield from _files(example.files)
    if example.options:
        shown = ", ".join(f"`{name} = {value!r}`" for name, value in example.options.items())
        yield from (f"With {shown} in the settings.", "")
    if example.fixed:
        yield from (f"`{'--unsafe-fixes' if example.unsafe else '--fix'}` writes:", "", "```diff")
        for name, text in example.fixed.items():
            yield from _diff(name, example.files.get(name, ""), text)
        yield from ("```", "")


def _files(files: Mapping[str, str]) -> Iterator[str]:
    for name, text in files.items():
        language = _LANGUAGES.get(PurePosixPath(name).suffix, "text")
        yield from (f"`{name}`", "", f"```{language}", text.strip("\n"), "```", "")


def _diff(name: str, old: str, new: str) -> Iterator[str]:
    """The changes of a file, with two lines of context."""
    lines = unified_diff(old.strip("\n").split("\n"), new.strip("\n").split("\n"), name, name, n=2, lineterm="")
    yield from (line.rstrip() for line in lines)
