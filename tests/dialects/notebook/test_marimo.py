"""marimo notebooks: the cells in the order in which they run, with the places of the file."""

from __future__ import annotations

from pathlib import Path

from notebooks_as_text import bound, built, value

HEAD = "import marimo\n\napp = marimo.App()\n\n\n"
IMPORTS = """@app.cell
def _():
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
    return AutoModelForCausalLM, Trainer, TrainingArguments


"""
SIZE = """@app.cell
def _():
    BATCH = 6
    return (BATCH,)


"""
TRAIN = """@app.cell(hide_code=True)
def _(AutoModelForCausalLM, BATCH, Trainer, TrainingArguments):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    Trainer(model, TrainingArguments("out", per_device_train_batch_size=BATCH)).train()
    return (model,)
"""


def test_cells_run_behind_those_whose_names_they_use(tmp_path: Path) -> None:
    text = HEAD + TRAIN + "\n\n" + SIZE + IMPORTS
    (study,) = built(text, tmp_path, name="train.py")
    assert (value(study, "model.name"), value(study, "train.batch_size")) == ("gpt2", 6)


def test_places_are_those_of_the_file(tmp_path: Path) -> None:
    text = HEAD + IMPORTS + SIZE + TRAIN
    (study,) = built(text, tmp_path, name="train.py")
    origin = bound(study, "train.batch_size").origin
    assert origin is not None
    assert text[origin.span.start : origin.span.end] == "6"
    assert not origin.editable


def test_a_setup_block_and_functions_of_the_app_come_first(tmp_path: Path) -> None:
    setup = "with app.setup:\n    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\n\n"
    function = "@app.function\ndef size():\n    return 12\n\n\n"
    cell = TRAIN.replace("AutoModelForCausalLM, BATCH, Trainer, TrainingArguments", "size").replace("=BATCH", "=size()")
    (study,) = built(HEAD + setup + function + cell, tmp_path, name="train.py")
    assert value(study, "train.batch_size") == 12


def test_cells_that_wait_for_each_other_are_not_read(tmp_path: Path) -> None:
    first = "@app.cell\ndef _(b):\n    a = b\n    return (a,)\n\n\n"
    second = "@app.cell\ndef _(a):\n    b = a\n    return (b,)\n\n\n"
    assert built(HEAD + IMPORTS + first + second + TRAIN.replace("BATCH", "a"), tmp_path, name="train.py") == []


def test_a_disabled_cell_and_what_uses_it_do_not_run(tmp_path: Path) -> None:
    off = SIZE.replace("app.cell", "app.cell(disabled=True, hide_code=True)")
    assert built(HEAD + IMPORTS + off + TRAIN, tmp_path, name="train.py") == []
    beside = off.replace("BATCH", "OTHER") + TRAIN.replace("BATCH", "OTHER").replace("=OTHER", "=99").replace(
        "model", "m"
    )
    (study,) = built(HEAD + IMPORTS + SIZE + TRAIN + beside, tmp_path, name="train.py")
    assert value(study, "train.batch_size") == 6


def test_the_names_within_a_function_are_its_own(tmp_path: Path) -> None:
    helper = "@app.cell\ndef _():\n    def show():\n        BATCH = 2\n        print(BATCH)\n    return (show,)\n\n\n"
    (study,) = built(HEAD + IMPORTS + helper + TRAIN + "\n\n" + SIZE, tmp_path, name="train.py")
    assert value(study, "train.batch_size") == 6
