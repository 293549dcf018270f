"""Sound: torch.stft, torchaudio, librosa and soundfile, by the sizes of the arrays that they make.

How long a file's sound is, only the file says: a cut or a padding to a fixed length makes a sample's size known.
"""

from __future__ import annotations

from collections.abc import Mapping

from preflight.python.arrays import Array, arithmetic, array_of, make
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.objects import Abstract, CallRecord, Instance, sequence, to_expr
from preflight.vocabulary.values import Cause, Const, Expr, unknown

_LENGTH: Expr = unknown("the length of the sound is in its file", cause=Cause.not_read)
_RATE: Expr = unknown("the sampling rate is in its file", cause=Cause.not_read)


def _loaded(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`torchaudio.load(path)`: channels by samples, and the rate."""
    made = make(record, Array((_LENGTH, _LENGTH), "float32"))
    return sequence([made, _RATE], "tuple", record.origin) if made is not None else None


def _librosa(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`librosa.load(path, sr=22050, duration=None)`: mono, unless it is told otherwise."""
    mono, rate, seconds = record.argument("mono"), record.argument("sr"), record.argument("duration")
    if mono is not None and ev.value_of(mono) is not True:
        return None
    made = make(record, Array((_LENGTH,), "float32", "numpy"))
    known_rate = rate if rate is not None else Const(22050) if seconds is None else _RATE
    return sequence([made, known_rate], "tuple", record.origin) if made is not None else None


def _frames(ev: Evaluator, length: Expr, hop: Expr) -> Expr:
    return arithmetic(ev, "+", arithmetic(ev, "//", length, hop), Const(1))


def _stft(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`torch.stft(x, n_fft, hop_length)`, centred: n_fft / 2 + 1 frequencies by length / hop + 1 frames."""
    array, size = array_of(record.object("input", 0) or record.object("y", 0)), record.argument("n_fft", 1)
    centred, real = record.argument("center"), record.argument("return_complex")
    by_torch = record.qualified.startswith("torch")
    if array is None or not array.shape or size is None or (centred is not None and ev.value_of(centred) is not True):
        return None
    if by_torch and (real is None or ev.value_of(real) is not True):
        return None
    hop = record.argument("hop_length", 2) or arithmetic(ev, "//", size, Const(4))
    shape = (arithmetic(ev, "+", arithmetic(ev, "//", size, Const(2)), Const(1)), _frames(ev, array.shape[-1], hop))
    return make(record, Array((*array.shape[:-1], *shape), "complex64", "torch" if by_torch else "numpy"))


def _spectrogram(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """A transform of torchaudio is called: the settings are those that it was made with."""
    maker = record.receiver_object
    made = maker.record if isinstance(maker, Instance) and maker.made_by.startswith("torchaudio.transforms") else None
    array = array_of(record.arguments[0]) if record.arguments else None
    if made is None or array is None or not array.shape:
        return None
    if made.method in ("AmplitudeToDB", "TimeMasking", "FrequencyMasking"):
        return make(record, Array(array.shape, array.dtype))
    size = made.argument("n_fft", 0 if made.method == "Spectrogram" else 1) or Const(400)
    bands = made.argument("n_mels") or Const(128)
    if made.method == "Spectrogram":
        bands = arithmetic(ev, "+", arithmetic(ev, "//", size, Const(2)), Const(1))
    elif made.method != "MelSpectrogram":
        return None
    window = made.argument("win_length", 1 if made.method == "Spectrogram" else 2) or size
    hop = made.argument("hop_length", 2 if made.method == "Spectrogram" else 3) or arithmetic(
        ev, "//", window, Const(2)
    )
    return make(record, Array((*array.shape[:-1], bands, _frames(ev, array.shape[-1], hop)), "float32"))


def _mel(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`librosa.feature.melspectrogram(y=y, n_mels=128, hop_length=512)`"""
    array, hop = array_of(record.object("y")), record.argument("hop_length") or Const(512)
    if array is None or len(array.shape) != 1:
        return None
    return make(
        record, Array((record.argument("n_mels") or Const(128), _frames(ev, array.shape[0], hop)), "float32", "numpy")
    )


def _padded(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`F.pad(x, (0, n))`: the last sizes grow by what is given, innermost first."""
    array, given = array_of(record.object("input", 0)), record.object("pad", 1)
    items = ev.iterate(given) if given is not None else None
    if array is None or items is None or len(items) % 2 or len(items) > 2 * len(array.shape):
        return None
    shape, more = list(array.shape), [to_expr(one) for one in items]
    for at in range(len(items) // 2):
        shape[-1 - at] = arithmetic(ev, "+", shape[-1 - at], arithmetic(ev, "+", more[2 * at], more[2 * at + 1]))
    return make(record, Array(tuple(shape), array.dtype))


HOOKS: Mapping[str, Hook] = {
    "torchaudio.load": _loaded, "librosa.load": _librosa, "torch.stft": _stft, "librosa.stft": _stft,
    "librosa.feature.melspectrogram": _mel, "torch.nn.functional.pad": _padded,
    **{f"torchaudio.transforms.{name}.__call__": _spectrogram
       for name in ("MelSpectrogram", "Spectrogram", "AmplitudeToDB", "TimeMasking", "FrequencyMasking")},
}  # fmt: skip
