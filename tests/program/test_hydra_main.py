"""The folder and the name in `@hydra.main`, and what is unknown where the text does not say them."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.program.hydra_main import HydraMain, hydra_mains
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings

SETUP = "import pyrootutils\nroot = pyrootutils.setup_root(__file__, indicator=['.git'], pythonpath=True)\n"


def found(root: Path, before: str, arguments: str, *configs: str) -> HydraMain:
    files = {"src/train.py": f"import hydra\n{before}@hydra.main({arguments})\ndef main(cfg): ...\n"}
    for name, text in {**files, **dict.fromkeys(configs, "lr: 1\n")}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    [one] = hydra_mains("src/train.py", Project(root, Settings()))
    return one


@pytest.mark.parametrize(
    ("before", "path"),
    [
        ("", "choose()"),
        ("", "os.environ['CONF']"),
        ("", "f'{folder}/configs'"),
        ("root = 'a'\nroot = 'b'\n", "root"),
        (SETUP, "root / 'nowhere'"),
        (SETUP, "root / name"),
        (SETUP, "'configs' / root"),
        (SETUP, "f'{root}configs'"),
        ("", "None"),
    ],
)
def test_a_folder_that_the_text_does_not_state_is_unknown(before: str, path: str, tmp_path: Path) -> None:
    said = found(tmp_path, before, f"config_path={path}, config_name='train'", "configs/train.yaml")
    assert (said.folder, said.name) == (None, "train")


def test_two_folders_below_a_computed_root_are_no_answer(tmp_path: Path) -> None:
    arguments = "config_path=root / 'configs', config_name='train'"
    said = found(tmp_path, SETUP, arguments, "configs/train.yaml", "src/configs/train.yaml")
    assert said.folder is None


@pytest.mark.parametrize("name", ["", "config_name=NAME", "config_name=f'{x}'"])
def test_a_name_that_the_text_does_not_state_is_unknown(name: str, tmp_path: Path) -> None:
    said = found(tmp_path, "", f"config_path='../configs', {name}", "configs/train.yaml")
    assert (said.folder, said.name) == ("configs", None)


@pytest.mark.parametrize(
    ("before", "path"),
    [
        ("", "'../configs'"),
        ("CONF = '../configs'\n", "CONF"),
        (SETUP, "root / 'configs'"),
        (SETUP, "str(root / 'configs')"),
        (SETUP, "(root / 'configs').as_posix()"),
        (SETUP, "f'{root}/configs'"),
        (SETUP, "os.path.join(root, 'configs')"),
        (SETUP, "root.joinpath('configs')"),
        ("", "str(Path(__file__).resolve().parent.parent / 'configs')"),
        ("", "Path(__file__).parents[1] / 'configs'"),
        ("", "os.path.join(os.path.dirname(os.path.abspath(__file__)), 'configs')"),
        ("", "os.getcwd() + '/configs'"),
    ],
)
def test_idioms_of_a_folder(before: str, path: str, tmp_path: Path) -> None:
    said = found(tmp_path, before, f"config_path={path}, config_name='train.yaml'", "configs/train.yaml")
    assert (said.folder, said.name) == ("configs", "train")


def test_without_a_path_it_is_the_programs_folder(tmp_path: Path) -> None:
    assert found(tmp_path, "", "config_name='train'", "src/train.yaml").folder == "src"
