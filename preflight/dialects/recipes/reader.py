"""From recipes to links: each script of a recipe is read like a job script.

The readers of Makefiles, justfiles and DVC pipelines share it. A script is a text for the shell whose parts know where
they are written. Its unknown parts stay unknown words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.dialects.shell.interpreter import Shell
from preflight.dialects.shell.links import links_of, starts_program
from preflight.dialects.shell.values import size_of
from preflight.vocabulary.budgets import RECIPES, WORD_CHARACTERS
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Link, Reading
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Cause, Expr, Op, Origin, Span, unknown

STARTS = re.compile(
    r"\b(python[\d.]*|torchrun|accelerate|deepspeed|srun|sbatch|bash|sh|uv|poetry|wandb|[\w-]+-cli)\b|\.sh\b"
)
"""A file of recipes without one of these words starts no program."""


class Recipe(Struct, frozen=True):
    """One target, recipe or stage: the texts that a shell gets one after the other, and the directory of the shell."""

    scripts: tuple[Expr, ...]
    directory: str | None = "."
    environment: Mapping[str, Expr] = field(default_factory=dict)
    turns: tuple[Origin, ...] = ()
    """Where the values are written that tell this recipe from others of the same text."""


def reading(
    source: Source, dialect: str, recipes: Iterable[Recipe], project: Project, reads: tuple[str, ...] = ()
) -> Reading:
    """A reading with the programs of the project that the recipes start. Equal launches are listed once.

    Raises DocumentError if there are more recipes than RECIPES.
    """
    links: list[Link] = []
    seen: set[str] = set()
    group = 0
    for count, recipe in enumerate(recipes, 1):
        if count > RECIPES:
            raise DocumentError(f"it has more than {RECIPES:,} recipes", Span(0, 0))
        found = list(_links(source, recipe, project))
        for link in found:
            key = f"{link.kind} {link.target} {_plain(link.words)} {_plain(link.launch)} {_plain(link.submitted)}"
            if key not in seen:
                seen.add(key)
                links.append(replace(link, group=group + (link.group or 0)))
        group += 1 + max((link.group or 0 for link in found), default=0)
    return Reading(source.path, dialect, links=tuple(links), reads=reads, trains=False)


def starts(read: Callable[[], Reading], project: Project) -> bool:
    """Whether a file of recipes can be read, and starts a program of the project or a script, or may start one beyond a
    budget."""
    try:
        found = read()
    except DocumentError:
        return False
    return found.unread is not None or any(
        link.kind in ("script", "job") or starts_program(link, project) for link in found.links
    )


def _plain(part: object) -> str:
    """A text without the places in it, to compare launches."""
    return re.sub(r"Origin\(.*?Span\(.*?\).*?\)", "", repr(part))


def _links(source: Source, recipe: Recipe, project: Project) -> Iterator[Link]:
    variables = dict(recipe.environment)
    group = 0
    for script in recipe.scripts:
        shell = Shell(
            source,
            dict(variables),
            directory=recipe.directory,
            exported=set(variables),
            group=group,
            turns=recipe.turns,
        )
        shell.follow_text(script)
        yield from links_of(shell, project, None).links
        group = shell.group + shell.pending


def joined(parts: list[Expr], origin: Origin | None) -> Expr:
    """Parts of a text, one after the other: unknown if they are longer than any command can be."""
    found = parts[0] if len(parts) == 1 else Op("concat", tuple(parts), origin)
    if size_of(found) > WORD_CHARACTERS:
        return unknown("it is longer than any word of a command can be", origin, Cause.budget)
    return found
