"""Text data sets and metrics of the hub that cannot be had: made up, with long texts."""

from __future__ import annotations

import os
from typing import Any

from ..patches import wrap
from ..tape import Tape

ROWS = 512
WORDS = 600
"""Words of a made-up text: longer than most programs cut them, so that a stated length decides."""
_FILES = ("csv", "json", "text", "parquet", "arrow", "imagefolder", "audiofolder", "pandas")
_COLUMNS = {
    "mrpc": ("sentence1", "sentence2"), "mnli": ("premise", "hypothesis"), "sst2": ("sentence",), "cola": ("sentence",),
    "qqp": ("question1", "question2"), "rte": ("sentence1", "sentence2"), "qnli": ("question", "sentence"),
    "stsb": ("sentence1", "sentence2"), "wnli": ("sentence1", "sentence2"),
}  # fmt: skip
"""The columns of the tasks of GLUE (datasets card "nyu-mll/glue")."""


def text(module: Any, tape: Tape) -> None:
    """`datasets.load_dataset`: files of the user's are read, data sets of the hub are made up."""
    if not hasattr(module, "load_dataset"):
        return  # a module of the user's by this name

    def load(real: Any, path: Any, name: Any = None, *args: Any, split: Any = None, **kwargs: Any) -> Any:
        try:
            return real(path, name, *args, split=split, **kwargs)
        except Exception:
            if os.path.exists(str(path)) or path in _FILES:
                raise
        tape.assume(
            f"the data set {path}{f' {name}' if name else ''} is made up: {WORDS} words a text", "train.seq_len"
        )
        one = _made(module, str(name))
        if split is None:
            return module.DatasetDict(dict.fromkeys(("train", "validation", "test"), one))
        return [one for _ in split] if isinstance(split, (list, tuple)) else one

    wrap(module, "load_dataset", load)


def _made(datasets: Any, name: str) -> Any:
    words = " ".join(["word"] * WORDS)
    columns: dict[str, Any] = {key: [words] * ROWS for key in _COLUMNS.get(name, ("text",))}
    features = {key: datasets.Value("string") for key in columns}
    columns.update(label=[0, 1] * (ROWS // 2), idx=list(range(ROWS)))
    features.update(label=datasets.ClassLabel(names=["no", "yes"]), idx=datasets.Value("int32"))
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


class _Metric:
    """A metric that says 0.5."""

    def add(self, *_: Any, **__: Any) -> None: ...
    def add_batch(self, *_: Any, **__: Any) -> None: ...
    def compute(self, *_: Any, **__: Any) -> dict[str, float]:
        return dict.fromkeys(("accuracy", "f1", "score", "matthews_correlation", "pearson", "spearmanr"), 0.5)


def metrics(module: Any, tape: Tape) -> None:
    """`evaluate.load`."""

    def load(real: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return real(name, *args, **kwargs)
        except Exception:
            tape.assume(f"the metric {name} is made up")
            return _Metric()

    wrap(module, "load", load)
