"""The data sets that the harness reads, as programs write them. Imports of a kind are in its own class."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset


class Generated(Dataset):
    """Tensors made on the spot, without temporaries."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        self.samples, self.shape = config["samples"], config["shape"]

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        return torch.full(self.shape, float(index)), index % 10


class Numpy(Generated):
    """numpy arrays made on the spot: the collation makes tensors of them."""

    def __getitem__(self, index: int) -> Any:
        import numpy

        return numpy.full(self.shape, index, dtype=numpy.float32), index % 10


class Decoded(Generated):
    """numpy pixels -> float32 / 255, as programs do it by hand: the sample and temporaries of its size."""

    def __getitem__(self, index: int) -> Any:
        import numpy

        pixels = numpy.full((*self.shape[1:], 3), index % 256, dtype=numpy.uint8)
        scaled = pixels.astype(numpy.float32) / 255.0
        return torch.from_numpy(scaled.transpose(2, 0, 1).copy()), index % 10


class Doubled(Generated):
    """The same through float64, as `pixels / 255.0` makes it."""

    def __getitem__(self, index: int) -> Any:
        import numpy

        pixels = numpy.full((*self.shape[1:], 3), index % 256, dtype=numpy.uint8)
        return torch.from_numpy((pixels / 255.0).transpose(2, 0, 1).astype(numpy.float32)), index % 10


class Array(Generated):
    """One numpy array in memory whose rows are handed out as views."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        import numpy

        super().__init__(config, folder)
        self.data = numpy.ones((config["items"], *self.shape), dtype=numpy.float32)

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(self.data[index % len(self.data)]), index % 10


class Copies(Array):
    """The same array; every sample is a tensor of its own."""

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(self.data[index % len(self.data)]), index % 10


class Tensors(Generated):
    """A list of tensors in memory."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        super().__init__(config, folder)
        self.data = [torch.full(self.shape, float(index)) for index in range(config["items"])]

    def __getitem__(self, index: int) -> Any:
        return self.data[index % len(self.data)], index % 10


class Dicts(Dataset):
    """A list of dicts as json.load makes it: a sample is numbers of one of them."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        self.items = [
            {"id": index, "x": index * 0.5, "y": index * 0.25, "label": index % 10} for index in range(config["items"])
        ]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        item = self.items[index]
        return torch.tensor([item["x"], item["y"], item["id"], item["label"]], dtype=torch.float32)


class Strings(Dataset):
    """A list of strings: file names or texts."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        length = config.get("length", 60)
        self.items = [f"{index:0{length}d}" for index in range(config["items"])]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([len(self.items[index]), index], dtype=torch.float32)


class Lists(Dataset):
    """A list of lists of numbers: token ids of different texts, as a tokeniser returns them."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        length = config["length"]
        self.items = [[1000 + (index + place) % 30000 for place in range(length)] for index in range(config["items"])]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(self.items[index])


class Records(Dataset):
    """A list of dicts with a text each, as a JSON-lines file of instructions is read."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        length = config.get("length", 400)
        self.items = [
            {"prompt": f"{index:0{length}d}", "answer": f"{index:0{length // 4}d}", "id": index}
            for index in range(config["items"])
        ]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        item = self.items[index]
        return torch.tensor([len(item["prompt"]), len(item["answer"]), item["id"]])


class Arrow(Dataset):
    """A data set of the `datasets` package, loaded from disk: memory-mapped pages."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        import datasets

        self.data = datasets.load_from_disk(str(folder / "arrow"))
        if config.get("as_tensors", True):
            self.data = self.data.with_format("torch")

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return self.data[index]


class ArrowInMemory(Arrow):
    """The same with keep_in_memory."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        import datasets

        self.data = datasets.load_from_disk(str(folder / "arrow"), keep_in_memory=True).with_format("torch")


class Jpeg(Dataset):
    """Photographs decoded with Pillow, cropped, flipped, normalised: what ImageNet training does."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        self.files = sorted((folder / "jpeg").glob(f"{config['photo'][0]}x{config['photo'][1]}-*.jpg"))
        self.samples, self.side = config["samples"], config["shape"][-1]
        self.mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        import numpy
        from PIL import Image

        with Image.open(self.files[index % len(self.files)]) as opened:
            image = opened.convert("RGB")
        part = random.uniform(0.3, 1.0)
        width, height = int(image.width * part), int(image.height * part)
        left, top = random.randint(0, image.width - width), random.randint(0, image.height - height)
        image = image.crop((left, top, left + width, top + height)).resize((self.side, self.side))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1).contiguous()
        return (pixels.float().div(255) - self.mean) / self.std, index % 1000


class Tokenised(Dataset):
    """Texts in memory, tokenised when they are asked for and cut to a length."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.length = config["shape"][0]
        self.tokenizer.enable_truncation(self.length)
        self.tokenizer.enable_padding(length=self.length)
        generator = random.Random(1)
        words = [f"word{number}" for number in range(2000)]
        self.texts = [" ".join(generator.choices(words, k=self.length)) for _ in range(config["items"])]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Any:
        found = self.tokenizer.encode(self.texts[index])
        ids = torch.tensor(found.ids)
        return {"input_ids": ids, "attention_mask": torch.tensor(found.attention_mask), "labels": ids.clone()}


KINDS = {
    "generated": Generated, "numpy": Numpy, "decoded": Decoded, "doubled": Doubled, "array": Array, "copies": Copies,
    "tensors": Tensors, "dicts": Dicts, "strings": Strings, "lists": Lists, "records": Records, "arrow": Arrow,
    "arrow-in-memory": ArrowInMemory, "jpeg": Jpeg, "tokenised": Tokenised,
}  # fmt: skip


def make_files(folder: Path, config: dict[str, Any]) -> None:
    """What a point reads from disk, made by another process than the one that is measured."""
    kind = config["kind"]
    if kind == "jpeg":
        _photos(folder / "jpeg", *config["photo"])
    elif kind in ("arrow", "arrow-in-memory"):
        _arrow(folder, config)
    elif kind == "tokenised":
        _tokenizer(folder / "tokenizer.json")


def _photos(folder: Path, width: int, height: int, number: int = 24) -> None:
    import numpy
    from PIL import Image

    folder.mkdir(exist_ok=True)
    generator = numpy.random.default_rng(1)
    for index in range(number):
        coarse = Image.fromarray(generator.integers(0, 256, (height // 16, width // 16, 3), dtype=numpy.uint8))
        coarse.resize((width, height)).save(folder / f"{width}x{height}-{index:03}.jpg", quality=90)


def _arrow(folder: Path, config: dict[str, Any]) -> None:
    import datasets
    import numpy

    length, items = config["shape"][0], config["items"]

    def rows() -> Any:
        for index in range(items):
            ids = numpy.full(length, index % 30000, dtype=numpy.int64)
            yield {"input_ids": ids, "attention_mask": numpy.ones(length, numpy.int64), "labels": ids}

    os.environ["HF_HOME"] = str(folder / "cache")
    one = datasets.Sequence(datasets.Value("int64"))
    features = datasets.Features(dict.fromkeys(("input_ids", "attention_mask", "labels"), one))
    made = datasets.Dataset.from_generator(rows, features=features, cache_dir=str(folder / "cache"))
    made.save_to_disk(str(folder / "arrow"))


def _tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[PAD]": 0, "[UNK]": 1, **{f"word{number}": number + 2 for number in range(2000)}}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(path))
