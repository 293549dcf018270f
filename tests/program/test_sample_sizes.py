"""Bytes of a sample, their number, and arrays in memory, from the text of a program: what is not told, and what is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from programs_as_text import read_program, values

from preflight.python.headers import npy_header
from preflight.python.texts import table_bytes
from preflight.vocabulary.values import Unknown

PROGRAM = """
import argparse, random
import cv2
import numpy as np
import torch
import albumentations as A
from albumentations.pytorch import ToTensorV2
from PIL import Image
from timm.data import create_transform
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, TensorDataset
from torch.utils.data import get_worker_info, random_split
from torchvision import datasets, transforms as T
parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=64)
args = parser.parse_args()
"""
ITEM = """
class Data(Dataset):
    def __init__(self, n=500, size=32):
        self.n, self.size, self.paths, self.table = n, size, open("list").readlines(), np.zeros((500, 3, 8, 8), "f4")

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        {body}


loader = DataLoader(Data(), batch_size=8{more})
"""


def told(body: str, tmp_path: Path, more: str = "", given: dict[str, int] | None = None) -> dict[str, object]:
    return dict(values(read_program(PROGRAM + ITEM.format(body=body, more=more), tmp_path), given))


@pytest.mark.parametrize(
    "body",
    [
        "return load(self.paths[i])",
        "return torch.randn(3, other(), 5)",
        "return T.ToTensor()(Image.open(self.paths[i]))",
        "return T.Compose([T.Resize(224), T.ToTensor()])(Image.open(self.paths[i]))",
        "return T.Compose([T.CenterCrop(224), mine(), T.ToTensor()])(Image.open(self.paths[i]))",
        "return A.Compose([A.LongestMaxSize(512), ToTensorV2()])(image=cv2.imread(self.paths[i]))['image']",
        "return torch.load(self.paths[i])",
        "return torch.tensor(self.paths[i][0])",
        "return torch.ones(4), {'cat': 0, 'dog': 'x'}[self.paths[i].split('/')[0]]",
        "return torch.ones(4), 1 if 'cat' in self.paths[i] else mine(i)",
        "return torch.randn(3, 8, 8) if random.random() < 0.5 else torch.randn(3, 16, 16)",
        "return torch.randint(0, 9, (random.randint(1, 90),))",
        "return np.load(self.paths[i])",
        "return T.Compose([T.CenterCrop(24), T.ToTensor()])(Image.open(self.paths[i]))",
        "return T.RandomApply([T.CenterCrop(8)])(torch.rand(3, 9, 9))",
        "return T.RandomChoice([T.CenterCrop(8), T.CenterCrop(6)])(torch.rand(3, 9, 9))",
        "return A.OneOf([A.RandomCrop(8, 8)])(image=np.zeros((9, 9, 3), 'u1'))['image']",
        "return A.Compose([A.RandomCrop(8, 8, p=0.5)])(image=np.zeros((9, 9, 3), 'u1'))['image']",
        "return A.PadIfNeeded(64, 64)(image=cv2.imread(self.paths[i]))['image']",
        "return T.RandomRotation(30, expand=True)(torch.rand(3, 9, 9))",
        "return np.asarray(Image.new('RGB', (9, 9)).rotate(30, expand=True))",
        "image = Image.new('RGB', (9, 9)); image.thumbnail((4, 4)); return np.asarray(image)",
        "return torch.arange(9) * scale()",
        "return np.arange(9).clip(low(), 3)",
        "return torch.rand(9).sort()",
    ],
)
def test_sizes_that_are_not_told(body: str, tmp_path: Path) -> None:
    assert "data.sample_bytes" not in told(body, tmp_path)


def test_a_collator_of_a_library_may_pad(tmp_path: Path) -> None:
    assert "data.sample_bytes" not in told("return torch.ones(9)", tmp_path, ", collate_fn=collators.Padding()")


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("return torch.randn(3, 32, 32), i % 10", 3 * 32 * 32 * 4 + 8),
        ("return {'x': torch.rand(3, self.size, self.size), 'y': torch.zeros(self.size, dtype=torch.long)}",
         3 * 32 * 32 * 4 + 32 * 8),
        ("return torch.from_numpy(np.random.rand(6, 16)).float()", 6 * 16 * 4),
        ("return torch.tensor(np.random.rand(6, 16))", 6 * 16 * 8),
        ("return torch.stack([torch.rand(3, 8, 8) for _ in range(5)])", 5 * 3 * 8 * 8 * 4),
        ("return torch.from_numpy(self.table[i]), 'name'", 3 * 8 * 8 * 4),
        ("return torch.ones(16, 4).view(-1, 8)[:, 2:4]", 8 * 2 * 4),
        ("return T.Compose([T.RandomResizedCrop(64), T.ToTensor()])(Image.open(self.paths[i]).convert('RGB'))",
         3 * 64 * 64 * 4),
        ("return T.Compose([T.Resize(96), T.CenterCrop(64), T.ToTensor(), T.Normalize((0, 0, 0), (1, 1, 1))])"
         "(Image.open(self.paths[i]))", 3 * 64 * 64 * 4),
        ("return T.RandomApply([T.ColorJitter(), T.CenterCrop(8)])(torch.rand(3, 8, 8))", 3 * 8 * 8 * 4),
        ("return T.RandomChoice([T.CenterCrop(8), T.RandomResizedCrop(8)])(torch.rand(3, 9, 9))", 3 * 8 * 8 * 4),
        ("return A.Compose([A.LongestMaxSize(64), A.PadIfNeeded(64, 64)])(image=cv2.imread(self.paths[i]))['image']",
         3 * 64 * 64),
        ("return A.PadIfNeeded(16, 8)(image=np.zeros((9, 9, 3), 'u1'))['image']", 16 * 9 * 3),
        ("return torch.randint(0, 9, (4,)).sqrt(), torch.randint(0, 9, (4,)) * 2, torch.arange(4) * 0.5", 16 + 32 + 16),
        ("return np.sqrt(np.zeros(4, 'u1')), np.zeros(4, 'u1') + np.zeros(4, 'i2'), np.zeros(4, 'u1').cumsum()",
         8 + 8 + 32),
        ("return torch.arange(4) + torch.rand(4), np.arange(4) * np.zeros(4, 'f4')", 16 + 32),
        ("return create_transform(48)(Image.open(self.paths[i]))", 3 * 48 * 48 * 4),
        ("return A.Compose([A.RandomCrop(24, 32), A.Normalize(), ToTensorV2()])"
         "(image=cv2.imread(self.paths[i]))['image']", 3 * 24 * 32 * 4),
        ("return torch.from_numpy(cv2.resize(cv2.imread(self.paths[i]), (20, 10)).transpose(2, 0, 1))", 3 * 10 * 20),
        ("return np.asarray(Image.open(self.paths[i]).convert('L').resize((20, 10)), dtype=np.float32)", 10 * 20 * 4),
        ("a = torch.arange(900)[i * 7 : (i + 1) * 7 + 1]\n        return a[:-1], a[1:]", 2 * 7 * 8),
        ("name = self.paths[i]\n        return torch.ones(4), int(name == 'c'), float(name[0]), len(name), 'c' in name",
         16 + 4 * 8),
        ("return torch.tensor(int(self.paths[i][0])), 1 if 'cat' in self.paths[i] else 0", 8 + 8),
        ("return torch.ones(4), {'cat': 0, 'dog': 1}[self.paths[i].split('/')[0]]", 16 + 8),
        ("return torch.tensor([len(self.paths[i]), i])", 16),
    ],
)  # fmt: skip
def test_sizes_that_are_told(body: str, size: int, tmp_path: Path) -> None:
    found = told(body, tmp_path)
    assert (found["data.sample_bytes"], found["data.samples"]) == (size, 500)


@pytest.mark.parametrize("given", [64, 96])
def test_a_size_follows_a_flag(given: int, tmp_path: Path) -> None:
    found = told("return torch.rand(3, args.size, args.size)", tmp_path, given={"size": given})
    assert found["data.sample_bytes"] == 3 * given * given * 4


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("TensorDataset(torch.rand(900, 3, 8, 8), torch.zeros(900).long())", (3 * 64 * 4 + 8, 900, 900 * (768 + 8))),
        ("random_split(TensorDataset(torch.rand(900, 64)), [800, 100])[0]", (256, 800, 900 * 256)),
        ("[(torch.rand(64), i) for i in range(4000)]", (64 * 4 + 8, 4000, 4000 * 256)),
        ("ConcatDataset([TensorDataset(torch.rand(9, 4)), TensorDataset(torch.rand(7, 4))])", (16, 16, 16 * 16)),
        ("ConcatDataset([TensorDataset(torch.rand(9, 4)), TensorDataset(torch.rand(7, 5))])", (None, 16, 284)),
        ("[torch.rand(4), torch.rand(5)]", (None, 2, 36)),
        ("datasets.FakeData(100, (3, 16, 16), transform=T.ToTensor())", (3 * 256 * 4 + 8, 100, None)),
        ("datasets.MNIST('d', transform=T.ToTensor())", (28 * 28 * 4 + 8, 60_000, 60_000 * 784)),
    ],
)
def test_data_sets_of_libraries(made: str, expected: tuple[int, int, int | None], tmp_path: Path) -> None:
    found = values(read_program(f"{PROGRAM}loader = DataLoader({made}, batch_size=8, shuffle=True)\n", tmp_path))
    fields = ("data.sample_bytes", "data.samples", "data.in_memory_bytes")
    assert tuple(found.get(name) for name in fields) == expected


def test_a_data_set_that_is_iterated(tmp_path: Path) -> None:
    body = """
class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        for i in range(worker.id, 900, worker.num_workers):
            yield torch.rand(3, 9), i


loader = DataLoader(Stream(), batch_size=8)
"""
    assert values(read_program(PROGRAM + body, tmp_path))["data.sample_bytes"] == 3 * 9 * 4 + 8


@pytest.mark.parametrize(("mode", "held"), [("", 200 * 3 * 8 * 4), (", mmap_mode='r'", None)])
def test_a_file_of_an_array_is_read_by_its_header(mode: str, held: int | None, tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    np.save(tmp_path / "x.npy", np.zeros((200, 3, 8), "f4"))
    body = f"x = np.load('x.npy'{mode})\nloader = DataLoader(TensorDataset(torch.from_numpy(x)), batch_size=8)\n"
    found = values(read_program(PROGRAM + body, tmp_path))
    assert (found["data.sample_bytes"], found["data.samples"]) == (96, 200)
    assert found.get("data.in_memory_bytes") == held


@pytest.mark.parametrize(
    ("kept", "indexed"),
    [
        ("json.load(open('rows.json'))", "self.rows[i]"),
        ("pandas.read_csv('rows.csv')", "self.rows.iloc[i]"),
        ("[json.loads(line) for line in open('rows.jsonl')]", "self.rows[i]"),
        ("[encode(line) for line in range(900)]", "self.rows[i]"),
        ("mine.rows()", "self.rows[i]"),
        ("np.load('missing.npy')", "self.rows[i]"),
    ],
)
def test_what_a_data_set_keeps_and_nobody_knows_is_not_nothing(kept: str, indexed: str, tmp_path: Path) -> None:
    """The array beside it does not make the sum known."""
    item = ITEM.format(body=f"return encode({indexed}), self.table[i]", more="")
    body = PROGRAM + "import json, pandas, mine\n" + item
    body = body.replace("self.paths,", "self.rows, self.paths, ").replace("size, open", f"size, {kept}, open")
    assert isinstance(values(read_program(body, tmp_path))["data.in_memory_bytes"], Unknown)


@pytest.mark.parametrize(
    "kept",
    ["sorted(glob.glob('*.png'))", "os.listdir('x')", "np.load('no.npy', mmap_mode='r')", "h5py.File('x')['rows']"],
)
def test_names_and_mapped_files_take_next_to_nothing(kept: str, tmp_path: Path) -> None:
    body = PROGRAM + "import glob, os, h5py\n" + ITEM.format(body="return read(self.rows[i]), self.table[i]", more="")
    body = body.replace("\n        self.n", f"\n        self.rows = {kept}\n        self.n")
    assert values(read_program(body, tmp_path))["data.in_memory_bytes"] == 500 * 3 * 8 * 8 * 4


NAMES = "found = sorted(glob.glob('*.png'))\ncut = int(0.8 * len(found))\n"
READS = ITEM.format(body="return T.Resize((8, 8))(T.ToTensor()(Image.open(self.rows[i])))", more="")
READS = READS.replace("size=32):", "size=32, rows=()):\n        self.rows = rows")


@pytest.mark.parametrize(
    ("given", "small"),
    [
        ("found", True), ("list(glob.iglob('*.png'))", True), ("found[:90]", True), ("found[cut:]", True),
        ("[name for name in found if 'a' in name]", True), ("[Image.open(name) for name in found]", False),
        ("[torch.load(name) for name in found]", False), ("[name.read() for name in found]", False),
        ("sorted(open('rows').readlines())", False),
    ],
)  # fmt: skip
def test_names_that_are_found_elsewhere_are_names_still(given: str, small: bool, tmp_path: Path) -> None:
    body = PROGRAM + "import glob\n" + NAMES + READS.replace("Data()", f"Data(rows={given})")
    found = dict(values(read_program(body, tmp_path)))
    assert isinstance(found["data.in_memory_bytes"], Unknown) != small


@pytest.mark.parametrize(
    ("given", "small"),
    [
        ("[json.loads(line) for line in open('rows.jsonl')]", False), ("json.load(open('rows.json'))", False),
        ("pandas.read_csv('rows.csv')", False), ("sorted(os.listdir('x'))", True), ("{'cat': 0, 'dog': 1}", True),
    ],
)  # fmt: skip
def test_what_a_data_set_reads_of_its_module_counts(given: str, small: bool, tmp_path: Path) -> None:
    reads = ITEM.format(body="return len(rows[i]), torch.zeros(4)", more="").replace(
        ", np.zeros((500, 3, 8, 8), 'f4')", ""
    )
    body = f"{PROGRAM}import json, os, pandas\nrows = {given}\n{reads}"
    found = dict(values(read_program(body, tmp_path)))
    assert isinstance(found["data.in_memory_bytes"], Unknown) != small


@pytest.mark.parametrize("keys", [1, 5, 6, 10, 42, 43, 85, 86, 170, 171, 1000, 9999, 10_001, 100_000])
def test_the_table_of_a_dict(keys: int) -> None:
    """As large as CPython makes it: from 3.11 on entries of texts are smaller."""
    made = dict.fromkeys(map(str, range(keys)))
    if sys.version_info[:2] >= (3, 11):
        assert 0 <= table_bytes(keys, texts=True) - (sys.getsizeof(made) - sys.getsizeof({})) < 16
    numbers = dict.fromkeys(range(keys))
    assert 0 <= table_bytes(keys, texts=False) - (sys.getsizeof(numbers) - sys.getsizeof({})) < 32


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", None),
        (b"\x93NUMPY\x01\x00\xff", None),
        (b"\x93NUMPY\x01\x00\x05\x00hello", None),
        (b"\x93NUMPY\x01\x00" + bytes([len(HEADER), 0]) + HEADER.replace("2, 3", "-2, 3").encode(), None),
        (b"\x93NUMPY\x01\x00" + bytes([len(HEADER), 0]) + HEADER.replace("'<f4'", "[('a', 'f4')]").encode(), None),
        (b"\x93NUMPY\x01\x00" + bytes([len(HEADER), 0]) + HEADER.encode(), ((2, 3), "float32")),
    ],
)
def test_headers(data: bytes, found: object) -> None:
    assert npy_header(data) == found


LOOP = """
for batch in DataLoader([torch.ones(3)], batch_size=1):
    batch.mean().backward()
"""


@pytest.mark.parametrize(
    ("lines", "device"),
    [
        ("device = 'cuda' if torch.cuda.is_available() else 'cpu'\nmodel = torch.nn.Linear(3, 3).to(device)", None),
        ("from mine import to_device\nmodel = to_device(torch.nn.Linear(3, 3))", None),
        ("from accelerate import Accelerator\nmodel = Accelerator().prepare(torch.nn.Linear(3, 3))", None),
        ("model = torch.nn.Linear(3, 3).to(unknown())", None),
        ("device = torch.device('cpu')\nmodel = torch.nn.Linear(3, 3).to(device)", "cpu"),
        ("model = torch.nn.Linear(3, 3)", "cpu"),
        ("  # device = torch.device('cuda')\ndevice = torch.device('cpu')\nmodel.to(device)", "cpu"),
        ("spare = 'cuda'  # not used\nmodel.to(torch.device('cpu'))", None),
        ("from transformers import AutoModel\nmodel = AutoModel.from_pretrained('x', device_map='auto')", None),
    ],
)
def test_the_device(lines: str, device: str | None, tmp_path: Path) -> None:
    reading = read_program(f"import torch\nfrom torch.utils.data import DataLoader\n{lines}\n{LOOP}", tmp_path)
    assert values(reading).get("machine.accelerator") == device


@pytest.mark.parametrize(
    "body",
    [
        "return torch.ones(3).permute(4, 5), torch.ones(2, 3).transpose(7, 9)",
        "return torch.cat([torch.ones(3, 4), torch.ones(3)], 1)",
        "return T.Compose([T.Resize(8)])(torch.ones(3))",
        "return torch.ones(3)[0, 0, 0, ..., None]",
        "a = []\n        for k in range(20):\n            a.append(a)\n        return a",
        "return T.Compose(T.Compose)(self), np.load(None), cv2.resize(1), Image.new(1, 2)",
        "return self[i]",
    ],
)
def test_programs_that_would_fail_are_read_in_the_end(body: str, tmp_path: Path) -> None:
    assert "data.sample_bytes" not in told(body, tmp_path)


OWN_BATCHES = """
import torch
from torch.utils.data import DataLoader, Dataset
class Batches(Dataset):
    def __init__(self, rows, {name}=4):
        self.rows, self.each = rows, {name}
    def __getitem__(self, at):
        return self.rows[at]
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters())
for x in DataLoader(Batches(rows, {name}=32), batch_size={size}):
    model(x).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("name", "size", "known"),
    [("batch_size", 1, False), ("batch_size", None, False), ("batch_size", 8, True), ("width", 1, True)],
)
def test_a_data_set_that_is_told_the_size_of_its_batches(name: str, size: int, known: bool, tmp_path: Path) -> None:
    found = values(read_program(OWN_BATCHES.format(name=name, size=size), tmp_path))
    assert (found["train.batch_size"] == size) if known else isinstance(found["train.batch_size"], Unknown)
