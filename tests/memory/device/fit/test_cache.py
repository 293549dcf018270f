"""Laws that were traced before are read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.memory.device.fit import cache
from preflight.memory.device.fit.subprocess import Installed
from preflight.memory.device.law import store
from preflight.memory.device.law.made import MadeLaw

KEY = store.LawKey("vit", "asked")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "directory", lambda: tmp_path)
    return tmp_path


def shipped() -> MadeLaw:
    made = store.load(store.LawKey("vit", store.keys("vit")[0]))
    assert made is not None
    return made


def test_a_law_comes_back_as_it_was(home: Path) -> None:
    cache.write("this model", KEY, None, shipped(), {"torch": "2"})
    assert cache.read("this model", KEY, None) == (shipped(), {"torch": "2"})
    assert cache.read("another model", KEY, None) is None
    assert [path.suffix for path in home.iterdir()] == [".gz"]


def test_other_versions_are_another_law(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("this model", KEY, None, shipped(), {})
    monkeypatch.setattr(cache, "installed", lambda _: Installed(True, "another torch"))
    assert cache.read("this model", KEY, None) is None


def test_another_tracer_makes_another_law(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("this model", KEY, None, shipped(), {})
    monkeypatch.setattr(cache, "_code", lambda: "changed")
    assert cache.read("this model", KEY, None) is None


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b no gzip", b"\x1f\x8b\x08" + 20 * b"\0\xff", b"{}"])
def test_what_cannot_be_read_is_not_there(home: Path, content: bytes) -> None:
    cache.write("this model", KEY, None, shipped(), {})
    for path in home.iterdir():
        path.write_bytes(content)
    assert cache.read("this model", KEY, None) is None


def test_what_cannot_be_written_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cache, "directory", lambda: tmp_path / "file")
    cache.write("this model", KEY, None, shipped(), {})
    assert cache.read("this model", KEY, None) is None


def test_an_interpreter_that_is_not_there_keeps_nothing(home: Path) -> None:
    cache.write("this model", KEY, "/no/python", shipped(), {})
    assert not list(home.iterdir())


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFLIGHT_NO_CACHE", "0")
    assert cache.directory() is not None
    monkeypatch.setenv("PREFLIGHT_NO_CACHE", "1")
    assert cache.directory() is None
