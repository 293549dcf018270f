"""One line for an error that ended a program: what is missing, and what to do."""

from __future__ import annotations

import errno
import linecache
import os
import re
import socket
import sys
import urllib.error
from collections.abc import Iterator
from typing import Any

_OFFLINE = ("LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectTimeout", "MaxRetryError", "ConnectError",
            "ClientConnectorError", "ClientConnectorDNSError")  # fmt: skip
"""Errors of huggingface_hub, requests, httpx and aiohttp without a network."""


_PUT = "put it there, or give the program another path"
_KERNELS = ("flash_attn", "xformers", "apex", "triton", "xentropy_cuda_lib", "causal_conv1d", "mamba_ssm")
"""Packages whose kernels are built for CUDA."""
_OF_KERNELS = ("NotImplementedError", "UnsupportedOperatorException", "UnsupportedFakeTensorException")
_NO_SHAPES = re.compile(r"Could not run '([\w:.]+)' with arguments from the 'CUDA' backend|^([a-z_]\w*[.:]+[\w.]+)$")
_NOT_FOUND = re.compile(r"^([\w./-]+) not found\.?$")
_NO_FILE = re.compile(
    r"(?=.*No such file).*?(?:name = '([^']+)'|^\[?[^:]*?([\w./-]+\.\w+|/[\w./-]+): No such file)", re.DOTALL
)


class NotThere(AttributeError):
    """The program takes from a missing file what cannot be made up. Its words are the whole message. `data_file`: one
    that was taken for a checkpoint and holds something else; `part`: by what name the program takes from it."""

    def __init__(self, words: str, data_file: str = "", part: str = "") -> None:
        super().__init__(words)
        self.data_file, self.part = data_file, part


def words(error: Any, trace: Any, wanted: str) -> str:
    """The message of an error. `wanted`: the last address that the program asked for."""
    if isinstance(error, EOFError) and _asks_for_input(trace):
        return "the program asks for input, and a dry run has none"
    if isinstance(error, NotThere):
        return str(error)
    if any(_offline(one) for one in _chain(error)):
        what = wanted or "a file of the hub"
        return (
            f"the program downloads {what}, and a dry run downloads nothing: download it once without preflight, "
            "and keep it where the program looks for it"
        )
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _of_module(error.name)
    kernel = _NO_SHAPES.search(str(error)) if type(error).__name__ in _OF_KERNELS else None
    if kernel is not None:
        return (
            f"the kernel {kernel[1] or kernel[2]} has no shapes that a dry run knows, so what it allocates was not "
            "seen: register them (torch.library.register_fake), or let the program choose another kernel"
        )
    if isinstance(error, MemoryError):
        return "the program takes more host memory than it may: --memory-limit SIZE allows more"
    if isinstance(error, OSError) and error.errno in (errno.EFBIG, errno.ENOSPC):
        return "the program writes more than it may: --disk-limit SIZE allows more"
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, (str, bytes)):
        name = error.filename if isinstance(error.filename, str) else error.filename.decode(errors="replace")
        folder = os.path.dirname(name)
        if folder and not os.path.isdir(folder):  # the names in it may have been made up
            asked = f"the program opens {os.path.basename(name)} in it, which cannot be made up"
            return f"the folder {folder} is not there, and {asked}: {_PUT}"
        return f"the file {name} is not there, and cannot be made up: {_PUT}"
    missed = _NOT_FOUND.match(str(error)) if isinstance(error, FileNotFoundError) else None
    if missed is not None:
        return f"the file {missed[1]} is not there, and cannot be made up: {_PUT}"
    named = _NO_FILE.search(str(error)) if isinstance(error, OSError) or type(error).__module__ == "lmdb" else None
    if named is not None:  # libraries in C put the name into their words
        return f"the file {named[1] or named[2]} is not there, and cannot be made up: {_PUT}"
    kind = type(error).__name__
    return f"{kind}: {error}".splitlines()[0] if str(error) else kind


def _of_module(name: str) -> str:
    package = name.partition(".")[0]
    if package in sys.modules:
        return f"the module {name} is not there: {package} has none by this name"
    if package in _KERNELS:
        return (
            f"the program needs {package}, which is not installed, and whose kernels need a GPU: let it choose another "
            'kernel, as attn_implementation="sdpa" does'
        )
    return (
        f"the package {package} is not installed for {sys.executable}: install it there, or give the command the "
        "Python that has it"
    )


def _chain(error: Any) -> Iterator[Any]:
    """The error, and those that it was raised from."""
    seen: list[Any] = []
    # A chain may lead back to where it began.
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _offline(error: Any) -> bool:
    """Whether an error is that of a name or an address that cannot be reached. The network of a dry run has none
    but this computer, so nothing is told of a server: a program's own mirror or proxy looks the same."""
    return isinstance(error, (socket.gaierror, urllib.error.URLError)) or type(error).__name__ in _OFFLINE


def _asks_for_input(trace: Any) -> bool:
    """Whether the innermost line reads from standard input."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    line = linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    return "input(" in line or "stdin" in line or not line
