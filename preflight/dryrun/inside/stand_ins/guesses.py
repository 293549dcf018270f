"""Arrays that are not there and whose shapes nobody states: tried, and corrected by the error of what takes them.

Every size that nothing tells is a prime of its own. Where a layer of the program wants another number, the prime in its
error names the array and the place, and preflight starts the program again with that number. Sizes that no layer wants
stay made up: the result is then a lower bound, and one line says which array to state.
"""

from __future__ import annotations

import linecache
import math
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from .. import places
from ..tape import Tape
from .made_texts import SHORT, WORDS, Texts, shorter
from .own_code import assigned_names, own_texts

ROWS = 300
"""Rows of a made-up array: more than a batch of most programs, and parts of it in per cent are whole numbers."""
_PRIMES = (17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113)
_SIDES = (28, 32, 64, 224, 128, 96, 48, 256)
"""Sides of pictures that are tried where a layer wants what convolutions leave of them."""
_ROUND = 32
_OF_ALL = ""
"""The key of what was learnt of all made-up data: no file has this name."""
_COUNTS = (2, 10, 100, 1000)
"""Numbers of classes that are tried."""
_CHANNELS = re.compile(r"to have (?P<wanted>\d+) channels, but got (?P<got>\d+) channels")
_MODES = {"1": "L", "3": "RGB", "4": "RGBA"}
"""Modes of pictures by their channels."""
_EMPTY = re.compile(r"num_samples should be a positive integer|got num_samples=0|__len__\(\) should return >= 0")
"""The error of a loader that shuffles nothing."""
_NO_NUMBER = re.compile(r"invalid literal for int\(\) with base 10: '(train|val|test)")
"""The error of a program that takes a number, as that of a class, from a made-up name."""
RGB = 3
"""Channels of a picture in colours."""
_CLASSES = re.compile(r"(^|[^a-z])(y|ys|labels?|targets?|class(es)?|ids?|idx|gt|masks?)(_|[^a-z]|$)", re.IGNORECASE)
_RANKS = (
    (re.compile(r"Conv3d|3d[ck]nn|BatchNorm3d"), 4),
    (re.compile(r"Conv2d|torchvision\.models|timm\.|smp\.|[uU][nN]et|[rR]es[nN]et"), 3),
    (re.compile(r"Conv1d|LSTM|GRU|nn\.RNN|Transformer|seq_len"), 2),
)
"""Dimensions of a sample by the layers that the program names; else 1."""
_ANY_NUMBER = re.compile(r"\d+")
_OF_FILE = re.compile(r"\d{3,}")
"""The number of a file among many."""


class Guess:
    """What is tried for an array: its sizes, which of them a layer has told, and its type."""

    def __init__(self, sizes: Sequence[int], told: Sequence[bool], kind: str, side: int = 0) -> None:
        self.sizes, self.told, self.kind, self.side = list(sizes), list(told), kind, side

    def free(self) -> list[int]:
        """Places of the sizes that nothing tells."""
        return [at for at, told in enumerate(self.told) if not told]

    def document(self) -> list[Any]:
        return [list(self.sizes), list(self.told), self.kind, self.side]


class Guesses:
    """What is tried for each array, by its file and its name in it. `tried`: what an earlier run has learnt."""

    def __init__(self, tried: dict[str, Any], tape: Tape) -> None:
        self._tape = tape
        self.table = {key: Guess(*one) for key, one in tried.items() if key and isinstance(one, list)}
        self.data = {key: one for key, one in tried.items() if isinstance(one, str)}
        """Files of tensors that are no checkpoints, and whether these have names."""
        known = tried.get(_OF_ALL) or [False, _COUNTS[0], "", WORDS]
        self.many, self._classes, self.mode = bool(known[0]), int(known[1]), str(known[2])
        """Whether a part of the made-up data was empty, so that more are made up; the number of classes; the mode of
        made-up pictures in files, if a layer told it."""
        Texts.length, Texts.many = int(known[3]), self.many
        self.pictures = False
        """Whether pictures in files were made up."""
        self.numbered = len(known) > 4 and bool(known[4])
        """Whether the program reads numbers in the names of files."""
        self.used: dict[str, None] = {}

    def array(
        self, numpy: Any, path: Any, name: str = "", rank: int | None = None, kind: Any = None, whole: bool = False
    ) -> Any:
        """An array of zeros. `rank`: dimensions beside that of the rows, as the file's format says. `whole`: part of a
        file that is read once, and not for each sample."""
        key = _key(path, name)
        if key not in self.table:
            self.table[key] = self._first(
                name or " ".join((os.path.basename(str(path)), *assigned_names())), rank, whole
            )
        self.used[key] = None
        self._tape.data_made_up = True
        guess = self.table[key]
        made = numpy.zeros(guess.sizes, kind or guess.kind)
        if made.dtype.kind == "i" and made.ndim == 1:
            made[...] = numpy.arange(len(made)) % self._classes
        if made.dtype.kind in "USO":
            made[...] = "0"
        return made

    def _first(self, name: str, rank: int | None, whole: bool) -> Guess:
        of_sample = in_sample() and not (whole and not _ANY_NUMBER.search(name))
        if rank is None and _CLASSES.search(name):
            return Guess([] if of_sample else [ROWS], [] if of_sample else [True], "int64")
        wanted = rank if rank is not None else next((n for one, n in _RANKS if one.search(own_texts())), 1)
        rows = [] if of_sample and rank is None else [ROWS]
        return Guess([*rows, *self._primes(wanted)], [*(True for _ in rows), *([False] * wanted)], "float32")

    def _primes(self, count: int) -> list[int]:
        taken = {size for guess in self.table.values() for size in guess.sizes}
        return [one for one in _PRIMES if one not in taken][:count]

    def forget(self, path: Any, name: str) -> None:
        """An array was the place of others."""
        self.used.pop(_key(path, name), None)

    def said(self) -> bool:
        """State each array that was tried; whether sizes remain that nothing tells."""
        open_sizes = False
        for key in self.used:
            guess = self.table[key]
            shape = "x".join(map(str, guess.sizes)) or "1"
            path, _, name = key.partition("\n")
            free = guess.free()
            open_sizes = open_sizes or bool(free)
            told = [str(guess.sizes[at]) for at, one in enumerate(guess.told) if one and guess.sizes[at] != ROWS]
            what = f"numbers below {self._classes}" if guess.kind == "int64" and len(guess.sizes) == 1 else "zeros"
            words = f"{path}{f':{name}' if name else ''} is not there: {what} of {shape} stand for it"
            words += f", with {' and '.join(told)} as the program's layers take it" if told else ""
            state = f"; nothing tells {'its other sizes' if told else 'its sizes'}: state them, as in --array "
            state += f"'{path}{f':{name}' if name else ''}={shape}'"
            self._tape.assume(words + (state if free else ""), "model.config")
        return open_sizes

    # ------------------------------------------------------------------------------------------------------- learning

    def learnt(self, error: Any, trace: Any) -> dict[str, Any] | None:
        """What to try next after an error; None if it tells nothing."""
        before = self._document()
        path = getattr(error, "data_file", "")
        if path and path not in self.data:
            self.data[path] = "named" if getattr(error, "part", "") else "whole"
        elif (_EMPTY.search(str(error)) or isinstance(error, StopIteration)) and self._tape.data_made_up:
            self.many = True
        elif self._tape.data_made_up and (words := shorter(str(error))) is not None:
            Texts.length = words
        elif self._tape.data_made_up and Texts.length > SHORT and _asserts_length(error, trace):
            Texts.length = max(SHORT, Texts.length // 4)
        elif self.pictures and not self.mode and (found := _CHANNELS.search(str(error))) and found["wanted"] in _MODES:
            self.mode = _MODES[found["wanted"]]
        elif isinstance(error, KeyError) and self.used and _class_missed(error) >= self._classes:
            self._classes = next((one for one in _COUNTS if one > _class_missed(error)), self._classes)
        elif isinstance(error, ValueError) and _NO_NUMBER.match(str(error)):
            self.numbered = True
        elif self.used:
            self._correct(str(error), trace)
        after = self._document()
        return after if after != before else None

    def _document(self) -> dict[str, Any]:
        known = [self.many, self._classes, self.mode, Texts.length, self.numbered]
        of_all = {_OF_ALL: known} if known != [False, _COUNTS[0], "", WORDS, False] else {}
        return {**{key: one.document() for key, one in self.table.items()}, **self.data, **of_all}

    def _correct(self, words: str, trace: Any) -> None:
        for pattern, correct in _CORRECTIONS:
            found = pattern.search(words)
            if found is not None:
                correct(self, found, trace)
                return

    def _size(self, got: int, wanted: int) -> bool:
        """A size that was wanted in place of another."""
        for key in self.used:
            guess = self.table[key]
            for at in guess.free():
                if guess.sizes[at] == got:
                    guess.sizes[at], guess.told[at] = wanted, True
                    return True
        return self._flattened(got, wanted) or self._other_channels(got, wanted) or self._next_side()

    def _flattened(self, got: int, wanted: int) -> bool:
        """The same of several sizes in one: a picture as a row."""
        for key in self.used:
            guess = self.table[key]
            free, product = guess.free(), 1
            for count, at in enumerate(reversed(free), 1):
                product *= guess.sizes[at]
                if count > 1 and product == got:
                    parts = _factors(wanted, count)
                    for one, size in zip(free[-count:], parts):
                        guess.sizes[one], guess.told[one] = size, True
                    return True
        return False

    def _picture(self, got: int) -> None:
        """A size that PIL takes for the channels of a picture: 3, and none where there would be 1."""
        for key in self.used:
            guess = self.table[key]
            if len(guess.sizes) < 2 or guess.sizes[-1] != got:
                continue
            if got == 1:
                guess.sizes.pop()
                guess.told.pop()
            else:
                guess.sizes[-1], guess.told[-1] = RGB, True
            guess.kind = "uint8"
            return
        for guess in (self.table[key] for key in self.used):  # its sizes are known by now, in another order
            if guess.kind == "float32" and len(guess.sizes) > 2:
                guess.kind = "uint8"

    def _other_channels(self, got: int, wanted: int) -> bool:
        """The channels of a picture were 3, and a layer takes another number."""
        pictures = [self.table[key] for key in self.used if self.table[key].kind == "uint8"]
        found = [guess for guess in pictures if guess.sizes[-1:] == [got] == [RGB] and wanted < RGB + 2]
        for guess in found:
            guess.sizes[-1] = wanted
        return bool(found)

    def _next_side(self) -> bool:
        """Other sides for what convolutions shrink: no prime is found again then."""
        for key in self.used:
            guess = self.table[key]
            sides = guess.free()[-2:]
            if sides and len(guess.sizes) > 1 and guess.side < len(_SIDES):
                for at in sides:
                    guess.sizes[at] = _SIDES[guess.side]
                guess.side += 1
                return True
        return False

    def _rounded(self) -> None:
        """Sides that a model can halve several times."""
        number = 2
        for key in self.used:
            guess = self.table[key]
            for at in guess.free()[-2:]:
                if guess.sizes[at] % _ROUND:
                    guess.sizes[at] = number * _ROUND
            number += 1

    def _dimensions(self, sizes: list[int], more: int) -> None:
        """Dimensions more (or fewer) for the array whose sizes these are."""
        for key in self.used:
            guess = self.table[key]
            free = guess.free()
            if not free or not any(guess.sizes[at] in sizes for at in free):
                continue
            for _ in range(max(0, -more)):
                guess.sizes.pop(free[0])
                guess.told.pop(free[0])
            for size in self._primes(max(0, more)):
                guess.sizes.insert(free[0], size)
                guess.told.insert(free[0], False)
            return

    def _kinds(self, of_classes: bool, kind: str) -> None:
        """Another type for the arrays that are (or are not) numbers of classes."""
        for key in self.used:
            guess = self.table[key]
            if (guess.kind == "int64") == of_classes:
                guess.kind = kind


def _key(path: Any, name: str) -> str:
    """One key for all files that differ in a number alone."""
    return _OF_FILE.sub("*", os.fspath(path)) + (f"\n{_ANY_NUMBER.sub('*', name)}" if name else "")


def _class_missed(error: KeyError) -> int:
    """The number of a class that the program looked for in what it had counted; -1 if it looked for something else."""
    name: Any = error.args[0] if error.args else None
    return int(name) if not isinstance(name, (str, bool)) and hasattr(name, "__index__") else -1


def in_sample() -> bool:
    """Whether the program reads one sample."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "__getitem__" and places.is_users(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def _asserts_length(error: Any, trace: Any) -> bool:
    """Whether the program ended with an assertion without words, of a line that speaks of a length."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if not isinstance(error, AssertionError) or str(error) or trace is None:
        return False
    path = trace.tb_frame.f_code.co_filename
    lines = "".join(linecache.getline(path, trace.tb_lineno + more) for more in range(3))
    return places.is_users(path) and _OF_LENGTH.search(lines) is not None


_OF_LENGTH = re.compile(r"\blen\(|len(gth)?\b|_size\b")


def _factors(number: int, count: int) -> list[int]:
    """Sizes whose product is a number: a square, with channels before it, else one row."""
    for channels in (1, 3):
        side = round((number / channels) ** 0.5)
        if channels * side * side == number and count >= (2 if channels == 1 else 3):
            return [1] * (count - 3) + ([channels] if count > 2 else []) + [side, side]
    return [1] * (count - 1) + [number]


def _numbers(text: str) -> list[int]:
    return [int(one) for one in _ANY_NUMBER.findall(text)]


def _of_layer(guesses: Guesses, found: Any, _: Any) -> None:
    guesses._size(int(found["got"]), int(found["wanted"]))


def _of_pair(guesses: Guesses, found: Any, _: Any) -> None:
    """Two tensors of which one should be as the other: that whose size is made up."""
    one, other = int(found[1]), int(found[2])
    primes = {g.sizes[at] for key in guesses.used for g in (guesses.table[key],) for at in g.free()}
    if one in primes or other not in primes:
        one, other = other, one
    guesses._size(other, one)


def _of_shapes(guesses: Guesses, found: Any, _: Any) -> None:
    guesses._size(_numbers(found[1])[-1], _numbers(found[2])[0])


def _of_view(guesses: Guesses, found: Any, _: Any) -> None:
    """`x.view(100, 784)`, `x.view(-1, 784)`."""
    size, wanted = int(found["size"]), 1
    for one in re.findall(r"-?\d+", found["shape"]):
        wanted *= max(1, int(one))
    rest = "-1" in found["shape"]
    for key in guesses.used:
        guess = guesses.table[key]
        product = 1
        for at in guess.free():
            product *= guess.sizes[at]
        rows = size // product if guess.free() and size % product == 0 else 0
        if rows and (rest or wanted % rows == 0):
            guesses._size(product, wanted if rest else wanted // rows)
            return


def _of_reshape(guesses: Guesses, found: Any, _: Any) -> None:
    """The same of numpy, whose error leaves out the -1 that stands for the rows."""
    size = int(found["size"])
    for key in guesses.used:
        guess = guesses.table[key]
        product = math.prod(guess.sizes[at] for at in guess.free())
        if guess.free() and size % product == 0:
            guesses._size(product, math.prod(_numbers(found["shape"])))
            return


def _of_rank(guesses: Guesses, found: Any, _: Any) -> None:
    sizes = _numbers(found["sizes"])
    guesses._dimensions(sizes, int(found["wanted"]) - len(sizes))


def _of_unpacked(guesses: Guesses, found: Any, trace: Any) -> None:
    """`batch, channels, height, width = x.shape`: the tensors at hand tell whose dimensions are meant."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    for one in trace.tb_frame.f_locals.values():
        shape = getattr(one, "shape", None)
        if isinstance(shape, tuple) and (not found["got"] or len(shape) == int(found["got"])):
            guesses._dimensions(list(shape), int(found["wanted"]) - len(shape))


def _of_indices(guesses: Guesses, found: Any, trace: Any) -> None:
    """`x[:, :, 2:]` of an array that has fewer dimensions: what the line names tells which array is meant."""
    inner = trace
    while inner is not None:
        trace = inner if places.is_users(inner.tb_frame.f_code.co_filename) else trace
        inner = inner.tb_next
    had = int(found["got"] or found["had"])
    scope = trace.tb_frame.f_locals
    for name in _WORD.findall(linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno)):
        one = scope.get(name)
        one = one[0] if isinstance(one, (list, tuple)) and one else one
        shape = getattr(one, "shape", None)
        if isinstance(shape, tuple) and len(shape) == had:
            guesses._dimensions(list(shape), 1)
            return


_WORD = re.compile(r"[A-Za-z_]\w*")
_CORRECTIONS: tuple[tuple[Any, Any], ...] = (
    (_CHANNELS, _of_layer),
    (re.compile(r"input_size. Expected (?P<wanted>\d+), got (?P<got>\d+)"), _of_layer),
    (re.compile(r"running_mean should contain (?P<got>\d+) elements not (?P<wanted>\d+)"), _of_layer),
    (re.compile(r"\((?:\d+)x(?P<got>\d+) and (?P<wanted>\d+)x\d+\)"), _of_layer),
    (re.compile(r"reduction dim, but got \[([^]]*)\] X \[([^]]*)\]"), _of_shapes),
    (re.compile(r"input of size\[(?P<sizes>[^]]*)\]"), lambda *_: None),
    (re.compile(r"shape '\[(?P<shape>[^]]*)\]' is invalid for input of size (?P<size>\d+)"), _of_view),
    (re.compile(r"index (?P<index>\d+) is out of bounds for axis [1-9] with size (?P<got>\d+)"),
     lambda guesses, found, _: guesses._size(int(found["got"]), int(found["index"]) + 1)),
    (re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)"), _of_pair),
    (re.compile(r"(?:[Ee]xpected|required) (?:\d+D [^0-9]*or )?(?P<wanted>\d)D"
                r".*?(?:size|shape):? *[\[(](?P<sizes>[^])]*)"), _of_rank),
    (re.compile(r"too many indices for (?:tensor of dimension (?P<got>\d+)|array: array is (?P<had>\d+)-dim)"),
     _of_indices),
    (re.compile(r"Output size is too small|Kernel size can't be greater than actual input"),
     lambda guesses, *_: guesses._next_side()),
    (re.compile(r"Sizes of tensors must match except in dimension"), lambda guesses, *_: guesses._rounded()),
    (re.compile(r"not enough values to unpack \(expected (?P<wanted>\d+), got (?P<got>\d+)\)"), _of_unpacked),
    (re.compile(r"too many values to unpack \(expected (?P<wanted>\d+)(?:, got (?P<got>\d+))?\)"), _of_unpacked),
    (re.compile(r"scalar types?:? Long, Int; but got|indices.*to be (Long|integer)|expected scalar type Long"),
     lambda guesses, *_: guesses._kinds(False, "int64")),
    (re.compile(r"cannot reshape array of size (?P<size>\d+) into shape \((?P<shape>[^)]*)\)"), _of_reshape),
    (re.compile(r"Cannot handle this data type: \(1, 1, (?P<got>\d+)\)"),
     lambda guesses, found, _: guesses._picture(int(found["got"]))),
    (re.compile(r"Found dtype Long but expected Float|target type.*Long|result type Float can't be cast to"),
     lambda guesses, *_: guesses._kinds(True, "float32")),
)  # fmt: skip
"""What an error tells of the sizes and types that were tried."""
