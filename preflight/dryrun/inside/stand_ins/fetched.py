"""Downloads into a file or a folder: nothing is written, and what the program reads there is made up."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

from ..patches import wrap
from ..tape import Tape
from .own_code import asked_by_program, called_by_program, may_be_missing

_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def empty_archive(path: str) -> bytes | None:
    """The bytes of an archive without files; None if the name is not one of an archive."""
    if not path.endswith(_ARCHIVES):
        return None
    data = io.BytesIO()
    if path.endswith(".zip"):
        zipfile.ZipFile(data, "w").close()
    else:
        kind = path.rpartition(".")[2].replace("tgz", "gz")
        tarfile.open(fileobj=data, mode=f"w:{kind}" if kind != "tar" else "w").close()  # type: ignore[call-overload]
    return data.getvalue()


class Fetched:
    """Functions that download, by where they put it."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def _left_out(self, what: Any) -> None:
        self._tape.data_made_up = True
        self._tape.assume(f"{what} was not downloaded: what the program reads of it is made up")

    def to(self, *names: str, at: int = 1) -> Callable[[Any], None]:
        """A hook for functions with a target among their arguments, which they return."""

        def hook(module: Any) -> None:
            def fetched(real: Any, *args: Any, **kwargs: Any) -> Any:
                if not called_by_program() or may_be_missing():
                    return real(*args, **kwargs)
                self._left_out(args[0] if args else next(iter(kwargs.values()), "a file"))
                target = (
                    args[at]
                    if len(args) > at
                    else next(
                        (kwargs[one] for one in ("output", "out", "dst", "root", "local_dir") if kwargs.get(one)), None
                    )
                )
                return target if target is not None else os.path.basename(str(args[0] if args else "download"))

            for name in names:
                wrap(module, name, fetched)

        return hook

    def hub(self, module: Any) -> None:
        """huggingface_hub, asked by the program itself: the path at which a file or a folder would lie."""

        def file(real: Any, repo_id: Any, filename: Any = None, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(repo_id, *([] if filename is None else [filename]), *args, **kwargs)
            except Exception:
                if not called_by_program() or may_be_missing():
                    raise
            self._left_out(f"{repo_id} {filename or ''}".strip())
            return os.path.join("hub", str(repo_id), str(filename or ""))

        for name in ("hf_hub_download", "snapshot_download"):
            wrap(module, name, file)

    def archives(self, module: Any) -> None:
        """zipfile: an archive that is not there has no files."""
        real = module.ZipFile.__init__

        def made(self_: Any, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
            named = isinstance(file, (str, os.PathLike))
            if named and mode == "r" and not os.path.exists(file) and asked_by_program() and not may_be_missing():
                self._left_out(file)
                file = io.BytesIO(empty_archive(".zip") or b"")
            real(self_, file, mode, *args, **kwargs)

        module.ZipFile.__init__ = made

    def tars(self, module: Any) -> None:
        """tarfile: the same."""

        def opened(real: Any, name: Any = None, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            named = isinstance(name, (str, os.PathLike)) and mode.startswith("r")
            if named and not os.path.exists(name) and asked_by_program() and not may_be_missing():
                self._left_out(name)
                return real(None, "r", io.BytesIO(empty_archive(".tar") or b""))
            return real(name, mode, *args, **kwargs)

        wrap(module, "open", opened)
