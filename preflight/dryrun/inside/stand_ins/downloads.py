"""What a program downloads, and arrays of tokens on disk: made up where a name says what it holds.

Plain texts, tables, pictures and files in the format of MNIST are made up. An archive has no files in it.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import os
import re
import string
import struct
import sys
from collections.abc import Callable
from typing import Any

from ..patches import wrap
from ..tape import Tape
from .fetched import empty_archive
from .fields import in_fields
from .own_code import asked_by_program, may_be_missing, program_frame
from .vision import encoded

TEXT = 1 << 20
"""Bytes of a made-up text: more than a window of any model, fewer than most corpora."""
TOKENS = 1 << 22
"""Elements of a made-up array of tokens without a stated shape."""
_IDX = re.compile(r"(train|t10k)-(images|labels)[-.]idx([13])-ubyte(\.gz)?$")
"""MNIST and what is packed as it (EMNIST, Fashion-MNIST, KMNIST)."""
_IMAGES, _SIDE = {"train": 60000, "t10k": 10000}, 28


class Downloads:
    """What stands for the answers of servers, and for files of tokens."""

    def __init__(self, tape: Tape, table_of: Callable[[str], bytes | None]) -> None:
        self._tape, self._table_of = tape, table_of

    def _data(self, url: Any) -> bytes | None:
        """The bytes of a made-up download; None if nothing tells what it holds."""
        url = str(getattr(url, "full_url", url))
        path = url.partition("?")[0].partition("#")[0]
        found = _IDX.search(path)
        if not url.startswith(("http://", "https://", "ftp://")):
            return None
        if not found and not path.endswith(".txt"):
            return self._of_data(url, path)
        self._tape.data_made_up = True
        if found:
            data = _idx(found[1], found[2])
            self._tape.assume(f"{url} is made up, with as many pictures as MNIST has")
            return gzip.compress(data, 1) if found[4] else data
        words = f"the text {url} is made up: {TEXT} bytes of {len(_LETTERS)} different characters"
        self._tape.assume(words, "model.config")
        return _text()

    def _of_data(self, url: str, path: str) -> bytes | None:
        """A table, a picture, or an archive, which has no files: what the program reads of it is made up."""
        vectors = _known(path) if path.endswith((".txt.gz", ".vec.gz", ".vec")) else None
        known = self._table_of(path) if vectors is None else vectors.encode()
        if vectors is not None and known is not None and path.endswith(".gz"):
            known = gzip.compress(known, 1)
        if known is None and path.lower().endswith((".jpg", ".jpeg", ".png")):
            known = encoded().getvalue()
        if known is None:
            known = empty_archive(path)
        if known is not None:
            self._tape.data_made_up = True
            self._tape.assume(f"{url} was not downloaded: what the program reads of it is made up", "model.config")
        return known

    def urllib(self, module: Any) -> None:
        """urllib.request: `urlopen` and `urlretrieve`."""

        def opened(real: Any, url: Any, *args: Any, **kwargs: Any) -> Any:
            data = self._data(url)
            if data is None:
                return real(url, *args, **kwargs)
            return module.addinfourl(io.BytesIO(data), {}, str(url), 200)

        def retrieved(real: Any, url: Any, filename: Any = None, *args: Any, **kwargs: Any) -> Any:
            data = self._data(url)
            if data is None or filename is None:
                return real(url, filename, *args, **kwargs)
            with open(filename, "wb") as file:
                file.write(data)
            return filename, {}

        wrap(module, "urlopen", opened)
        wrap(module, "urlretrieve", retrieved)

    def requests(self, module: Any) -> None:
        """requests.sessions: every method."""

        def asked(real: Any, session: Any, method: str, url: Any, *args: Any, **kwargs: Any) -> Any:
            data = self._data(url) if method.upper() == "GET" else None
            if data is None:
                sys.audit("urllib.Request", str(url), None, {}, method)  # the guard keeps the address that was wanted
                return real(session, method, url, *args, **kwargs)
            answer = importlib.import_module("requests").Response()
            answer.status_code, answer.url, answer.raw, answer.encoding = 200, url, io.BytesIO(data), "utf-8"
            answer.headers["Content-Length"] = str(len(data))
            return answer

        wrap(module.Session, "request", asked)

    def httpx(self, module: Any) -> None:
        """httpx: `get` and `stream`."""

        def answered(method: str, url: Any) -> Any:
            data = self._data(url) if method.upper() == "GET" else None
            if data is None:
                sys.audit("urllib.Request", str(url), None, {}, method)
                return None
            length = {"Content-Length": str(len(data))}
            return module.Response(200, content=data, headers=length, request=module.Request(method, url))

        @contextlib.contextmanager
        def opened(real: Any, method: Any, url: Any, **kwargs: Any) -> Any:
            found = answered(method, url)
            with contextlib.nullcontext(found) if found is not None else real(method, url, **kwargs) as response:
                yield response

        def got(real: Any, url: Any, **kwargs: Any) -> Any:
            found = answered("GET", url)
            return found if found is not None else real(url, **kwargs)

        wrap(module, "stream", opened)
        wrap(module, "get", got)

    def fsspec(self, module: Any) -> None:
        """fsspec.implementations.http."""

        def opened(real: Any, system: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            data = self._data(path)
            return real(system, path, *args, **kwargs) if data is None else io.BytesIO(data)

        wrap(module.HTTPFileSystem, "_open", opened)

    def files(self, module: Any) -> None:
        """`open` of a plain text that is not there, for reading as text."""

        def opened(real: Any, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            try:
                return real(file, mode, *args, **kwargs)
            except FileNotFoundError:
                name = str(file)
                if mode == "rb" and name.endswith(".bin") and asked_by_program() and not may_be_missing():
                    return self._shard(name)
                if not _is_text(name) or mode not in ("r", "rt") or not asked_by_program() or may_be_missing():
                    raise
            self._tape.data_made_up = True
            known = _known(name)
            if known is not None:
                field = "model.config" if _VECTORS.search(name) else ""
                self._tape.assume(f"the rows of {name} are made up: {_FACES}, with its own columns", field)
                return io.StringIO(known)
            words = f"the text {name} is made up: {TEXT} bytes of {len(_LETTERS)} different characters"
            self._tape.assume(words, "model.config")
            return io.StringIO(in_fields(_text().decode(), program_frame()))

        wrap(module, "open", opened)

    def _shard(self, name: str) -> io.BytesIO:
        self._tape.data_made_up = True
        words = (
            f"{name} is not there: {TOKENS} zeros stand for its tokens, after a header that says what is asked of it"
        )
        self._tape.assume(words, "train.seq_len")
        return _Shard(bytes(2 * TOKENS))

    def gzip(self, module: Any) -> None:
        """gzip: `open` of a text that is not there, for reading bytes: as many as are asked for."""

        def opened(real: Any, file: Any, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
            packed = isinstance(file, (str, os.PathLike)) and str(file).endswith(".gz") and "r" in mode
            if not packed or os.path.exists(file) or not asked_by_program() or may_be_missing():
                return real(file, mode, *args, **kwargs)
            if "." in os.path.basename(str(file))[:-3] or "t" in mode:  # what is packed has a format of its own
                return real(file, mode, *args, **kwargs)
            self._tape.data_made_up = True
            words = f"the text {file} is made up: as many bytes as are read, of {len(_LETTERS)} different ones"
            self._tape.assume(words, "model.config")
            return _Endless()

        wrap(module, "open", opened)

    def numpy(self, module: Any) -> None:
        """Flat arrays of whole numbers: `numpy.memmap` and `numpy.fromfile`. Tokens are drawn from them by the lengths
        that the program sets; an array with a shape of its own decides more."""
        real = module.memmap

        def flat(name: Any, dtype: Any, where: str) -> Any:
            kind = module.dtype(dtype)
            if not isinstance(name, (str, os.PathLike)) or kind.kind not in "iu" or kind.itemsize < 2:
                return None
            if os.path.exists(name) or may_be_missing():
                return None
            self._tape.data_made_up = True
            self._tape.assume(f"{os.fspath(name)} is not there: {where} has {TOKENS} zeros instead", "train.seq_len")
            return module.zeros(TOKENS, dtype)

        class Memmap(real):  # type: ignore[misc, valid-type]
            def __new__(cls, filename: Any, dtype: Any = module.uint8, mode: str = "r+", offset: int = 0,
                        shape: Any = None, order: str = "C") -> Any:  # fmt: skip
                made = flat(filename, dtype, "numpy.memmap") if shape is None and mode in ("r", "c", "r+") else None
                return real.__new__(cls, filename, dtype, mode, offset, shape, order) if made is None else made

        def fromfile(read: Any, file: Any, dtype: Any = float, *args: Any, **kwargs: Any) -> Any:
            made = flat(file, dtype, "numpy.fromfile") if not args and not kwargs else None
            return read(file, dtype, *args, **kwargs) if made is None else made

        def frombuffer(read: Any, buffer: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(buffer, _Header):
                return read(buffer, *args, **kwargs)
            count = len(buffer) // module.dtype(args[0] if args else kwargs.get("dtype", float)).itemsize
            made = module.empty(count, object)
            made[:] = [Agreeing(TOKENS)] * count
            return made

        wrap(module, "frombuffer", frombuffer)
        Memmap.__name__ = Memmap.__qualname__ = "memmap"
        Memmap.__module__ = "numpy"
        module.memmap = Memmap
        wrap(module, "fromfile", fromfile)


_NO_TEXT = re.compile(
    r"(\.(py|sh|ya?ml|toml|ini|cfg|conf|env|lock|pid|json|jsonl|xml|html?|md|log|csv|tsv|key|token|secret|bin|gin)"
    r"|config|settings|credentials)$",
    re.IGNORECASE,
)
"""Files that have another stand-in, or none: settings, code, logs, secrets."""


def _is_text(name: str) -> bool:
    """Whether a file that is opened as text may hold lines of data."""
    base = os.path.basename(name)
    return bool(base) and not base.startswith(".") and not name.startswith(_OF_SYSTEM) and not _NO_TEXT.search(base)


_OF_SYSTEM = ("/proc/", "/sys/", "/etc/", "/dev/", "/run/", "/usr/")
_COMMON = (
    "a the in on of and is to with at it two man woman dog boy girl child people white black red blue "
    "green young playing running standing sitting water down up out one three small large little her his "
    "front near by next through over looking for from an are"
)
"""Words that vocabularies of English have."""
_LETTERS = string.ascii_letters + string.digits + string.punctuation + " \n"


def _text() -> bytes:
    lines, words = ["".join(_LETTERS[:-1])], _COMMON.split()
    lines += [" ".join(words[(7 * i + j) % len(words)] for j in range(12)) for i in range(52)]
    block = "\n".join(lines) + "\n"
    return (block * (TEXT // len(block) + 1))[:TEXT].encode()


class Agreeing(int):
    """A number in the header of a file that is not there: it is what the program compares it with."""

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False

    __hash__ = int.__hash__


class _Header(bytes):
    """The first bytes of a file of tokens."""


class _Shard(io.BytesIO):
    """A file of tokens of 16 bits. What is read of it first by a number of bytes is its header."""

    def read(self, size: int | None = -1, /) -> bytes:
        first = self.tell() == 0 and size is not None and size > 0
        return _Header(size) if first and size is not None else super().read(size)


class _Endless(io.RawIOBase):
    """A text without an end; 1 MiB where no number of bytes is asked for."""

    def read(self, size: int | None = -1, /) -> bytes:
        text, wanted = _text(), TEXT if size is None or size < 0 else size
        return (text * (wanted // len(text) + 1))[:wanted]


_ATTRIBUTES = (
    "5_o_Clock_Shadow Arched_Eyebrows Attractive Bags_Under_Eyes Bald Bangs Big_Lips Big_Nose Black_Hair Blond_Hair "
    "Blurry Brown_Hair Bushy_Eyebrows Chubby Double_Chin Eyeglasses Goatee Gray_Hair Heavy_Makeup High_Cheekbones Male "
    "Mouth_Slightly_Open Mustache Narrow_Eyes No_Beard Oval_Face Pale_Skin Pointy_Nose Receding_Hairline Rosy_Cheeks "
    "Sideburns Smiling Straight_Hair Wavy_Hair Wearing_Earrings Wearing_Hat Wearing_Lipstick Wearing_Necklace "
    "Wearing_Necktie Young"
)
"""The columns of CelebA's list_attr_celeba.txt."""
_FACES = 4096
_VECTORS = re.compile(r"glove|word2vec|fasttext|\.vec(\.|$)", re.IGNORECASE)
_DIMENSIONS = re.compile(r"(\d+)d\b")
VECTORS, VECTOR = 4096, 300
"""Words in a made-up file of word vectors, and the size of each where its name has none."""


def _known(name: str) -> str | None:
    """A text of a data set that many programs read by themselves: its first rows, in its format."""
    if _VECTORS.search(os.path.basename(name)):
        size = int(found[1]) if (found := _DIMENSIONS.search(name)) else VECTOR
        numbers = " ".join(["0.1"] * size)
        return "".join(f"w{i} {numbers}\n" for i in range(VECTORS))
    if os.path.basename(name) != "list_attr_celeba.txt":
        return None
    rows = [f"{i:06}.jpg {' '.join('1' if (i + j) % 3 else '-1' for j in range(40))}" for i in range(1, _FACES + 1)]
    return f"{_FACES}\n{_ATTRIBUTES}\n" + "\n".join(rows) + "\n"


def _idx(part: str, what: str) -> bytes:
    """A file in the format of MNIST's (its header is four bytes, then the sizes)."""
    count = _IMAGES[part]
    if what == "labels":
        return struct.pack(">HBBI", 0, 8, 1, count) + bytes(i % 10 for i in range(count))
    return struct.pack(">HBBIII", 0, 8, 3, count, _SIDE, _SIDE) + bytes(count * _SIDE * _SIDE)


def no_command(module: Any) -> None:
    """`os.system` of a program that is not there: the shell's status, no error. Folders that it would make are made."""

    def status(real: Any, command: Any) -> int:
        words = str(command).split()
        if words[:1] == ["mkdir"] and not _OF_SHELL.search(str(command)):
            for name in (one for one in words[1:] if not one.startswith("-")):
                os.makedirs(name, exist_ok=True)
            return 0
        try:
            return int(real(command))
        except FileNotFoundError:
            return 127 << 8

    wrap(module, "system", status)


_OF_SHELL = re.compile(r"[;&|<>$`'\"*?(){}~\\]")
"""Characters that a shell would read."""
ENCODINGS = {
    "gpt2": 50257, "r50k_base": 50257, "p50k_base": 50281, "p50k_edit": 50284, "cl100k_base": 100277,
    "o200k_base": 200019, "o200k_harmony": 201088,
}  # fmt: skip
"""Tokens of each encoding (tiktoken_ext/openai_public.py)."""


def encodings(module: Any, tape: Tape) -> None:
    """`tiktoken.get_encoding`, and what takes an encoding by the name of a model: those that cannot be had are of the
    right size, with a token for each byte."""

    def named(real: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return real(name, *args, **kwargs)
        except Exception:
            if name not in ENCODINGS:
                raise
        tape.assume(f"tiktoken's {name} is made up, with a token for each byte", "train.seq_len")
        ranks = {bytes([i]): i for i in range(256)}
        specials = {"<|endoftext|>": ENCODINGS[name] - 1}
        return module.core.Encoding(name, pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens=specials)

    def of_model(real: Any, model: str) -> Any:
        return module.get_encoding(module.model.encoding_name_for_model(model))

    wrap(module, "get_encoding", named)
    wrap(module, "encoding_for_model", of_model)
