"""Tables of accounting: their own names, columns that say nothing of a Job, and what SLURM gave."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from preflight.commands.batch import command
from preflight.engine.score import naming, text_rows
from preflight.engine.score.files import score_file
from preflight.engine.score.scorer import Scorer
from preflight.vocabulary.errors import UsageError

NAMES = """
[columns]
id = "JobID"
tres = "AllocTRES"
"model.name" = "model"
"train.batch_size" = "bs"
"train.seq_len" = "len"
[values]
task = "causal-lm"
[words."machine.gpu"]
a100l = "a100-80gb"
"""
HEADER = "JobID|User|JobName|State|AllocTRES|model|bs|len|"
ROWS = (
    '17|ann|"odd, name|COMPLETED|billing=8,cpu=8,gres/gpu:a100l=2,gres/gpu=2,mem=128G,node=2|gpt2|8|512|',
    "18|bob|x|FAILED|cpu=8,gres/gpu:t4=1,mem=64000M,node=1|gpt2|8|512|",
    "19|bob|x|FAILED||gpt2|||",
)


@pytest.fixture
def accounting(tmp_path: Path) -> tuple[Path, Path]:
    table, names = tmp_path / "jobs.csv", tmp_path / "columns.toml"
    table.write_text("\ufeff" + "\r\n".join((HEADER, *ROWS)) + "\r\n", encoding="utf-8")
    names.write_text(NAMES, encoding="utf-8")
    return table, names


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_accounting_in_verdicts_out(accounting: tuple[Path, Path], tmp_path: Path) -> None:
    table, names = accounting
    out = tmp_path / "verdicts.csv"
    result = CliRunner().invoke(command, [str(table), "-o", str(out), "--columns", str(names)])
    assert result.exit_code == 0, result.output
    first, second, third = read(out)
    assert (first["id"], first["verdict"]) == ("17", "fits")
    assert int(first["capacity"]) > 70 << 30
    assert first["host_limit"] == str(64 << 30)
    assert (second["id"], second["verdict"], second["host_limit"]) == ("18", "fits", str(64000 << 20))
    assert (third["id"], third["verdict"], third["cause"]) == ("19", "unknown", "not-set")


def test_columns_that_are_no_fields_are_named(accounting: tuple[Path, Path], tmp_path: Path) -> None:
    """Before anything is judged: each row would have the same mistake."""
    with pytest.raises(UsageError, match=r"no Job fields: 'JobID', 'User', 'JobName'.*--columns"):
        score_file(accounting[0], tmp_path / "o.csv", Scorer())
    assert not (tmp_path / "o.csv.parts").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[columns]\nid = 'Job'", "no column Job .did you mean .JobID"),
        ("[columns]\n'trian.batch_size' = 'bs'", "trian.batch_size is not a Job field"),
        ("[colums]\nid = 'JobID'", "did you mean .columns"),
        ("[columns]\nid = 3", "no text"),
        ("[columns]", "names none"),
        ("[words]\n'machine.gpu' = 3\n[columns]\nid = 'JobID'", "no table"),
        ("[columns", "columns.toml"),
    ],
)
def test_a_wrong_naming_is_one_line(accounting: tuple[Path, Path], tmp_path: Path, text: str, words: str) -> None:
    table, names = accounting
    names.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(command, [str(table), "-o", str(tmp_path / "o.csv"), "--columns", str(names)])
    assert result.exit_code != 0
    with pytest.raises(UsageError, match=words):
        score_file(table, tmp_path / "o.csv", Scorer(), naming=naming.read(names))


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("cpu=8,mem=64G,node=1", {"parallel.nodes": 1, "machine.memory_limit": 64 << 30}),
        ("mem=7.5G,node=3,gres/gpu=7", {"parallel.nodes": 3, "machine.memory_limit": (15 << 29) // 3}),
        (
            "gres/gpu=4,gres/gpu:a=2,gres/gpu:b=2,node=1",
            {"parallel.nodes": 1, "parallel.gpus_per_node": 4},
        ),
        ("node=0", {}),
        ("mem=500M", {"parallel.nodes": 1, "machine.memory_limit": 500 << 20}),
        ("mem=" + "9" * 400 + "G,node=x", {}),
        ("no list", {"parallel.nodes": 1}),
    ],
)
def test_what_slurm_gave(text: str, fields: dict[str, object]) -> None:
    assert naming.allocated(text) == fields


def test_rows_of_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with other columns than the first line names is an error of its own, and the rows behind it are read."""
    monkeypatch.setattr(text_rows, "LONGEST_LINE", 200)
    table, out = tmp_path / "jobs.csv", tmp_path / "out.csv"
    lines = [
        "id,model.name,train.batch_size,train.seq_len,machine__gpu", "a,gpt2,2,64,t4", "b,gpt2", "c" * 500,
        '"d\nd",gpt2,2,64,t4', "e,gpt2,\xff,64,t4", "", "f,gpt2,2,64,t4",
    ]  # fmt: skip
    table.write_bytes("\n".join(lines).encode("latin-1"))
    score_file(table, out, Scorer())
    found = read(out)
    assert [row["verdict"] for row in found] == ["fits", "", "", "fits", "", "fits"]
    assert [row["id"] for row in found] == ["a", "", "", "d\nd", "e", "f"]
    assert "2 columns" in found[1]["error"]
    assert "longer" in found[2]["error"]


@pytest.mark.parametrize("text", ["model,task\rgpt2,causal-lm\r", "\x00\x01,\udcff" * 9, "a,a\n", "\x85" * 9000])
def test_a_file_that_is_no_table_is_one_line(tmp_path: Path, text: str) -> None:
    table = tmp_path / "jobs.csv"
    table.write_bytes(text.encode("utf-8", "surrogateescape"))
    result = CliRunner().invoke(command, [str(table), "-o", str(tmp_path / "out.csv")])
    assert isinstance(result.exception, UsageError | SystemExit)
    assert len(str(result.exception)) < 600
    assert not (tmp_path / "out.csv").exists()


def test_an_interrupted_run_of_a_table_of_text_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_rows, "AT_ONCE", 2)
    table = tmp_path / "jobs.tsv"
    rows = [f'"{number}\n"\tgpt2\t{number}\t64\tt4' for number in range(1, 8)]
    table.write_text("\n".join(("id\tmodel\ttrain.batch_size\ttrain.seq_len\tmachine", *rows)), encoding="utf-8")
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    score_file(table, whole, Scorer())

    class Stopped(Exception):
        pass

    def stop(rows: int, share: float) -> None:
        if rows == 4:
            raise Stopped

    with pytest.raises(Stopped):
        score_file(table, out, Scorer(), stop)
    assert score_file(table, out, Scorer()).before == 4
    assert out.read_bytes() == whole.read_bytes()


def test_parquet_of_any_types(tmp_path: Path) -> None:
    """Columns that nobody named are not read, whatever they hold; those that are may be text."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    stamp = arrow.array([2**62] * 3, arrow.timestamp("us", tz="Mars/Olympus"))
    columns = {
        "JobID": [1, 2, 3], "when": stamp, "gpu": arrow.array(["t4"] * 3).dictionary_encode(),
        "hp.model": ["gpt2"] * 3, "bs": ["8", "9.0", "many"],
    }  # fmt: skip
    source, out = tmp_path / "jobs.parquet", tmp_path / "out.jsonl"
    parquet.write_table(arrow.table(columns), source)
    names = {"id": "JobID", "machine.gpu": "gpu", "model.name": "hp.model", "train.batch_size": "bs"}
    score_file(source, out, Scorer(), naming=naming.Naming(names, {"train.seq_len": 64}))
    found = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [row["verdict"] for row in found] == ["fits", "fits", None]
    with pytest.raises(UsageError, match=r"no Job fields: 'JobID', 'when', 'gpu', 'hp\.model', 'bs'"):
        score_file(source, out, Scorer())
