"""What stands for files that are not there says so, and what it may decide."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from preflight.dryrun.inside import endings
from preflight.dryrun.inside.stand_ins import folders, graphs, guesses, picture_sets, required, vision
from preflight.dryrun.inside.stand_ins.hub_models import HubModels
from preflight.dryrun.inside.stand_ins.weights import Unread, goes_to_gpu
from preflight.dryrun.inside.tape import MOST_ASSUMPTIONS, Tape


def settings(**given: Any) -> dict[str, Any]:
    return given


@pytest.mark.parametrize(
    "asked",
    [
        lambda kept: settings(**kept["config"]),
        lambda kept: settings(**{"width": 4, **kept["hyper_parameters"]}),
        lambda kept: {"width": 4} | kept["model_args"],
        lambda kept: dict(kept["args"]),
        lambda kept: [None] * kept["config"]["n_layer"],
        lambda kept: range(kept["model_args"].get("n_head")),
        lambda kept: int(kept["num_classes"]),
        lambda kept: float(kept["width"]) or 1,
        lambda kept: kept["n_words"] + 1,
        lambda kept: kept["arch"] == "large",
        lambda kept: kept["arch"] != "large",
        lambda kept: "cfg" in kept,
        lambda kept: "heads" in kept["config"],
        lambda kept: bool(kept["config"]["tied"]),
        lambda kept: list(kept["something"].items()),
    ],
)
def test_an_answer_that_may_decide_a_size_is_said(asked: Callable[[Any], Any]) -> None:
    tape = Tape()
    asked(Unread("best.pt", tape))
    assert {field for _, field in tape.assumptions} == {"model.config"}
    assert all(text.startswith("the checkpoint best.pt is not there: its ") for text, _ in tape.assumptions)


@pytest.mark.parametrize(
    "asked",
    [
        lambda kept: range(kept["epoch"] + 1, 3),
        lambda kept: max(float(kept["best_acc"]), 0.5),
        lambda kept: dict(kept["state_dict"].items()),
        lambda kept: sorted(kept.keys()),
        lambda kept: "model" in kept and "fc.weight" not in kept["model"],
        lambda kept: bool(kept and kept.get("optimizer")),
    ],
)
def test_counters_and_tensors_decide_no_size(asked: Callable[[Any], Any]) -> None:
    tape = Tape()
    asked(Unread("best.pt", tape))
    assert not tape.assumptions


def test_the_settings_may_be_the_whole_file() -> None:
    tape = Tape()
    settings(**Unread("out/model_args.pt", tape))
    assert tape.assumptions


def test_where_a_checkpoint_goes() -> None:
    assert all(map(goes_to_gpu, (None, "cuda", "cuda:1", 0, {"cuda:1": "cuda:0"})))
    assert not any(map(goes_to_gpu, ("cpu", {"cuda:0": "cpu"}, lambda storage, _: storage, "meta")))


def test_very_many_assumptions_leave_each_field() -> None:
    tape = Tape()
    for number in range(2 * MOST_ASSUMPTIONS):
        tape.assume(f"{number} is made up")
    tape.assume("one decides", "train.seq_len")
    tape.assume("another decides the same", "train.seq_len")
    assert (len(tape.assumptions), tape.assumptions[-1][1]) == (MOST_ASSUMPTIONS + 1, "train.seq_len")


class DataSet:
    def __init__(self, root: str, transform: Any = None, target_transform: Any = None) -> None: ...


def test_pictures_and_classes_of_a_folder_decide_sizes() -> None:
    pytest.importorskip("PIL")
    tapes = Tape(), Tape()
    module = SimpleNamespace(VisionDataset=DataSet, ImageFolder=type("ImageFolder", (DataSet,), {}))
    vision.folder(module, tapes[0])
    assert len(module.ImageFolder("no/folder").classes) == vision.CLASSES
    readers = SimpleNamespace(create_reader=lambda name, root: os.listdir(root))
    folders.Folders(tapes[1], guesses.Guesses({}, tapes[1])).timm(readers)
    assert len(readers.create_reader("", "no/folder").class_to_idx) == vision.CLASSES
    for tape in tapes:
        assert [field for _, field in tape.assumptions] == ["train.image_size", "model.config"]
        assert tape.data_made_up


KNOWN = {name: {"architecture": "gpt2", "config": {"n_layer": number}} for number, name in enumerate(
    ("gpt2", "gpt2-medium", "nobody/gpt2", "qwen1.5-1.8b", "bert-base-uncased/vae"))}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("someone/gpt2-poems", "gpt2"),
        ("someone/GPT2-medium_poems", "gpt2-medium"),
        ("./models/gpt2-medium/", "gpt2-medium"),
        ("trl-lib/qwen1.5-1.8b-sft", "qwen1.5-1.8b"),
        ("someone/gpt2-large", None),
        ("someone/gpt2-large-poems", None),
        ("someone/qwen1.5-1.8b-gptq", None),
        ("someone/gpt2-124M", None),
        ("someone/gpt2tiny", None),
        ("someone/poems-gpt2", None),
    ],
)
def test_a_model_that_is_named_after_a_known_one(name: str, origin: str | None) -> None:
    tape = Tape()
    found = HubModels(KNOWN, tape, lambda _: None, lambda *_: None).part(name, None)
    assert (found is None) == (origin is None)
    if found is not None and origin is not None:
        assert found["n_layer"] == KNOWN[origin]["config"]["n_layer"]
        text = f"the configuration of {name} is taken to be that of {origin}, by its name"
        assert tape.assumptions == [(text, "model.config")]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (OSError(2, "Unable to open file (unable to open file: name = 'data/x.h5', errno = 2, error message = "
                    "'No such file or directory')"), "data/x.h5"),
        (OSError("/data/x.lmdb: No such file or directory"), "/data/x.lmdb"),
        (FileNotFoundError("./data/cora.content not found."), "./data/cora.content"),
        (FileNotFoundError(2, "No such file or directory", "x.npz"), "x.npz"),
    ],
)  # fmt: skip
def test_a_missing_file_is_named_whatever_library_says_so(error: OSError, name: str) -> None:
    assert endings.words(error, None, "").startswith(f"the file {name} is not there, and cannot be made up: put it")


class VisionDataset:
    def __init__(self, root: str, transforms: Any = None, transform: Any = None, target_transform: Any = None) -> None:
        self.transforms = transforms or (transform and (lambda picture, target: (transform(picture), target)))


class SVHN(VisionDataset):
    def __init__(self, root: str, split: str = "train", transform: Any = None, download: bool = False) -> None:
        assert not download
        raise RuntimeError("not found")

    def __len__(self) -> int:
        return 0

    def __getitem__(self, number: int) -> Any:
        return None


def test_a_data_set_of_torchvision_has_the_size_of_the_real_one() -> None:
    pytest.importorskip("PIL")
    tape = Tape()
    picture_sets.hooks(tape)["torchvision.datasets.svhn"](SimpleNamespace(SVHN=SVHN))
    train, test = SVHN("data", download=True, transform=lambda one: one.size), SVHN("data", split="test")
    assert (len(train), len(test)) == (73257, 26032)
    assert train[12] == ((32, 32), 2)
    with pytest.raises(IndexError):
        test[26032]
    assert tape.assumptions == [("SVHN is made up, with the number of pictures and classes of the real one", "")]


def test_what_ends_the_program_is_required(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "if not os.path.exists(a):\n    raise SystemExit(1)\n"
        "if os.path.exists(b):\n    raise SystemExit(1)\n"
        "if not os.path.exists(c):\n    os.makedirs(c)\n"
        "assert os.path.isdir(d) and e\n"
        "if os.path.isfile(f):\n    go()\nelse:\n    sys.exit(2)\n"
    )
    assert sorted(required._required_at(str(program))) == [1, 7, 8]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError("No module named 'nothere'", name="nothere.sub"), "the package nothere is not installed"),
        (ModuleNotFoundError("No module named 'json.nothere'", name="json.nothere"), "the module json.nothere is not"),
        (ModuleNotFoundError("No module named 'flash_attn'", name="flash_attn"), "the program needs flash_attn, which"),
        (NotImplementedError("Could not run 'aten::strange' with arguments from the 'CUDA' backend. This could"),
         "the kernel aten::strange has no shapes that a dry run knows"),
        (NotImplementedError("a method of the program's"), "NotImplementedError: a method of the program's"),
    ],
)  # fmt: skip
def test_an_error_says_what_to_do(error: Exception, said: str) -> None:
    assert endings.words(error, None, "").startswith(said)


class InMemoryDataset:
    name, pre_transform = "Cora", None

    def _download(self) -> None:
        raise OSError("no network")

    def _process(self) -> None:
        raise OSError("nothing to process")

    def load(self, path: str) -> None:
        raise OSError(path)

    def collate(self, made: list[Any]) -> tuple[list[Any], None]:
        return made, None


class Planetoid(InMemoryDataset):
    data: Any = None


class Unheard(InMemoryDataset):
    """A set of which nothing is known."""


def test_a_known_graph_has_its_sizes_and_another_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.data", SimpleNamespace(Data=SimpleNamespace))  # type: ignore[arg-type]
    tape = Tape()
    graphs.Graphs(tape).install(SimpleNamespace(InMemoryDataset=InMemoryDataset))
    cora: Any = Planetoid()
    cora._download()
    cora._process()
    cora.load("data.pt")
    [graph] = cora.data
    assert graph.x.shape == (2708, 1433)
    assert graph.edge_index.shape == (2, 10556)
    assert int(graph.y.max()) == 6
    assert int(graph.train_mask.sum() + graph.val_mask.sum() + graph.test_mask.sum()) == 2708
    assert tape.assumptions == [("the graphs of Cora are made up, with the sizes of the real ones", "")]
    with pytest.raises(OSError, match="no network"):
        Unheard()._download()
