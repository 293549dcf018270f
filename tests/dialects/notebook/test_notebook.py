"""Notebooks: those that are left alone, then what is read of the others, and where it is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preflight.dialects import recognise
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.standing import Standing
from preflight.vocabulary.text import DocumentError, Source
from tests.notebooks_as_text import IMPORTS, MODEL, TRAINS, bound, built, notebook, value
from tests.recipes_as_text import TRAIN, commands

BATCH = "train.batch_size"
JOB = (IMPORTS, "BS = 8\n", MODEL, TRAINS)
LEFT_ALONE = {
    "no notebook": '{"cells": []}',
    "a list": '["cell_type", "import torch"]',
    "no cells": '{"metadata": {"cell_type": "import torch"}}',
    "cells that are no list": '{"cells": {"cell_type": "code", "source": "import torch"}}',
    "a cell that is no object": '{"cells": ["cell_type", "import torch"]}',
    "a source that is no text": '{"cells": [{"cell_type": "code", "source": {"import": "torch"}}]}',
    "text cells": notebook(*JOB, kind="markdown"),
    "a kernel of R": notebook(*JOB, metadata={"kernelspec": {"language": "R", "name": "ir"}}),
    "a kernel of Julia, without its language": notebook(*JOB, metadata={"kernelspec": {"name": "julia-1.9"}}),
    "it trains nothing": notebook("import torch\n", "torch.ones(3)\n"),
    "it starts nothing of the project": notebook("!pip install torch\n", "!python -m pip list\n"),
    "the program is of a repository that is cloned": notebook(
        "!git clone https://example.com/other\n", "%cd other\n", "!python train.py --batch-size 8\n"
    ),
    "a study of Optuna": notebook(*JOB, "def objective(trial):\n    trial.suggest_int('bs', 1, 8)\n"),
}
BROKEN = {
    "a conflict": '{"cell_type":\n<<<<<<< HEAD\nimport torch',
    "it ends too early": notebook(*JOB)[:-20],
    "too deep": '{"cell_type": "import", "cells": ' + "[" * 100_000,
}


@pytest.mark.parametrize("text", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_a_notebook_that_is_left_alone(text: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "a.ipynb").write_text(text)
    project = Project(tmp_path, Settings())
    assert recognise(project.source("a.ipynb"), project) is None


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_notebook_that_cannot_be_parsed(text: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError):
        recognise(Source("a.ipynb", text), Project(tmp_path, Settings()))


BATCHES: dict[str, tuple[str, list[object]]] = {
    "in the order of the cells": (notebook(*JOB), [8]),
    "a source that is one string": (notebook(*JOB, lines=False), [8]),
    "without metadata": (json.dumps({"cells": json.loads(notebook(*JOB))["cells"]}), [8]),
    "nbformat 3": (
        json.dumps(
            {"worksheets": [{"cells": [{"cell_type": "code", "language": "python", "input": one} for one in JOB]}]}
        ),
        [8],
    ),
    "a cell of another language": (
        json.dumps(
            {
                "cells": [
                    *json.loads(notebook(*JOB[:2]))["cells"],
                    {"cell_type": "code", "metadata": {"vscode": {"languageId": "r"}}, "source": "BS = 64"},
                    *json.loads(notebook(*JOB[2:]))["cells"],
                ]
            }
        ),
        [8],
    ),
    "a variable that is set again after its use": (notebook(*JOB, "BS = 64\n"), [8]),
    "a variable that is set again before its use": (notebook(IMPORTS, "BS = 8\n", "BS = 4\n", MODEL, TRAINS), [4]),
    "magics": (notebook("%matplotlib inline\n!pip install -q peft\n" + IMPORTS, *JOB[1:], "model?", "?model"), [8]),
    "cell magics of Python": (notebook(IMPORTS, "%%time\nBS = 8\n", MODEL, "%%capture out\n" + TRAINS), [8]),
    "a statement that is timed": (notebook(IMPORTS, "%time BS = 8\n", MODEL, TRAINS), [8]),
    "a magic without its mark": (notebook("pip install torch\n" + IMPORTS, *JOB[1:]), [8]),
    "text of the page": (notebook("%%html\n<b>train</b>\n", *JOB), [8]),
    "a trailing semicolon and display": (notebook(IMPORTS, "BS = 8;\n", MODEL, TRAINS + "display(model);"), [8]),
    "await at the top": (notebook(IMPORTS, "BS = 8\n", MODEL, "import a\nawait a.b()\n" + TRAINS), [8]),
    "an indented cell": (notebook(IMPORTS, "  BS = 8\n  B = 2\n", MODEL, TRAINS), [8]),
    "no magics": (notebook(IMPORTS, 'a = """\n!ls\n%cd x"""\nBS = 8 \\\n%9\n', MODEL, TRAINS), [8]),
    "the output of a command": (notebook(IMPORTS, "BS = !nproc\n", MODEL, TRAINS), ["?"]),
    "the result of a magic": (notebook(IMPORTS, "BS = %env BS\n", MODEL, TRAINS), ["?"]),
    "set again by a command": (notebook(IMPORTS, "BS = 8\n", "BS = !nproc\n", MODEL, TRAINS), ["?"]),
    "set in a cell that is no Python": (notebook(IMPORTS, "BS = 8\n", "BS = 4 oops\n", MODEL, TRAINS), ["?"]),
    "an unknown magic": (notebook(IMPORTS, "BS = 8\n", "%%skip $DEBUG\nBS = 4\n", MODEL, TRAINS), ["?"]),
    "anything may be set in a cell that is no Python": (notebook(*JOB, "f(x oops\n"), ["?"]),
    "a script that sets names": (notebook(*JOB, "%run settings.py\n"), ["?"]),
    "two trainers": (notebook(*JOB, "BS = 16\n" + TRAINS), ["?"]),
    "two loops": (
        notebook(
            "import torch\nfrom torch.utils.data import DataLoader\nfrom x import d, m, o\n",
            *(
                f"for b in DataLoader(d, batch_size={size}, shuffle=True):\n    m(b).mean().backward()\n    o.step()\n"
                for size in (8, 64)
            ),
        ),
        ["?"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), BATCHES.values(), ids=BATCHES)
def test_the_batch_of_a_notebook(text: str, expected: list[object], tmp_path: Path) -> None:
    assert [value(study, BATCH) for study in built(text, tmp_path)] == expected


def test_a_model_that_is_made_twice_is_unknown(tmp_path: Path) -> None:
    text = notebook(*JOB, 'model = AutoModelForCausalLM.from_pretrained("gpt2-xl")\n', TRAINS)
    [study] = built(text, tmp_path)
    assert value(study, "model.name") == "?"


def test_a_model_whose_adapters_are_made_twice_is_unknown(tmp_path: Path) -> None:
    """Its adapters being unknown, it would be taken for one that is trained whole."""
    adapters = "from peft import LoraConfig, get_peft_model\nmodel = get_peft_model(model, LoraConfig(r={}))\n"
    text = notebook(*JOB[:3], adapters.format(8), TRAINS, MODEL, adapters.format(64), TRAINS)
    [study] = built(text, tmp_path)
    assert (value(study, "train.peft.r"), value(study, "model.name")) == ("?", "?")
    [once] = built(notebook(*JOB[:3], adapters.format(8), TRAINS), tmp_path)
    assert (value(once, "train.peft.r"), value(once, "model.name")) == (8, "gpt2")


STARTS: dict[str, tuple[str, list[str]]] = {
    "a line": (notebook("!python train.py --batch-size 8\n"), ["train.py --batch-size 8"]),
    "with blanks and quotes": (notebook('! python "train.py" --batch-size "8"\n'), ["train.py --batch-size 8"]),
    "lines that go on": (notebook("!python train.py \\\n  --batch-size 8\n"), ["train.py --batch-size 8"]),
    "in a condition": (notebook("if True:\n    !python train.py --batch-size 8\n"), ["train.py --batch-size 8"]),
    "a cell of a shell": (notebook("%%bash\nB=8\npython train.py --batch-size $B\n"), ["train.py --batch-size 8"]),
    "a script": (notebook("%%script bash\npython train.py\n"), ["train.py"]),
    "a magic": (notebook("%run train.py --batch-size 8\n"), ["train.py --batch-size 8"]),
    "its output is kept": (notebook("log = !python train.py --batch-size 8\n"), ["train.py --batch-size 8"]),
    "an expression of Python": (notebook("B = 8\n!python train.py --batch-size {B}\n"), ["train.py --batch-size ?"]),
    "a variable of the notebook": (notebook("B = 8\n!python train.py --batch-size $B\n"), ["train.py --batch-size ?"]),
    "a variable of the environment": (
        notebook("%env B=8\n", "!python train.py --batch-size $B\n"),
        ["train.py --batch-size 8"],
    ),
    "a shell for each line": (notebook("!B=8\n!python train.py --batch-size $B\n"), ["train.py --batch-size ?"]),
    "another folder": (notebook("%cd sub\n!python other.py\n"), ["sub/other.py"]),
    "and back": (notebook("%cd sub\n%cd ..\n!python train.py\n"), ["train.py"]),
    "twice": (notebook("!python train.py\n", "!python train.py\n"), ["train.py"]),
    "a cell in another language": (notebook("%%perl\npython train.py\n"), []),
    "a comment": (notebook("# !python train.py\n"), []),
    "a program that a cell writes": (notebook("%%writefile train.py\nimport x\n", "!python train.py\n"), []),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), STARTS.values(), ids=STARTS)
def test_the_programs_that_a_notebook_starts(text: str, expected: list[str], tmp_path: Path) -> None:
    assert commands("a.ipynb", text, tmp_path, {"sub/other.py": TRAIN}) == expected


def test_a_program_that_a_cell_writes_is_unknown(tmp_path: Path) -> None:
    text = notebook("%%writefile train.py\nimport x\n", "!python train.py --batch-size 8\n")
    assert [value(study, BATCH) for study in built(text, tmp_path, {"train.py": TRAIN}, "a.ipynb")] == ["?"]


def test_what_a_notebook_trains_and_what_it_starts_are_two_jobs(tmp_path: Path) -> None:
    """Nothing that the cells say is a setting of the program."""
    text = notebook(*JOB, "!python train.py --batch-size 2\n")
    found = built(text, tmp_path, {"train.py": TRAIN}, "a.ipynb")
    assert [(study.program, value(study, BATCH)) for study in found] == [("train.py", 2), ("a.ipynb", 8)]
    assert all("model.name" not in box.fields for box in found[0].boxes)


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [True, False], ids=["a list of lines", "one string"])
@pytest.mark.parametrize(
    "before", ["", 'name = "ä\\n"; tail = "\U0001f600\t"; ', "%time "], ids=["first", "escapes", "magic"]
)
def test_the_place_of_a_value(before: str, lines: bool, tmp_path: Path) -> None:
    text = notebook(IMPORTS, f"{before}BS = 823\n", MODEL, TRAINS, lines=lines)
    [study] = built(text, tmp_path)
    origin = bound(study, BATCH).origin
    assert origin is not None
    assert text[origin.span.start : origin.span.end] == "823"
    assert origin.path == "train.ipynb"
    assert not origin.editable


def test_the_place_of_a_word(tmp_path: Path) -> None:
    text = notebook('!python train.py --name "a b" --batch-size 823\n')
    [study] = built(text, tmp_path, {"train.py": TRAIN}, "a.ipynb")
    origin = bound(study, BATCH).origin
    assert origin is not None
    assert text[origin.span.start : origin.span.end] == "823"
    assert not origin.editable


# --- parameters and the GPU -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", ["BS", "BS * 2", "int(BS)"])
def test_a_cell_of_parameters_is_assumed(use: str, tmp_path: Path) -> None:
    cells = (IMPORTS, "BS = 8\n", MODEL, TRAINS.replace("=BS", f"={use}"))
    [plain] = built(notebook(*cells), tmp_path)
    assert _is_assumed(plain) is False
    [tagged] = built(notebook(*cells, tags=["parameters"]), tmp_path)
    assert _is_assumed(tagged) is True


def _is_assumed(study: object) -> bool:
    from preflight.engine.standings import _of
    from preflight.vocabulary.study import Study

    assert isinstance(study, Study)
    return _of(bound(study, BATCH)).standing is Standing.assumed


GPUS = {
    "Colab": ({"accelerator": "GPU", "colab": {"gpuType": "T4"}}, "T4"),
    "Kaggle": ({"kaggle": {"accelerator": "nvidiaTeslaT4"}}, "T4"),
    "Kaggle, one without Tesla": ({"kaggle": {"accelerator": "nvidiaL4"}}, "L4"),
    "Colab without its kind": ({"accelerator": "GPU", "colab": {}}, None),
    "none": ({"kaggle": {"accelerator": "none"}}, None),
    "a TPU": ({"accelerator": "TPU", "colab": {"gpuType": "V28"}}, None),
    "no text": ({"colab": {"gpuType": 4}}, None),
    "no object": ({"colab": ["gpuType", "T4"]}, None),
}


@pytest.mark.parametrize(("metadata", "expected"), GPUS.values(), ids=GPUS)
def test_the_gpu_of_the_metadata(metadata: object, expected: str | None, tmp_path: Path) -> None:
    text = notebook(*JOB, metadata=metadata)
    [study] = built(text, tmp_path)
    found = study.boxes[0].fields.get("machine.gpu")
    if expected is None:
        assert found is None or found.origin is None
    else:
        assert found is not None
        assert found.origin is not None
        assert value(study, "machine.gpu") == expected
        assert expected in text[found.origin.span.start : found.origin.span.end]
