"""Files of JSON that are not there: records, with a value for each name that is asked for."""

from __future__ import annotations

import io
import os
import re
from typing import Any

from ..patches import wrap
from ..tape import Tape
from .boxes import BOXES, Annotations, coco, corners
from .data_sets import cell
from .own_code import asked_by_program, may_be_missing, names_used
from .vision import PICTURE

RECORDS = 256
_SETTINGS = re.compile(
    r"conf|cfg|setting|arg|param|opt|tokenizer|vocab|map|index|id2|2id|state|stat|class|label|meta|env", re.IGNORECASE
)
"""Names of files whose content decides what the model is."""


_OF_NAMES = re.compile(r"(images?|imgs|files|paths|names|list)\.json$", re.IGNORECASE)
"""Files that list others."""


class Record(dict):  # type: ignore[type-arg]
    """A record that has every name that it is asked for."""

    def __missing__(self, name: Any) -> Any:
        return _value(str(name), 0, "boxes" in self or name == "boxes")

    def get(self, name: Any, default: Any = None) -> Any:
        return self[name]

    def __getattr__(self, name: str) -> Any:
        """Where the program has texts in its list, a record is the name of a file."""
        if name.startswith("_") or not hasattr(str, name):
            raise AttributeError(name)
        return getattr(self.__fspath__(), name)

    def __fspath__(self) -> str:
        return "train_000000"

    def __contains__(self, name: object) -> bool:
        return True


def _value(name: str, number: int, boxed: bool) -> Any:
    """A value of a record. Where it has boxes, what stands beside them has one for each."""
    if re.search(r"box", name, re.IGNORECASE):
        return [[float(corner) for corner in one] for one in corners(*PICTURE)]
    return [1] * BOXES if boxed and name.endswith(("s", "ies")) else cell(name, number)


class Records(list):  # type: ignore[type-arg]
    """A list of records; by a name, a part of it with as many."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, (int, slice)) else self

    def get(self, _: Any, __: Any = None) -> Any:
        return self

    def keys(self) -> list[str]:
        return [f"{i:06}" for i in range(len(self))]

    def values(self) -> list[Any]:
        return list(self)

    def items(self) -> list[tuple[str, Any]]:
        return list(zip(self.keys(), self))


class _Text(str):
    """The text of a made-up file: the functions of json know it by its class."""


class _File(io.StringIO):
    def read(self, *_: Any) -> str:
        return _Text(self.getvalue())


class Json:
    """What stands for such files."""

    def __init__(self, tape: Tape, annotations: Annotations) -> None:
        self._tape, self._annotations = tape, annotations

    def files(self, module: Any) -> None:
        """`open` of a file of JSON that is not there, for reading as text."""

        def opened(real: Any, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            try:
                return real(file, mode, *args, **kwargs)
            except FileNotFoundError:
                name = os.path.basename(str(file))
                if not name.endswith(".json") or _SETTINGS.search(name) or mode not in ("r", "rt"):
                    raise
                if not asked_by_program() or may_be_missing():
                    raise
            return _File(str(file))

        wrap(module, "open", opened)

    def json(self, module: Any) -> None:
        """json: `load` and `loads`."""

        def load(real: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
            return self._made(file.getvalue()) if isinstance(file, _File) else real(file, *args, **kwargs)

        def loads(real: Any, text: Any, *args: Any, **kwargs: Any) -> Any:
            return self._made(str(text)) if isinstance(text, _Text) else real(text, *args, **kwargs)

        wrap(module, "load", load)
        wrap(module, "loads", loads)

    def _made(self, path: str) -> Any:
        names = names_used()
        self._tape.data_made_up = True
        if {"images", "annotations"} <= set(names):
            self._annotations.said(path)
            return coco()
        if _OF_NAMES.search(path):
            self._tape.assume(f"the names in {path} are made up: {RECORDS} pictures", "model.config")
            return [f"pictures/{number:06}.jpg" for number in range(RECORDS)]
        words = f"the records of {path} are made up: {RECORDS}, with a value for each name that the program asks for"
        self._tape.assume(words, "model.config")
        self._tape.assume(f"the texts of {path} are longer than most programs cut them", "train.seq_len")
        boxed = any(re.search(r"box", name, re.IGNORECASE) for name in names)
        return Records(Record({name: _value(name, i, boxed) for name in names}) for i in range(RECORDS))
