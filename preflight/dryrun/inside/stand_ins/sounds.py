"""Sounds in files that are not there: silence of the length and the rate of made-up data sets."""

from __future__ import annotations

import os
from typing import Any

import torch

from ..patches import wrap
from ..tape import Tape
from .data_sets import RATE, SECONDS
from .own_code import asked_by_program, may_be_missing


class Sounds:
    """What stands for them in each library. `torchaudio` needs a package of its own to read a file that is there."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def _missing(self, file: Any) -> bool:
        named = isinstance(file, (str, os.PathLike)) and not os.path.exists(file)
        if not named or not asked_by_program() or may_be_missing():
            return False
        self._tape.data_made_up = True
        folder = os.path.dirname(os.fspath(file)) or "."
        self._tape.assume(f"the sounds of {folder} are made up: {SECONDS} s at {RATE} Hz", "train.seq_len")
        return True

    def torchaudio(self, module: Any) -> None:
        """`load`: channels, samples."""

        def load(real: Any, uri: Any, *args: Any, **kwargs: Any) -> Any:
            return (torch.zeros(1, SECONDS * RATE), RATE) if self._missing(uri) else real(uri, *args, **kwargs)

        wrap(module, "load", load)

    def soundfile(self, module: Any) -> None:
        """`read`: samples."""

        def read(real: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
            return (_silence(RATE), RATE) if self._missing(file) else real(file, *args, **kwargs)

        wrap(module, "read", read)

    def librosa(self, module: Any) -> None:
        """`load`, which samples anew at 22,050 Hz unless told otherwise."""

        def load(real: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._missing(path):
                return real(path, *args, **kwargs)
            rate = (args[0] if args else kwargs.get("sr", 22050)) or RATE
            return _silence(rate), rate

        wrap(module, "load", load)

    def scipy(self, module: Any) -> None:
        """scipy.io.wavfile: `read`."""

        def read(real: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
            return (RATE, _silence(RATE)) if self._missing(filename) else real(filename, *args, **kwargs)

        wrap(module, "read", read)


def _silence(rate: int) -> Any:
    import numpy

    return numpy.zeros(int(SECONDS * rate), numpy.float32)
