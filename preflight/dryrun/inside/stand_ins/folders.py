"""Folders of data that are not there: made-up names for the program's own data set, and pictures for its names.

What a file holds is decided by what opens it: a picture where the program opens one, tokens where it maps numbers
(`downloads`). Anything else is refused with one line that names the folder.
"""

from __future__ import annotations

import os
import re
from typing import Any

from ..patches import wrap
from ..tape import Tape
from .downloads import no_command
from .vision import CLASSES, PICTURE, PICTURES, assume_pictures, encoded
from .weights import asked_by_program, may_be_missing

NAMES = 256
"""Made-up files of each part of a listed folder."""
_PARTS = ("train", "val", "test")
_PICTURES = ("jpg", "jpeg", "png", "bmp", "tif", "tiff", "webp", "ppm")
_ANY = re.compile(rf"(\*\*/)?\*(\.(\*|{'|'.join(_PICTURES)}))?$", re.IGNORECASE)
_OF_CLASSES = re.compile(r"mask|label|seg|annot|(^|[/_])gt([/_.]|$)", re.IGNORECASE)
"""Names of pictures that hold the number of a class at each point."""


class Folders:
    """The folders that were made up, and what is in them."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def _is_missing(self, folder: str) -> bool:
        """Whether the program's own code asks for a folder that is not there, and does not expect that."""
        if os.path.isdir(folder) or not asked_by_program() or may_be_missing():
            return False
        self._tape.data_made_up = True
        return True

    def _found(self, folder: str, names: list[str], pictures: bool) -> list[str]:
        """The names are noted. `pictures`: none of them can be a folder, whose number may be that of the classes."""
        words = f"the folder {folder} is not there: {len(names)} made-up names stand for its files"
        self._tape.assume(words, "" if pictures else "model.config")
        return names

    def listed(self, real: Any, folder: Any = ".") -> Any:
        """os.listdir."""
        try:
            return real(folder)
        except FileNotFoundError:
            if not isinstance(folder, (str, os.PathLike)) or not self._is_missing(os.fspath(folder)):
                raise
        return self._found(os.fspath(folder), [f"{part}_{i:06}.jpg" for part in _PARTS for i in range(NAMES)], False)

    def matched(self, real: Any, pattern: Any, *args: Any, **kwargs: Any) -> Any:
        """glob.glob: patterns for every file, or for pictures, in a folder that is not there. Programs look for
        checkpoints of theirs by other patterns, and expect none."""
        found = real(pattern, *args, **kwargs)
        folder, name = os.path.split(os.fspath(pattern)) if isinstance(pattern, (str, os.PathLike)) else ("", "")
        if found or not folder or "*" in folder or not _ANY.fullmatch(name) or not self._is_missing(folder):
            return found
        return [os.path.join(folder, one) for one in self._found(folder, *_names(name))]

    def within(self, real: Any, folder: Any, pattern: Any, *args: Any, **kwargs: Any) -> Any:
        """Path.glob and Path.rglob."""
        found = list(real(folder, pattern, *args, **kwargs))
        if found or not _ANY.fullmatch(str(pattern)) or not self._is_missing(str(folder)):
            return iter(found)
        return iter([folder / one for one in self._found(str(folder), *_names(str(pattern)))])

    def system(self, module: Any) -> None:
        """The module of this name."""
        wrap(module, "listdir", self.listed)
        no_command(module)

    def glob(self, module: Any) -> None:
        """The module of this name."""
        wrap(module, "glob", self.matched)
        wrap(module, "iglob", lambda real, *args, **kwargs: iter(self.matched(_listed(real), *args, **kwargs)))

    def paths(self, module: Any) -> None:
        """pathlib."""
        for name in ("glob", "rglob"):
            wrap(module.Path, name, self.within)

    def pictures(self, module: Any) -> None:
        """PIL.Image: `open`."""

        def opened(real: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(file, *args, **kwargs)
            except FileNotFoundError:
                mode = self._picture(file)
                if not mode:
                    raise
                return module.new(mode, PICTURE)

        wrap(module, "open", opened)

    def opencv(self, module: Any) -> None:
        """cv2: `imread`, which gives None for a file that is not there."""

        def read(real: Any, file: Any, flags: int = 1, *args: Any) -> Any:
            found = real(file, flags, *args)
            if found is not None or os.path.exists(file) or not self._picture(file):
                return found
            import numpy

            width, height = PICTURE
            return numpy.zeros((height, width) if flags == 0 else (height, width, 3), numpy.uint8)

        wrap(module, "imread", read)

    def _picture(self, file: Any) -> str:
        """The mode of a made-up picture; "" for a file of a folder that is there: its own file is missed."""
        if not isinstance(file, (str, os.PathLike)):
            return ""
        name = os.fspath(file)
        folder = os.path.dirname(name)
        if not isinstance(name, str) or not folder or not self._is_missing(folder):
            return ""
        width, height = PICTURE
        self._tape.assume(f"the pictures of {folder} are made up: {width} x {height}", "train.image_size")
        return "L" if _OF_CLASSES.search(name) else "RGB"

    def timm(self, module: Any) -> None:
        """timm.data.readers.reader_factory: a folder with a folder for each class."""

        def made(real: Any, name: Any, root: Any = None, *args: Any, **kwargs: Any) -> Any:
            if name or root is None or os.path.exists(root):
                return real(name, root, *args, **kwargs)
            assume_pictures(root, self._tape)
            return _Reader()

        wrap(module, "create_reader", made)


class _Reader:
    """What timm's data sets read from."""

    def __init__(self) -> None:
        self.class_to_idx = {f"n{i:04}": i for i in range(CLASSES)}

    def __len__(self) -> int:
        return PICTURES

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return encoded(), number % CLASSES

    def filename(self, number: int, *_: Any, **__: Any) -> str:
        return f"{number}.jpg"

    def filenames(self, *_: Any, **__: Any) -> list[str]:
        return [self.filename(number) for number in range(PICTURES)]


def _names(pattern: str) -> tuple[list[str], bool]:
    """Names of files that a pattern matches, and whether it asks for pictures alone."""
    ending = pattern.rpartition(".")[2]
    pictures = ending.lower() in _PICTURES
    return [f"{i:06}.{ending if pictures else 'jpg'}" for i in range(PICTURES // 4)], pictures


def _listed(real: Any) -> Any:
    def found(*args: Any, **kwargs: Any) -> list[Any]:
        return list(real(*args, **kwargs))

    return found
