"""Files of data beside a program: HDF5, lines of text and JSON, folders of arrays and pictures."""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b85decode
from pathlib import Path

import numpy as np
import pytest
from programs_as_text import read_program, values

from preflight.python.texts import table_bytes
from preflight.vocabulary.values import Unknown

HEAD = """
import glob, h5py, json, os, random
import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset
"""
SET = """
class Data(Dataset):
    def __init__(self):
        {init}

    def __len__(self):
        return 40

    def __getitem__(self, i):
        {body}

loader = DataLoader(Data(), batch_size=8)
"""
# h5py 3.16, in the oldest and the newest layout: images (6, 3, 4) uint8, mask (6,) bool, more/labels (6,) int64.
OLD = b85decode(
    "c-rgqaB<`1lHy_j0S*oZ76t(ZWbhvf<aki|F!=;1%?PDCp!5nRm^dR?P68?}2sIyFT}Y6tD@gT!Gyt=wf(1gOx^5JV6yV|N7yzOppnL@=eS!"
    "&9U1n}#dTKEPLvDUiDu|z(Se%WVJ}pSJmyv-LqL&fIhnT>~3=v?1s$+)I&}52JoEeyc8KLPIVgd)4WChY7J`)oYBSaLEW0)BYpjti9Tvjlo<"
    "1^UL--Qtv8XU0rWX7)^R(^1B<5veO9}cjhmP;?7d=8G`l`n9Wuju|IRK6bIWI#%dqhO?$udsZiftDb05|dJMiV^wBgW~jyUcN$7G9x2u`O1b"
    "~esaLlssn-Ya{@GF8=%=dVUXu*2w=idkFcVYqm1x;+c27e>68vNAmuI-13W##>T@?opI}#TnH%Z~i%i_<Q-TN8WO$2r5QGW<)rV8d"
)
NEW = b85decode(
    "c-rgqaB<`1lHy|K;9!7(|4?v)1;RIgis#-vd(q#+C5VZkf=LKjAq;RaF)%VPun95%DYneq#PrnS%}~8;{2)P=-29?cb|zGz#NzB@%ur>r4ER"
    "C%=NolkConQFGMX?jFflVSvO(owX0X7l#39bi!@wxO0J0kdI2c%gu4d-q0Q!iTaX&<m!2@RD42D4q>g`u=rIuO5M{7=EQff|d7c>qToT*~H%"
    "Bn>M@MskQMk^yCTG^1JjRO>6AmD%!ZPS=hQ!2v_h9L_q#a%04Y-nm^V8W4<S&^d;U)U)!Fh(#z%malXEa|&B`UJZ&gan1U0>zL6^b!lI0St?"
    "WMA%)+z1R(50RTT`Q>*"
)


def told(text: str, tmp_path: Path) -> dict[str, object]:
    return dict(values(read_program(HEAD + text, tmp_path)))


@pytest.mark.parametrize("layout", [OLD, NEW])
@pytest.mark.parametrize(
    ("init", "body", "size", "kept"),
    [
        ("self.f = h5py.File('x.h5')", "return self.f['images'][i], int(self.f['more/labels'][i])", 12 + 8, None),
        ("self.f = h5py.File('x.h5')", "return torch.from_numpy(self.f['more']['labels'][i : i + 3])", 24, None),
        ("self.x = h5py.File('x.h5')['images'][:]", "return self.x[i].astype(np.float32)", 48, 72),
        ("self.x = np.array(h5py.File('x.h5')['mask'])", "return self.x[i]", 1, 6),
    ],
)
def test_arrays_of_an_hdf5_file(
    layout: bytes, init: str, body: str, size: int, kept: int | None, tmp_path: Path
) -> None:
    (tmp_path / "x.h5").write_bytes(zlib.decompress(layout))
    found = told(SET.format(init=init, body=body), tmp_path)
    assert (found["data.sample_bytes"], found.get("data.in_memory_bytes")) == (size, kept)


@pytest.mark.parametrize("cut", [0, 8, 40, 100, 300, 700])
@pytest.mark.parametrize("layout", [OLD, NEW])
def test_an_hdf5_file_that_is_cut_off_or_spoilt_is_not_read(layout: bytes, cut: int, tmp_path: Path) -> None:
    data = zlib.decompress(layout)
    for spoilt in (data[:cut], data[:cut] + b"\xff" * (len(data) - cut)):
        (tmp_path / "x.h5").write_bytes(spoilt)
        found = told(SET.format(init="self.f = h5py.File('x.h5')", body="return self.f['images'][i]"), tmp_path)
        assert found.get("data.sample_bytes") in (None, 12)


@pytest.mark.parametrize(
    ("init", "kind", "each"),
    [
        ("self.rows = [json.loads(line) for line in open('x.txt')]", "objects", None),
        ("self.rows = open('x.txt').read().splitlines()", "strings", 8 + 112),
        ("self.rows = [line.strip() for line in open('x.txt')]", "strings", 8 + 112),
    ],
)
def test_lines_of_a_file_that_are_kept(init: str, kind: str, each: int | None, tmp_path: Path) -> None:
    line = json.dumps({"text": "a" * 30, "n": 5})
    (tmp_path / "x.txt").write_text((line + "\n") * 3000)
    found = told(SET.format(init=init, body="return torch.tensor(len(self.rows[i]))"), tmp_path)
    assert found["data.in_memory_kind"] == kind
    kept = found["data.in_memory_bytes"]
    assert isinstance(kept, int)
    assert each is None or kept == 3000 * each
    assert 3000 * 100 < kept < 3000 * 600


def test_a_cache_that_a_data_set_fills_is_not_known(tmp_path: Path) -> None:
    body = "self.cache[i] = np.load('x.npy')\n        return self.cache[i].sum()"
    np.save(tmp_path / "x.npy", np.zeros((4, 4)))
    found = told(SET.format(init="self.cache = {}", body=body), tmp_path)
    assert isinstance(found["data.in_memory_bytes"], Unknown)


@pytest.mark.parametrize("files", ["sorted(os.listdir('d'))", "glob.glob('d/*.npy')"])
def test_files_of_a_folder_that_are_alike(files: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for number in range(5):
        np.save(tmp_path / "d" / f"{number}.npy", np.zeros((3, 5), "f4"))
    path = "os.path.join('d', self.files[i])" if "listdir" in files else "self.files[i]"
    text = SET.format(init=f"self.files = {files}", body=f"return np.load({path})")
    assert told(text, tmp_path)["data.sample_bytes"] == 60
    np.save(tmp_path / "d" / "3.npy", np.zeros((3, 6), "f4"))
    assert told(text, tmp_path).get("data.sample_bytes") is None


PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBB", 13, b"IHDR", 20, 10, 8, 2)
JPEG = b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + bytes(14) + b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, 10, 20, 3)


@pytest.mark.parametrize("picture", [PNG, JPEG])
def test_sides_of_pictures_by_their_headers(picture: bytes, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name in "abc":
        (tmp_path / "d" / f"{name}.jpg").write_bytes(picture)
    init = "self.files = [os.path.join('d', one) for one in os.listdir('d')]"
    text = SET.format(init=init, body="return np.array(Image.open(self.files[i]))")
    assert told(text, tmp_path)["data.sample_bytes"] == 600
    (tmp_path / "d" / "b.jpg").write_bytes(picture[:12])
    assert told(text, tmp_path).get("data.sample_bytes") is None


def test_lists_of_numbers_drawn_by_numpy(tmp_path: Path) -> None:
    init = """rng, self.rows = np.random.default_rng(0), []
        for _ in range(1000):
            self.rows.append({"ids": rng.integers(0, 9000, 50).tolist(), "n": int(rng.integers(9))})"""
    found = told(SET.format(init=init, body="return torch.tensor(self.rows[i]['ids']), random.randint(0, 9)"), tmp_path)
    assert (found["data.sample_bytes"], found["data.in_memory_kind"]) == (50 * 8 + 8, "objects")
    assert found["data.in_memory_bytes"] == 1000 * (8 + 80 + table_bytes(2, texts=True) + 32 + 56 + 50 * 40)


def test_a_cut_of_a_sound_has_its_length(tmp_path: Path) -> None:
    body = """x = torch.from_numpy(np.frombuffer(open('x').read(), np.int16).astype(np.float32))
        if x.numel() < 16000:
            x = torch.nn.functional.pad(x, (0, 16000 - x.numel()))
        return torch.stft(x[:16000], 400, 160, return_complex=True).abs()"""
    assert told(SET.format(init="pass", body=body), tmp_path)["data.sample_bytes"] == 201 * 101 * 4


@pytest.mark.parametrize(
    ("files", "size"),
    [("os.listdir('d')", 7), ("[f for f in os.listdir('d') if f > '3']", None), ("glob.glob('d/*.npy')", 5)],
)
def test_how_many_names_a_folder_has(files: str, size: int | None, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for number in range(7):
        (tmp_path / "d" / f"{number}.{'npy' if number < 5 else 'txt'}").touch()
    found = told(
        SET.format(init=f"self.n = len({files})", body="return torch.zeros(3)").replace("40", "self.n"), tmp_path
    )
    assert found.get("data.samples") == size or (size is None and isinstance(found.get("data.samples"), Unknown))


SHARED = {
    "n % 90": 0, "n % 257": 0, "n % 258": 32, "n * 1.5 % 2": 32, "n": 32, "n > 3": 0, "int(n > 3)": 0,
    "random.randint(0, 9)": 0, "random.randrange(256)": 0, "random.randrange(1000)": 32, "random.getrandbits(8)": 0,
    "random.getrandbits(9)": 32, "random.randint(-9, 9)": 32, "int(random.randint(0, 9))": 0, "len(self.files) % 7": 0,
}  # fmt: skip


@pytest.mark.parametrize("value", SHARED)
def test_numbers_of_which_python_has_one_object(value: str, tmp_path: Path) -> None:
    init = f"self.files = open('x').readlines()\n        self.rows = [{{'n': {value}}} for n in range(1000)]"
    found = told(SET.format(init=init, body="return torch.tensor(self.rows[i]['n'])"), tmp_path)
    assert found["data.in_memory_bytes"] == 1000 * (8 + 80 + table_bytes(1, texts=True) + SHARED[value])
