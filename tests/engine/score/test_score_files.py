"""`preflight batch`: what an interrupted run wrote is kept, and what is no row does not end it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from preflight.commands.batch import command
from preflight.engine.score import files, text_rows
from preflight.engine.score.files import score_file
from preflight.engine.score.scorer import Scorer
from preflight.vocabulary.errors import UsageError
from preflight.vocabulary.study import Skipped


def job(number: int) -> str:
    row = {"id": number, "model": "gpt2", "train": {"batch_size": 1 + number, "seq_len": 64}, "machine": {"gpu": "t4"}}
    return json.dumps(row)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(text_rows, "AT_ONCE", 4)
    path = tmp_path / "jobs.jsonl"
    path.write_text("\n".join(job(number) for number in range(10)), encoding="utf-8")
    return path


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Stopped(Exception):
    """As a signal ends a run."""


def test_an_interrupted_run_goes_on(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"

    def stop(rows: int, share: float) -> None:
        if rows == 8:
            raise Stopped

    with pytest.raises(Stopped):
        score_file(table, out, Scorer(), stop)
    assert not out.exists()
    found = score_file(table, out, Scorer())
    assert (found.before, found.rows) == (8, 2)
    assert [row["id"] for row in read(out)] == [str(number) for number in range(10)]
    assert {path.name for path in tmp_path.iterdir()} == {"jobs.jsonl", "out.jsonl"}
    again = tmp_path / "again.jsonl"
    score_file(table, again, Scorer())
    assert [row["verdict"] for row in read(again)] == [row["verdict"] for row in read(out)]


@pytest.mark.parametrize("changed", ["input", "options"])
def test_parts_of_another_run_are_not_used(table: Path, tmp_path: Path, changed: str) -> None:
    out = tmp_path / "out.jsonl"

    def stop(rows: int, share: float) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        score_file(table, out, Scorer(), stop)
    if changed == "input":
        table.write_text(job(3) + "\n", encoding="utf-8")
    found = score_file(table, out, Scorer(exact=changed == "options"))
    assert found.before == 0
    assert len(read(out)) == found.rows


def test_lines_that_are_no_rows(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_rows, "LONGEST_LINE", 4096)
    lines = [job(1), "{", "", '"' + "x" * 9000 + '"', "[" * 3000, "\xff\x00", job(2)]
    table.write_bytes("\n".join(lines).encode("latin-1"))
    out = tmp_path / "out.jsonl"
    assert score_file(table, out, Scorer()).rows == 6
    found = read(out)
    assert [row["verdict"] for row in found] == ["fits", None, None, None, None, "fits"]
    assert all(row["error"] for row in found[1:5])


def test_a_file_that_windows_wrote(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf{"model": "gpt2"}\r\n{"model": "gpt2"}\r\n'
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(text)
    score_file(source, out, Scorer())
    assert [json.loads(line)["error"] for line in out.read_text().splitlines()] == [None, None]


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv"])
@pytest.mark.parametrize(
    ("text", "words"), [(gzip.compress(b"{}\n", mtime=0), "gzip"), ("model.name\ngpt2\n".encode("utf-16"), "UTF-16")]
)
def test_a_file_without_a_line_that_can_be_read_is_refused(text: bytes, words: str, name: str, tmp_path: Path) -> None:
    source = tmp_path / name
    source.write_bytes(text)
    with pytest.raises(UsageError, match=words):
        score_file(source, tmp_path / "out.jsonl", Scorer())


def test_a_run_that_was_ended_before_its_first_row_is_begun(table: Path, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.parts").mkdir()
    assert score_file(table, tmp_path / "out.jsonl", Scorer()).rows == 10


def test_a_run_that_was_ended_while_its_parts_were_removed(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of the parts is not taken for all of them."""
    out = tmp_path / "out.jsonl"

    def stop(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            min(one for one in path.iterdir() if one.name != files.MANIFEST).unlink()
            raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(files.shutil, "rmtree", stop)
        with pytest.raises(Stopped):
            score_file(table, out, Scorer())
    assert score_file(table, out, Scorer()).rows == 10
    assert len(read(out)) == 10
    assert {path.name for path in tmp_path.iterdir()} == {"jobs.jsonl", "out.jsonl"}


def test_what_cannot_be_written_is_named(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the input: a full disk has no name in its error."""
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(UsageError, match=r"folder\.jsonl is a directory"):
        score_file(table, tmp_path / "folder.jsonl", Scorer())
    with pytest.raises(UsageError, match=r"out\.jsonl: No such file"):
        score_file(table, tmp_path / "missing" / "out.jsonl", Scorer())
    (tmp_path / "taken.jsonl.parts").touch()
    with pytest.raises(UsageError, match=r"taken\.jsonl\.parts is in the way"):
        score_file(table, tmp_path / "taken.jsonl", Scorer())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.JsonLines, "write", full)
    with pytest.raises(UsageError, match=r"out\.jsonl\.parts.*No space left"):
        score_file(table, tmp_path / "out.jsonl", Scorer())


def test_two_runs_write_one_file_one_after_the_other(table: Path, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    out = tmp_path / "out.jsonl"

    def other(rows: int, share: float) -> None:
        with pytest.raises(UsageError, match="another preflight"):
            score_file(table, out, Scorer())

    assert score_file(table, out, Scorer(), other).rows == 10
    assert len(read(out)) == 10


def test_a_folder_that_is_no_run_stays(table: Path, tmp_path: Path) -> None:
    mine = tmp_path / "out.jsonl.parts" / "mine"
    mine.parent.mkdir()
    mine.write_text("keep", encoding="utf-8")
    with pytest.raises(UsageError, match="in the way"):
        score_file(table, tmp_path / "out.jsonl", Scorer())
    assert mine.read_text(encoding="utf-8") == "keep"


@pytest.mark.parametrize(
    ("source", "out"), [("jobs.jsonl", "jobs.jsonl"), ("jobs.jsonl", "o.txt"), ("no.jsonl", "o.jsonl")]
)
def test_wrong_files_are_one_line(table: Path, tmp_path: Path, source: str, out: str) -> None:
    with pytest.raises(UsageError):
        score_file(tmp_path / source, tmp_path / out, Scorer())
    assert {path.name for path in tmp_path.iterdir()} == {"jobs.jsonl"}


def test_parquet_in_and_out(table: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    fields = {"model.name": ["gpt2"] * 9, "train.batch_size": list(range(1, 10)), "train.seq_len": [64] * 9}
    parquet.write_table(pyarrow.table(fields), tmp_path / "jobs.parquet")
    found = score_file(tmp_path / "jobs.parquet", tmp_path / "out.parquet", Scorer("t4"))
    assert found.rows == 9
    assert parquet.read_table(tmp_path / "out.parquet")["verdict"].to_pylist() == ["fits"] * 9


def test_the_command(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    result = CliRunner().invoke(command, [str(table), "-o", str(out), "--gpu", "a100-40gb"])
    assert result.exit_code == 0, result.output
    assert "10 rows; 10 Jobs judged" in result.output
    assert all(row["capacity"] for row in read(out))


def unnamed(number: int) -> str:
    return json.dumps({name: value for name, value in json.loads(job(number)).items() if name != "id"})


PROGRAM = """
from transformers import Trainer, TrainingArguments, AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("gpt2")
args = TrainingArguments("out", per_device_train_batch_size=4)
Trainer(model, args).train()
"""


def test_a_directory_of_configurations(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    (folder / "more").mkdir(parents=True)
    (folder / "a.json").write_text(unnamed(3), encoding="utf-8")
    (folder / "more" / "b.yaml").write_text("model: gpt2\ntrain: {batch_size: 2, seq_len: 64}\n", encoding="utf-8")
    (folder / "typo.json").write_text('{"model": {"name": "gpt2"}, "train": {}, "machne": {}}', encoding="utf-8")
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    (folder / "notes.yaml").write_text("title: none\n", encoding="utf-8")
    out = tmp_path / "out.jsonl"
    found = score_file(folder, out, Scorer("t4"))
    rows = {row["id"]: row for row in read(out)}
    assert set(rows) == {"a.json", "more/b.yaml", "typo.json", "train.py"}
    assert rows["a.json"]["verdict"] == rows["more/b.yaml"]["verdict"] == "fits"
    assert "machne" in str(rows["typo.json"]["error"])
    assert rows["train.py"]["error"] is None
    assert rows["train.py"]["verdict"]
    assert (found.judged, found.launches, found.left_out) == (2, 1, 1)


def test_a_directory_holds_data_and_broken_jobs(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    (folder / "data").mkdir(parents=True)
    (folder / "cut.json").write_text(unnamed(3)[:-2], encoding="utf-8")
    (folder / "cut.yaml").write_text("model: gpt2\ntrain: {batch_size: 2, seq_len: 64\n", encoding="utf-8")
    (folder / "data" / "seen.json").write_text('{"text": "the model and the train"}\n{"text": "b"}\n', encoding="utf-8")
    (folder / "data" / "notes.yaml").write_text("title: [\n", encoding="utf-8")
    (folder / ".DS_Store").write_bytes(b"\0\1Bud1\0")
    out = tmp_path / "out.jsonl"
    found = score_file(folder, out, Scorer("t4"))
    errors = {row["id"]: row["error"] for row in read(out)}
    assert set(errors) == {"cut.json", "cut.yaml"}
    assert errors["cut.json"].startswith("cut.json:1:")
    assert errors["cut.yaml"].startswith("cut.yaml:")
    assert found.left_out == 3


def test_a_file_that_cannot_be_judged_has_its_kind_as_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from preflight.engine.score import folders

    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "train.py").write_text(PROGRAM, encoding="utf-8")
    seen = SimpleNamespace(studies=(), skipped=(Skipped("train.py", "crashed", "a reader failed"),))
    monkeypatch.setattr(folders.check, "analyse", lambda *given: seen)
    score_file(tmp_path / "jobs", tmp_path / "out.jsonl", Scorer("t4"))
    [row] = read(tmp_path / "out.jsonl")
    assert (row["cause"], row["error"]) == ("crashed", "train.py: a reader failed")


def test_an_interrupted_run_of_a_directory_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from preflight.engine.score import folders

    monkeypatch.setattr(folders, "AT_ONCE", 4)
    folder = tmp_path / "jobs"
    folder.mkdir()
    for number in range(10):
        (folder / f"{number}.json").write_text(unnamed(number), encoding="utf-8")
    out = tmp_path / "out.jsonl"

    def stop(rows: int, share: float) -> None:
        if rows == 8:
            raise Stopped

    with pytest.raises(Stopped):
        score_file(folder, out, Scorer(), stop)
    found = score_file(folder, out, Scorer())
    assert (found.before, found.rows) == (8, 2)
    assert [row["id"] for row in read(out)] == [f"{number}.json" for number in range(10)]
