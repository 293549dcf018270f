"""Files beside the programs of `programs.txt`, made from a line: `npy train.npy 3000x3x96x96 float32`.

python program_files.py FOLDER LINE...
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import sys
import tarfile
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RANDOM = np.random.default_rng(0)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


def _array(shape: str, kind: str) -> Any:
    if kind.startswith("float"):
        return RANDOM.random(_shape(shape), dtype=np.float32).astype(kind)
    return RANDOM.integers(0, 1000, _shape(shape)).astype(kind)


def _arrays(words: tuple[str, ...]) -> dict[str, Any]:
    named = (word.partition("=") for word in words)
    return {name: _array(*what.split(":")) for name, _, what in named}


def npy(path: Path, shape: str, kind: str) -> None:
    np.save(path, _array(shape, kind))


def binary(path: Path, count: str, kind: str) -> None:
    _array(count, kind).tofile(path)


def npz(path: Path, *words: str) -> None:
    np.savez(path, **_arrays(words))


def pt(path: Path, *words: str) -> None:
    import torch

    torch.save({name: torch.from_numpy(array) for name, array in _arrays(words).items()}, path)


def h5(path: Path, *words: str) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in _arrays(words).items():
            file.create_dataset(name, data=array)


def _picture(size: str) -> Any:
    from PIL import Image

    width, height = _shape(size)
    coarse = RANDOM.integers(0, 255, (height // 8 + 1, width // 8 + 1, 3)).astype("uint8")
    return Image.fromarray(coarse).resize((width, height))


def jpeg(path: Path, count: str, size: str) -> None:
    path.mkdir(parents=True)
    kinds = [_picture(size) for _ in range(8)]
    for number in range(int(count)):
        kinds[number % 8].save(path / f"{number:05}.jpg", quality=90)


def folder(path: Path, count: str, size: str) -> None:
    classes, each = _shape(count)
    for number in range(classes):
        jpeg(path / f"class{number}", str(each), size)


def tar(path: Path, count: str, size: str) -> None:
    with tarfile.open(path, "w") as file:
        for number in range(int(count)):
            kept = io.BytesIO()
            _picture(size).save(kept, "JPEG")
            for name, data in ((f"{number:05}.jpg", kept.getvalue()), (f"{number:05}.cls", b"%d" % (number % 10))):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))


def text(path: Path, lines: str, length: str) -> None:
    letters = np.frombuffer(b"abcdefghijklmnop qrstuvwxyz", dtype="u1")
    with path.open("wb") as file:
        for _ in range(int(lines)):
            file.write(letters[RANDOM.integers(0, 27, int(length))].tobytes() + b"\n")


def jsonl(path: Path, lines: str) -> None:
    with path.open("w") as file:
        for i in range(int(lines)):
            file.write(json.dumps({"id": i, "text": f"sentence {i} " * (3 + i % 9), "label": i % 2}) + "\n")


def table(path: Path, rows: str, columns: str) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{i}" for i in range(int(columns) - 1)), "y"])
        writer.writerows(RANDOM.random((int(rows), int(columns))).round(5).tolist())


def parquet(path: Path, rows: str, columns: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({f"x{i}": RANDOM.random(int(rows)) for i in range(int(columns))}), path)


def arrow(path: Path, rows: str, length: str) -> None:
    from datasets import Dataset

    ids = RANDOM.integers(0, 1000, (int(rows), int(length)))
    Dataset.from_dict({"input_ids": list(ids), "label": list(range(int(rows)))}).save_to_disk(path)


def mnist(path: Path) -> None:
    raw = path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, count in (("train", 60000), ("t10k", 10000)):
        head = np.array([0x803, count, 28, 28], ">i4").tobytes()
        pixels = RANDOM.integers(0, 255, count * 784).astype("u1").tobytes()
        labels = np.array([0x801, count], ">i4").tobytes() + RANDOM.integers(0, 10, count).astype("u1").tobytes()
        for kind, data in (("images-idx3", head + pixels), ("labels-idx1", labels)):
            (raw / f"{name}-{kind}-ubyte").write_bytes(data)
            (raw / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(data[:100]))


def npys(path: Path, count: str, shape: str, kind: str) -> None:
    path.mkdir()
    for number in range(int(count)):
        npy(path / f"{number:05}.npy", shape, kind)


def wav(path: Path, count: str, samples: str) -> None:
    path.mkdir()
    for number in range(int(count)):
        with wave.open(str(path / f"{number:05}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes(_array(samples, "int16").tobytes())


def tokenizer(path: Path, words: str) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(int(words) - 5))]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=512, **special).save_pretrained(path)


def reviews(path: Path, rows: str) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["content", "sentiment"])
        writer.writerows([f"word{i % 900} of a review " * (2 + i % 20), i % 3] for i in range(int(rows)))


def labels(path: Path, rows: str) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image_id", "label"])
        writer.writerows([f"{i:05}.jpg", i % 5] for i in range(int(rows)))


def pickled(path: Path, rows: str) -> None:
    lengths = RANDOM.integers(10, 120, int(rows))
    told = [{"tokens": RANDOM.integers(0, 1000, n).tolist(), "label": i % 2} for i, n in enumerate(lengths)]
    path.write_bytes(pickle.dumps(told))


def settings(path: Path, *words: str) -> None:
    path.write_text("".join(word.replace("=", ": ") + "\n" for word in words))


def job(path: Path, *command: str) -> None:
    path.write_text("#!/bin/bash\n#SBATCH --nodes=1\n" + " ".join(command) + "\n")


KINDS: dict[str, Callable[..., None]] = {
    "npy": npy, "bin": binary, "npz": npz, "pt": pt, "h5": h5, "jpeg": jpeg, "folder": folder, "tar": tar, "text": text,
    "jsonl": jsonl, "csv": table, "parquet": parquet, "arrow": arrow, "mnist": mnist, "job": job,
    "npys": npys, "wav": wav, "tokenizer": tokenizer, "reviews": reviews, "labels": labels, "pickle": pickled,
    "yaml": settings}  # fmt: skip


def make(where: Path, line: str) -> None:
    """Makes the file of a line in a folder."""
    kind, name, *rest = line.split()
    KINDS[kind](where / name, *rest)


if __name__ == "__main__":
    for told in sys.argv[2:]:
        make(Path(sys.argv[1]), told)
