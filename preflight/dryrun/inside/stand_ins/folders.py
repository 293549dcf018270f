"""Folders of data that are not there: made-up names for the program's own data set, and pictures for its names.

What a file holds is decided by what opens it: a picture where the program opens one, tokens where it maps numbers
(`downloads`). Anything else is refused with one line that names the folder.
"""

from __future__ import annotations

import ast
import os
import re
from typing import Any

import torch

from ..patches import wrap
from ..tape import Tape
from .downloads import no_command
from .guesses import Guesses
from .own_code import asked_by_program, may_be_missing, program_frame, tree_of
from .vision import CLASSES, PICTURE, PICTURES, assume_pictures, encoded, size_stated

NAMES = 256
"""Made-up files of each part of a listed folder."""
NAMES_OF_TABLES = 4
"""The same where a file holds many rows."""
MORE = 16
"""Times as many, where a part of them was empty."""
_PARTS = ("train", "val", "test")
_PICTURES = ("jpg", "jpeg", "png", "bmp", "tif", "tiff", "webp", "ppm")
_ENDINGS = (*_PICTURES, "xml", "json", "txt", "csv", "npy", "npz", "h5", "hdf5", "wav", "flac", "mp3", "mp4", "avi",
            "bin", "parquet", "jsonl", "nii.gz", "mat", "dcm")  # fmt: skip
"""Endings of files of data. Programs look for checkpoints (pt, pth, ckpt), and expect none."""
_TABLES = ("csv", "tsv", "jsonl", "parquet")
_READERS = {"read_csv": "csv", "read_parquet": "parquet", "np.load": "npy", "numpy.load": "npy", "h5py.File": "h5",
            "sf.read": "wav", "soundfile.read": "wav", "torchaudio.load": "wav", "librosa.load": "wav",
            "loadmat": "mat", "Image.open": "jpg", "imread": "jpg", "read_image": "jpg"}  # fmt: skip
"""Functions that read a file, and the ending of what they read."""
_ANY = re.compile(rf"(\*\*/)?\*(\.(\*|{'|'.join(_ENDINGS)}))?$", re.IGNORECASE)
_ENDING = re.compile(rf"\*?\.?({'|'.join(_ENDINGS)})$", re.IGNORECASE)
_FOLDERS = 10
"""Made-up folders for a star in the middle of a pattern."""
MADE = re.compile(r"((train|val|test|\d)_)?\d{6}(?=\D|$)")
_TOKENS = re.compile(r"\.bin$")
_OF_SHARDS = re.compile(r"train|val|test|shard|tok", re.IGNORECASE)
"""Files of tokens in parts; other files by this ending are weights."""
_ABOUT = re.compile(
    r"readme.*|.*\.(md|gitkeep|keep|sh)|placeholder.*|__init__\.py|__pycache__|desktop\.ini", re.IGNORECASE
)
"""Files that say what a folder is for."""
_listdir = os.listdir
_OF_CLASSES = re.compile(r"mask|label|seg|annot|(^|[/_])gt([/_.]|$)", re.IGNORECASE)
"""Names of pictures that hold the number of a class at each point."""


class Folders:
    """The folders that were made up, and what is in them."""

    def __init__(self, tape: Tape, guesses: Guesses) -> None:
        self._tape, self._guesses = tape, guesses
        self._made: set[str] = set()

    def made(self, path: str) -> bool:
        """Whether a name is one of those that were made up."""
        return os.path.dirname(path) in self._made and bool(MADE.match(os.path.basename(path)))

    def _is_missing(self, folder: str) -> bool:
        """Whether the program's own code asks for a folder that is not there, or holds nothing but hidden files and
        texts about it, and does not expect that. If it does, and had no data in the end, it dropped that."""
        if _holds_data(folder) or not asked_by_program() or (may_be_missing() and not self._guesses.many):
            return False
        self._tape.data_made_up = True
        return True

    def _found(self, folder: str, names: list[str], pictures: bool) -> list[str]:
        """The names are noted. `pictures`: none of them can be a folder, whose number may be that of the classes."""
        how = "holds no data" if os.path.isdir(folder) else "is not there"
        words = f"the folder {folder} {how}: {len(names)} made-up names stand for its files"
        self._tape.assume(words, "" if pictures else "model.config")
        self._made.add(folder.rstrip("/"))
        return names

    def listed(self, real: Any, folder: Any = ".") -> Any:
        """os.listdir."""
        named = isinstance(folder, (str, os.PathLike))
        try:
            found = real(folder)
            if not named or any(map(_is_data, found)) or not found or not self._is_missing(os.fspath(folder)):
                return found  # what the program has made itself is empty at first
        except FileNotFoundError:
            if not named or not self._is_missing(os.fspath(folder)):
                raise
        ending = _ending_asked()
        count = NAMES_OF_TABLES if ending in _TABLES else NAMES
        more = count * (MORE if self._guesses.many else 1)
        names = [f"{part}_{i:06}.{ending}" for part in _PARTS for i in range(more)]
        if self._guesses.numbered:  # the number of a class, and that of the file
            names = [f"{i % _FOLDERS}_{i:06}.{ending}" for i in range(len(names))]
        return self._found(os.fspath(folder), names, ending in _PICTURES and ending != "jpg")

    def walked(self, real: Any, top: Any, *args: Any, **kwargs: Any) -> Any:
        """os.walk."""
        if isinstance(top, (str, os.PathLike)) and not os.path.isdir(top) and self._is_missing(os.fspath(top)):
            return iter([(top, [], self.listed(os.listdir, top))])
        return real(top, *args, **kwargs)

    def matched(self, real: Any, pattern: Any, *args: Any, **kwargs: Any) -> Any:
        """glob.glob: patterns for every file, or for pictures, in a folder that is not there. Programs look for
        checkpoints of theirs by other patterns, and expect none."""
        found = real(pattern, *args, **kwargs)
        folder, name = os.path.split(os.fspath(pattern)) if isinstance(pattern, (str, os.PathLike)) else ("", "")
        if not found and folder and _TOKENS.search(name) and "*" not in folder and asked_by_program():
            known = "*" not in name or _OF_SHARDS.search(name)
            return found if may_be_missing() or not known else [os.fspath(pattern).replace("*", "000000")]
        base = folder.partition("*")[0].rstrip("/") if "*" in folder else folder
        if found or not base or not _is_any(name) or not self._is_missing(base):
            return found
        names = self._found(base, *_names(name))
        return [os.path.join(_starless(folder, number), one) for number, one in enumerate(names)]

    def within(self, real: Any, folder: Any, pattern: Any, *args: Any, **kwargs: Any) -> Any:
        """Path.glob and Path.rglob."""
        found = list(real(folder, pattern, *args, **kwargs))
        inner, name = os.path.split(str(pattern).removeprefix("**/"))
        if found or not _is_any(name) or not self._is_missing(str(folder)):
            return iter(found)
        names = self._found(str(folder), *_names(name))
        return iter([folder / _starless(inner, number) / one for number, one in enumerate(names)])

    def system(self, module: Any) -> None:
        """The module of this name."""
        wrap(module, "listdir", self.listed)
        wrap(module, "walk", self.walked)
        no_command(module)

    def glob(self, module: Any) -> None:
        """The module of this name."""
        wrap(module, "glob", self.matched)
        wrap(module, "iglob", lambda real, *args, **kwargs: iter(self.matched(_listed(real), *args, **kwargs)))

    def paths(self, module: Any) -> None:
        """pathlib."""
        for name in ("glob", "rglob"):
            wrap(module.Path, name, self.within)
        wrap(module.Path, "iterdir", self.inside)

    def inside(self, real: Any, folder: Any) -> Any:
        """Path.iterdir."""
        if os.path.isdir(folder):
            return real(folder)
        return iter([folder / name for name in self.listed(os.listdir, str(folder))])

    def pictures(self, module: Any) -> None:
        """PIL.Image: `open`."""

        def opened(real: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(file, *args, **kwargs)
            except FileNotFoundError:
                found = self._picture(file)
                if found is None:
                    raise
                return module.new(*found)

        wrap(module, "open", opened)

    def opencv(self, module: Any) -> None:
        """cv2: `imread`, which gives None for a file that is not there."""

        def read(real: Any, file: Any, flags: int = 1, *args: Any) -> Any:
            found = real(file, flags, *args)
            made = self._picture(file) if found is None and not os.path.exists(file) else None
            if made is None:
                return found
            return _points("L" if flags == 0 else "RGB", made[1])

        wrap(module, "imread", read)

    def readers(self, module: Any) -> None:
        """imageio, skimage.io and matplotlib: `imread`."""

        def read(real: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
            made = None if not isinstance(file, (str, os.PathLike)) or os.path.exists(file) else self._picture(file)
            return real(file, *args, **kwargs) if made is None else _points(*made)

        wrap(module, "imread", read)

    def tensors(self, module: Any) -> None:
        """torchvision.io: `read_image`."""

        def read(real: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            made = None if os.path.exists(path) else self._picture(path)
            if made is None:
                return real(path, *args, **kwargs)
            points = torch.from_numpy(_points(*made))
            return points[None] if points.dim() == 2 else points.permute(2, 0, 1).contiguous()

        wrap(module, "read_image", read)

    def _picture(self, file: Any) -> tuple[str, tuple[int, int]] | None:
        """The mode and the size of a made-up picture; None for a file of a folder that is there: its own is missed."""
        if not isinstance(file, (str, os.PathLike)):
            return None
        name = os.fspath(file)
        folder = os.path.dirname(name)
        if not isinstance(name, str) or not folder or not self._is_missing(folder):
            return None
        size = size_stated(folder)
        width, height = size or PICTURE
        how = ", as its name or an option says" if size else ""
        self._tape.assume(f"the pictures of {folder} are made up: {width} x {height}{how}", "train.image_size")
        self._guesses.pictures = True
        mode = self._guesses.mode or "RGB"
        return "L" if _OF_CLASSES.search(name) else mode, (width, height)

    def timm(self, module: Any) -> None:
        """timm.data.readers.reader_factory: a folder with a folder for each class."""

        def made(real: Any, name: Any, root: Any = None, *args: Any, **kwargs: Any) -> Any:
            if name or root is None or os.path.exists(root):
                return real(name, root, *args, **kwargs)
            assume_pictures(root, self._tape)
            return _Reader()

        wrap(module, "create_reader", made)


def _points(mode: str, size: tuple[int, int]) -> Any:
    """A picture as an array."""
    import numpy

    channels = {"L": (), "RGBA": (4,)}.get(mode, (3,))
    return numpy.zeros((*reversed(size), *channels), numpy.uint8)


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
    ending = pattern.partition(".")[2].lower()
    known = ending in _ENDINGS
    if MADE.match(pattern):
        return [pattern.replace(".*", ".jpg").replace("*", "")], ending in _PICTURES
    return [f"{i:06}.{ending if known else _ending_asked()}" for i in range(PICTURES // 4)], ending in _PICTURES


def _is_any(pattern: str) -> bool:
    """Whether a pattern means every file of data in a folder, or one that was made up."""
    return bool(_ANY.fullmatch(pattern) or ("*" in pattern and MADE.match(pattern)))


def _starless(folder: str, number: int) -> str:
    """A made-up folder for each star in the middle of a pattern."""
    return folder.replace("**", "*").replace("*", f"n{number % _FOLDERS:04}")


def _is_data(name: str) -> bool:
    """Whether a name in a folder may be a file or a folder of data."""
    return not name.startswith(".") and not _ABOUT.fullmatch(name)


def _holds_data(folder: str) -> bool:
    """Whether a folder is there. One that was kept in a repository for data to come has a hidden file in it."""
    try:
        names = _listdir(folder)
    except OSError:
        return False
    return not names or any(map(_is_data, names))


def _ending_asked() -> str:
    """The ending of the files that the program's line looks for in a folder, by the texts in its file."""
    frame = program_frame()
    for node in ast.walk(tree_of(frame.f_code.co_filename)) if frame is not None else ():
        text = node.value if isinstance(node, ast.Constant) else None
        found = _ENDING.fullmatch(text) if isinstance(text, str) and text.startswith((".", "*.")) else None
        if found:
            return found[1].lower()
    return _ending_read(frame) or "jpg"


def _ending_read(frame: Any) -> str:
    """The ending of what the program's function at work reads; else of what its file reads, if that has neither tables
    nor pictures, which may lie elsewhere; "" if neither tells."""
    tree = tree_of(frame.f_code.co_filename) if frame is not None else ast.Module([], [])
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    own = [one for one in functions if one.lineno <= frame.f_lineno <= (one.end_lineno or 0)]
    found = next((endings[0] for one in reversed(own) if (endings := _endings_read(one))), "")
    everywhere = set(_endings_read(tree))
    return found or (everywhere.pop() if len(everywhere) == 1 and not everywhere & {"jpg", *_TABLES} else "")


def _endings_read(tree: ast.AST) -> list[str]:
    called = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found = [_READERS.get(one) or _READERS.get(one.rpartition(".")[2]) for one in called]
    return [one for one in found if one is not None]


def _listed(real: Any) -> Any:
    def found(*args: Any, **kwargs: Any) -> list[Any]:
        return list(real(*args, **kwargs))

    return found
