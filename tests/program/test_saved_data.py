"""Archives of arrays beside a program (.npz, .pt), Lightning's loop, and samplers: what loaders hand out and keep."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from programs_as_text import read_program, values

from preflight.vocabulary.values import Unknown

HEAD = """
import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset
"""


def told(text: str, tmp_path: Path) -> dict[str, object]:
    return dict(values(read_program(HEAD + text, tmp_path)))


def test_only_the_arrays_of_an_npz_file_that_are_asked_for_are_kept(tmp_path: Path) -> None:
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", images=np.zeros((50, 3, 8), "f4"), more=np.zeros((900, 900)))
        text = "x = np.load('x.npz')\nloader = DataLoader(TensorDataset(torch.from_numpy(x['images'])), batch_size=8)\n"
        found = told(text, tmp_path)
        assert (found["data.sample_bytes"], found["data.samples"]) == (96, 50)
        assert found["data.in_memory_bytes"] == 50 * 96


SAVED = {"images": torch.zeros(30, 1, 4, 4), "labels": torch.zeros(30, dtype=torch.int64), "names": ["a", "b"]}


@pytest.mark.parametrize("what", [SAVED, [SAVED["images"], SAVED["labels"]]])
def test_all_tensors_of_a_pt_file_are_kept(what: object, tmp_path: Path) -> None:
    torch.save(what, tmp_path / "x.pt")
    keys = ("'images'", "'labels'") if isinstance(what, dict) else ("0", "1")
    text = f"x = torch.load('x.pt')\nloader = DataLoader(TensorDataset(x[{keys[0]}], x[{keys[1]}]), batch_size=8)\n"
    found = told(text, tmp_path)
    assert (found["data.sample_bytes"], found["data.in_memory_bytes"]) == (64 + 8, 30 * (64 + 8))


def _hostile(kind: str) -> bytes:
    """A .pt file whose pickle would run something, is cut off, says it is larger than it is, or takes too long."""
    body = {"call": pickle.dumps(print, 2), "cut": b"\x80\x02}q\x00(", "empty": b"", "marks": b"\x80\x02t.",
            "huge": b"\x80\x02X\xff\xff\xff\x7fabc.", "itself": b"\x80\x02]q\x00h\x00a.",
            "nested": b"\x80\x02" + b"(" * 400_000 + b"t" * 400_000 + b".",
            "doubled": b"\x80\x02]q\x00" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(100)) + b".",
            }[kind]  # fmt: skip
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w") as archive:
        archive.writestr("x/data.pkl", body)
    return kept.getvalue()


@pytest.mark.parametrize("kind", ["call", "cut", "empty", "marks", "huge", "itself", "nested", "doubled"])
def test_other_pickles_stay_unread(kind: str, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(_hostile(kind))
    found = told("loader = DataLoader(TensorDataset(torch.load('x.pt')['a']), batch_size=8)\n", tmp_path)
    assert not {"data.sample_bytes", "data.samples"} & set(found)


def test_what_is_no_archive_stays_unread(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 and no more")
    found = told("x = np.load('x.npz')\nloader = DataLoader(TensorDataset(x['a']), batch_size=8)\n", tmp_path)
    assert "data.sample_bytes" not in found


@pytest.mark.parametrize(
    ("sampler", "batch"),
    [("BatchSampler(RandomSampler(x), 25, False)", 25), ("Buckets(x)", None)],
)
def test_the_batch_of_a_batch_sampler(sampler: str, batch: int | None, tmp_path: Path) -> None:
    own = "class Buckets:\n    def __init__(self, x): self.x = x\n"
    text = f"{own}x = torch.zeros(100, 8)\nloader = DataLoader(TensorDataset(x), batch_sampler={sampler})\n"
    found = told(text, tmp_path)["train.batch_size"]
    assert found == batch or (batch is None and isinstance(found, Unknown))


LIGHTNING = """
import lightning as L


class Data(L.LightningDataModule):
    def setup(self, stage=None):
        self.train = TensorDataset(torch.zeros(100, 64))

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=10)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(64, 16)

    def training_step(self, batch, index):
        (x,) = batch
        return (self.net(x) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


L.Trainer(accelerator="{where}").fit(Net(), {data})
"""


@pytest.mark.parametrize("data", ["datamodule=Data()", "Data()", "DataLoader(TensorDataset(torch.zeros(100, 64)), 10)"])
def test_a_step_of_lightning_is_interpreted(data: str, tmp_path: Path) -> None:
    found = told(LIGHTNING.format(where="cpu", data=data), tmp_path)
    assert (found["train.batch_size"], found["data.sample_bytes"]) == (10, 256)
    assert found["model.activation_bytes"] in range(64, 1024)


def test_a_step_on_a_gpu_is_not(tmp_path: Path) -> None:
    assert "model.activation_bytes" not in told(LIGHTNING.format(where="gpu", data="Data()"), tmp_path)


@pytest.mark.parametrize(("given", "size"), [("torch.rand(3).sum().item()", 4), ("torch.randint(0, 5, ()).item()", 8)])
def test_a_number_of_an_array_has_its_kind(given: str, size: int, tmp_path: Path) -> None:
    text = f"""
class Data(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return torch.tensor({given})


loader = DataLoader(Data(), batch_size=2)
"""
    assert told(text, tmp_path)["data.sample_bytes"] == size
