"""Tutorials are followed as a reader would: files are written, and commands run one after another."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from pages_of_the_guide import ROOT, script

SAYS = [
    sys.executable,
    "-c",
    "import os, sys; print(*sys.argv[1:], *sorted(os.listdir()), os.listdir(os.environ['HOME']))",
]
"""In place of preflight: prints its arguments, the files that are there, and those of HOME."""

PAGE = """# Tutorial

<!-- write: conf/a.yaml -->

```yaml
a: 1
```

<!-- end -->

<!-- output: preflight check conf | head -n 1 -->
<!-- end -->

<!-- skip: it needs a GPU -->

```console
rm -rf conf
```

<!-- end -->
"""


def test_files_are_written_and_commands_see_an_empty_home() -> None:
    skipped: list[str] = []
    came = script("tutorials").played(PAGE, SAYS, skipped)
    assert "```text\n$ preflight check conf | head -n 1\ncheck conf conf []\n```\n" in came
    assert skipped == ["it needs a GPU"]
    assert script("tutorials").played(came, SAYS) == came


def test_a_page_that_shows_something_else_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tutorials = script("tutorials")
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("conf | head -n 1 -->\n", "conf | head -n 1 -->\n\n```text\nall fits\n```\n\n"))
    command = tmp_path / "preflight"
    command.write_text("#!/bin/sh\necho it does not\n")
    command.chmod(0o755)
    monkeypatch.setattr(tutorials, "installed", lambda directory, wheel: command)
    assert tutorials.main([str(page)]) == 1
    page.write_text(tutorials.played(page.read_text(), [str(command)]))
    assert tutorials.main([str(page)]) == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<!-- output: rm -rf x -->\n<!-- end -->\n", "only preflight is run here"),
        ("<!-- output: preflight rule | sort -r x -->\n<!-- end -->\n", "only head -n N and tail -n N"),
        ("<!-- write: a.yaml -->\nnothing\n<!-- end -->\n", "no fenced block for a.yaml"),
    ],
)
def test_what_a_page_may_not_ask(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        script("tutorials").played(text, SAYS)


def test_each_of_five_people_has_a_tutorial_from_a_job_that_dies_to_one_that_fits() -> None:
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs/tutorials").glob("*.md")}
    assert set(pages) == {"index", "wandb", "hydra", "slurm", "optuna", "fine-tuning"}
    del pages["index"]
    for name, text in pages.items():
        outputs = re.findall(r"```text\n(\$ preflight check.*?)```", text, re.DOTALL)
        found = [bool(re.search(r"^error\[", output, re.MULTILINE)) for output in outputs]
        assert True in found, f"{name}: no job that does not fit"
        fits = [output.rstrip().endswith(": fits") for output in outputs]
        assert True in fits[found.index(True) :], f"{name}: nothing fits in the end"
