"""Text data sets and metrics of the hub that cannot be had: made up, with long texts and every column asked for."""

from __future__ import annotations

import linecache
import os
import re
import sys
from itertools import islice
from typing import Any

from .. import places
from ..patches import replace, wrap
from ..tape import Tape
from .made_texts import Texts, answers, talk
from .made_texts import text as made_text
from .own_code import length_stated, may_be_missing, names_used, texts_named
from .vision import PICTURE, assume_pictures

ROWS = 512
MORE = 16
"""Times as many, where a part of them was empty, or a program took more than there were."""
MOST_COLUMNS = 24
_PARTS = ("train", "validation", "test", "valid", "val", "dev")
_FILES = ("csv", "json", "text", "parquet", "arrow", "imagefolder", "audiofolder", "pandas")
_COLUMNS = {
    "mrpc": ("sentence1", "sentence2"), "mnli": ("premise", "hypothesis"), "sst2": ("sentence",), "cola": ("sentence",),
    "qqp": ("question1", "question2"), "rte": ("sentence1", "sentence2"), "qnli": ("question", "sentence"),
    "stsb": ("sentence1", "sentence2"), "wnli": ("sentence1", "sentence2"),
}  # fmt: skip
"""The columns of the tasks of GLUE (datasets card "nyu-mll/glue")."""
_ALL_COLUMNS = {
    "pair": ("anchor", "positive"), "triplet": ("anchor", "positive", "negative"),
    "pair-class": ("premise", "hypothesis", "label"), "pair-score": ("sentence1", "sentence2", "score"),
    "sentence-transformers/stsb": ("sentence1", "sentence2", "score"),
}  # fmt: skip
"""All columns of subsets and data sets that a loss takes by their places (cards of sentence-transformers)."""
MOST_ROWS = 1 << 16
"""Rows that a selection of a made-up data set has at most."""
_LANGUAGES = re.compile(r"[a-z]{2,3}-[a-z]{2,3}")
"""Subsets of data sets of translations (opus_books, wmt, opus100), whose rows have a text in each language."""
_COLUMN_ASKED = re.compile(r"--\w*column[ =](?!(?:image|img|audio|sound|speech|messages|conversations)\b)(\w+)")
"""`--caption_column caption`: programs look whether a data set has it. Those of pictures, sounds and talks are
made when they are asked for."""
_OF_ANSWERS = ("context", "question", "answers")
SECONDS, RATE = 10, 16000
"""Length of a made-up sound, and its samples a second (the rate of the models of speech)."""
SOUNDS = 64
"""Rows of a made-up data set with sounds."""
_SOUNDS = re.compile(r"^(audio|sound|speech|waveform)s?$")
_PICTURES = re.compile(r"^(image|img|picture|photo|pixels?)$")
_FOLDS = re.compile(r"(^|_)k?folds?(_|$)")
"""Columns that divide a data set into parts, for programs that leave one out."""
_NUMBERS = re.compile(r"(^|_)(labels?|idx|id|classid|ids|index|target|score|rating|stars|class)(_|$)")


def text(module: Any, tape: Tape) -> None:
    """`datasets.load_dataset`: files of the user's are read, data sets of the hub are made up."""
    if not hasattr(module, "load_dataset"):
        return  # a module of the user's by this name
    made = _MadeUp(module, tape)

    def load(real: Any, path: Any, name: Any = None, *args: Any, split: Any = None, **kwargs: Any) -> Any:
        try:
            return real(path, name, *args, split=split, **kwargs)
        except Exception:
            if os.path.exists(str(path)) or (path in _FILES and not _are_missing(kwargs.get("data_files"))):
                raise
        tape.data_made_up = True
        tape.assume(
            f"the data set {path}{f' {name}' if name else ''} is made up: {Texts.length} words a text, "
            f"{SECONDS} s a sound",
            "train.seq_len",
        )
        one = made.data_set(str(name or path), _shows_pictures())
        if split is None:
            files = kwargs.get("data_files")
            parts = ("train",) if path in _FILES else ("train", "validation", "test")
            return made.parts(one, files if isinstance(files, dict) else parts)
        return [one for _ in split] if isinstance(split, (list, tuple)) else one

    def from_disk(real: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        if os.path.exists(str(path)) or "://" in str(path) or may_be_missing():
            return real(path, *args, **kwargs)
        tape.data_made_up = True
        tape.assume(f"the data set {path} is not there, and made up: {Texts.length} words a text", "train.seq_len")
        one = made.data_set("", _shows_pictures())
        parts = [part for part in _PARTS if part in names_used()]
        return made.parts(one, parts or ["train"]) if parts and os.path.basename(str(path)) not in _PARTS else one

    def from_file(real: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(path, (str, os.PathLike)) or os.path.exists(path) or may_be_missing():
            return real(path, *args, **kwargs)
        tape.data_made_up = True
        tape.assume(f"the data set {path} is not there, and made up: {Texts.length} words a text", "train.seq_len")
        return made.tokens() if re.search(r"token", str(path)) else made.data_set("")

    for name in ("from_parquet", "from_json", "from_csv"):
        wrap(module.Dataset, name, from_file)
    wrap(module, "load_dataset", load)
    wrap(module, "load_from_disk", from_disk)
    for cls in (module.Dataset, module.DatasetDict):
        replace(cls, "load_from_disk", staticmethod(lambda *args, **kwargs: module.load_from_disk(*args, **kwargs)))
    made.install()


def _are_missing(files: Any) -> bool:
    """Whether files of tables are named, and none of them is there."""
    several = list(files.values()) if isinstance(files, dict) else [files]
    names = [one for part in several for one in (part if isinstance(part, (list, tuple)) else [part])]
    named = bool(names) and all(isinstance(one, str) and "://" not in one for one in names)
    return named and not any(os.path.exists(one.partition("*")[0] or ".") for one in names)


def _shows_pictures() -> bool:
    """Whether the program's file that loads the data makes tensors of pictures, and names their column."""
    frame: Any = sys._getframe(2)
    while frame is not None and not places.is_users(frame.f_code.co_filename):
        frame = frame.f_back
    text = "".join(linecache.getlines(frame.f_code.co_filename)) if frame is not None else ""
    return bool(re.search(r"([\"'])image\1", text) and re.search(r"torchvision|image_processor", text))


class _Row(dict):  # type: ignore[type-arg]
    """A row of a made-up data set: it has every column that is asked for."""

    number = 0

    def __missing__(self, name: str) -> Any:
        return _value(name, self.number)


def _row(found: Any, number: int) -> Any:
    row = _Row(found)
    row.number = number
    return row


class _MadeUp:
    """Data sets that are made up. A column that the program asks for is there: which ones the true data set has is not
    known, and the program's own code says what it needs."""

    def __init__(self, module: Any, tape: Tape) -> None:
        self._module, self._tape = module, tape

    def data_set(self, name: str, pictures: bool = False) -> Any:
        if name in _ALL_COLUMNS:
            rows = {key: [_value(key, number) for number in range(_rows())] for key in _ALL_COLUMNS[name]}
            return _marked(self._module.Dataset.from_dict(rows))
        if set(_OF_ANSWERS) <= texts_named():
            return _marked(self._module.Dataset.from_dict({one: [value] * _rows() for one, value in answers().items()}))
        if _LANGUAGES.fullmatch(name):
            pairs = [dict.fromkeys(name.split("-"), made_text())] * _rows()
            return _marked(self._module.Dataset.from_dict({"id": list(map(str, range(_rows()))), "translation": pairs}))
        values = {key: [made_text(number) for number in range(_rows())] for key in _COLUMNS.get(name, ("text",))}
        features = {key: self._module.Value("string") for key in values}
        columns: dict[str, Any] = {**values, "label": [0, 1] * (_rows() // 2), "idx": list(range(_rows()))}
        features.update(label=self._module.ClassLabel(names=["no", "yes"]), idx=self._module.Value("int32"))
        for key in _COLUMN_ASKED.findall(" ".join(sys.argv[1:])):
            if key not in columns:
                columns[key] = [_in_folder(cell(key, number)) for number in range(_rows())]
                features[key] = self._module.Value("string" if isinstance(columns[key][0], str) else "int64")
        if pictures:
            columns["image"], features["image"] = [_value("image", 0)] * _rows(), self._module.Image()
            assume_pictures("the data set", self._tape)
        return _marked(self._module.Dataset.from_dict(columns, features=self._module.Features(features)))

    def tokens(self) -> Any:
        """A text in tokens, as long as the program says."""
        rows = [[0] * (length_stated() or Texts.length)] * _rows()
        return _marked(self._module.Dataset.from_dict(dict.fromkeys(("input_ids", "labels"), rows)))

    def parts(self, one: Any, names: Any) -> Any:
        """Parts of a data set, and any other that is asked for."""

        class Parts(self._module.DatasetDict):  # type: ignore[name-defined]
            def __missing__(self, name: Any) -> Any:
                return one

        return Parts(dict.fromkeys(names, one))

    def install(self) -> None:
        """Put the columns on demand into `datasets.Dataset`."""
        cls = self._module.Dataset

        def mapped(real: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
            kwargs["num_proc"] = None  # other processes would not know of the faked device
            if not _is_made(data) or kwargs.get("features") is not None:  # `filter` states the columns of its `map`
                return real(data, *args, **kwargs)
            while True:
                try:
                    return _marked(real(data, *args, **kwargs))
                except KeyError as error:
                    data = self._with(data, error)

        def taken(real: Any, data: Any, key: Any) -> Any:
            if not _is_made(data):
                return real(data, key)
            if isinstance(key, str) and key not in data.column_names:
                return [_value(key, number) for number in range(len(data))]
            found = real(data, key)
            return _row(found, key) if type(found) is dict and isinstance(key, int) else found

        def rows(real: Any, data: Any, *numbers: Any) -> Any:
            for number, row in enumerate(real(data, *numbers)):
                yield _row(row, number) if _is_made(data) and type(row) is dict else row

        def several(real: Any, data: Any, numbers: Any) -> Any:
            return list(rows(real, data, numbers))

        for name in ("map", "filter"):
            wrap(cls, name, mapped)
        wrap(cls, "__getitem__", taken)
        wrap(cls, "__iter__", rows)
        wrap(cls, "__getitems__", several)

        def selected(real: Any, data: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
            """Rows by number: a made-up data set has as many as are asked for."""
            if _is_made(data):
                indices = [int(number) % len(data) for number in islice(indices, MOST_ROWS)]
            return _kept(real, data, indices, *args, **kwargs)

        wrap(cls, "select", selected)
        for name in ("shuffle", "with_format", "add_column", "sort", "skip", "take", "rename_columns"):
            wrap(cls, name, _kept)
        for name in ("rename_column", "select_columns", "cast_column"):
            wrap(cls, name, self._with_columns)
        wrap(cls, "remove_columns", self._without)

    def _with_columns(self, real: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        """What takes columns by their names has those that a made-up data set lacks."""
        names = (*args, *kwargs.values())[0] if _is_made(data) else ()
        if isinstance(names, str) and _SOUNDS.search(names) and real.__name__ == "cast_column":
            return data  # its sounds are there as they would be read
        for name in [names] if isinstance(names, str) else list(names):
            if name not in data.column_names:
                data = self._with(data, KeyError(name))
        return _kept(real, data, *args, **kwargs)

    def _without(self, real: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_made(data):
            return real(data, *args, **kwargs)
        asked = (*args, *kwargs.values())[0]
        names = [name for name in ([asked] if isinstance(asked, str) else asked) if name in data.column_names]
        return _kept(real, data, names)

    def _with(self, data: Any, error: KeyError) -> Any:
        """The data set with the column that was not there; else the error."""
        name = error.args[0] if error.args else None
        if not isinstance(name, str) or name in data.column_names or len(data.column_names) >= MOST_COLUMNS:
            raise error
        if _SOUNDS.search(name):
            data = _marked(data.select(range(min(SOUNDS, len(data)))))
        return data.add_column(name, [_value(name, number) for number in range(len(data))])


def _kept(real: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
    """What is made of a made-up data set is made up."""
    found = real(data, *args, **kwargs)
    return _marked(found) if _is_made(data) else found


def _value(name: str, number: int) -> Any:
    """A value of a column: what its name suggests."""
    said = talk(name)
    if said is not None:
        return said
    if _SOUNDS.search(name.lower()):
        import numpy

        return {"path": f"{number:06}.wav", "array": numpy.zeros(SECONDS * RATE, "float32"), "sampling_rate": RATE}
    if _PICTURES.search(name.lower()):
        from PIL import Image

        return Image.new("RGB", PICTURE)
    if _FOLDS.search(name.lower()):
        return number % 10 + 1
    return number % 2 if _NUMBERS.search(name.lower()) else made_text(number)


_FILE = re.compile(r"image|img|photo|picture|file|path", re.IGNORECASE)


def cell(name: str, number: int) -> Any:
    """The same in a table of a file, where pictures are named."""
    return f"{number:06}.jpg" if _FILE.search(name) else _value(name, number)


def _in_folder(value: Any) -> Any:
    """A data set names a picture with the folder that it was downloaded to."""
    return f"images/{value}" if isinstance(value, str) and value.endswith(".jpg") else value


def _rows() -> int:
    return ROWS * (MORE if Texts.many else 1)


def _marked(data: Any) -> Any:
    data._dry_made_up = True
    return data


def _is_made(data: Any) -> bool:
    return bool(getattr(data, "_dry_made_up", False))


class _Metric:
    """A metric that says 0.5."""

    def add(self, *_: Any, **__: Any) -> None: ...
    def add_batch(self, *_: Any, **__: Any) -> None: ...
    def compute(self, *_: Any, **__: Any) -> dict[str, float]:
        return dict.fromkeys(("accuracy", "f1", "score", "matthews_correlation", "pearson", "spearmanr"), 0.5)


def metrics(module: Any, tape: Tape, function: str = "load") -> None:
    """`evaluate.load`, and what stood for it in datasets before 3."""

    def load(real: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return real(name, *args, **kwargs)
        except Exception:
            tape.assume(f"the metric {name} is made up")
            return _Metric()

    wrap(module, function, load)
