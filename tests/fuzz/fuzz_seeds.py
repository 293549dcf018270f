"""What inputs are made from: projects that tests wrote, examples of rules, incidents, public files of the corpus."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 24 * 1024
"""Bytes of a file that inputs are made of: most of a large file says the same again."""

Files = Mapping[str, str]

KINDS = (
    (".yaml", "yaml"), (".yml", "yaml"), (".json", "json"), (".toml", "toml"), (".py", "python"), (".log", "log"),
    (".out", "log"), (".err", "log"), (".txt", "text"), (".conf", "conf"),
)  # fmt: skip


def kind_of(path: str) -> str:
    """What reads a file of that name."""
    return next((kind for suffix, kind in KINDS if path.lower().endswith(suffix)), "bash")


@lru_cache(maxsize=1)
def projects() -> tuple[Files, ...]:
    """Small projects, each a mapping of names to texts."""
    found = [*_written(), *_rules(), *_folders(), *_public()]
    return tuple(files for files in found if files)


@lru_cache(maxsize=1)
def texts() -> Mapping[str, tuple[str, ...]]:
    """Texts of all projects by kind, each once."""
    found: dict[str, dict[str, None]] = {kind: {} for kind in ("bash", *(kind for _, kind in KINDS))}
    for files in projects():
        for name, text in files.items():
            found[kind_of(name)][text] = None
    for kind, more in OWN.items():
        found.setdefault(kind, {}).update(dict.fromkeys(more))
    return {kind: tuple(each) for kind, each in found.items()}


def _written() -> Iterator[Files]:
    with gzip.open(ROOT / "tests/golden/projects.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            yield _small(json.loads(line)["files"])


def _rules() -> Iterator[Files]:
    from preflight.engine import registry

    for rule in registry.rules().values():
        for example in rule.examples:
            yield _small(example.files)


def fixed_examples() -> Iterator[Files]:
    """Examples of rules whose safe fix changes a file."""
    from preflight.engine import registry

    for rule in registry.rules().values():
        for example in rule.examples:
            if example.fixed is not None and not example.unsafe:
                yield example.files


def _folders() -> Iterator[Files]:
    for folder in sorted([*(ROOT / "examples/incidents").iterdir(), *(ROOT / "examples/postmortem").iterdir()]):
        if folder.is_dir():
            yield _small(_texts_under(folder))


def _public() -> Iterator[Files]:
    """Single files of public repositories that may be looked at (never those that are held back to measure with)."""
    home = os.environ.get("PREFLIGHT_CORPUS")
    listed = tomllib.loads((ROOT / "benchmarks/corpus/repositories.toml").read_text())["repository"]
    for row in listed if home else ():
        folder = Path(home or "") / f"{row['name'].replace('/', '+')}@{row['commit'][:12]}"
        if row["group"] == "dev" and folder.is_dir():
            for name, text in list(_texts_under(folder, 60).items()):
                yield _small({name.rpartition("/")[2]: text})


def _texts_under(folder: Path, most: int = 1000) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        if len(found) >= most:
            break
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST:
            try:
                found[path.relative_to(folder).as_posix()] = path.read_text("utf-8")
            except UnicodeDecodeError:
                continue
    return found


def _small(files: Files) -> Files:
    return {name: text for name, text in files.items() if len(text) <= LARGEST and "\0" not in text}


OWN: Mapping[str, tuple[str, ...]] = {
    "toml": (
        'gpu = "RTX 4080"\nroots = ["sweeps/*.yaml"]\nexclude = ["**/old/*", "[a-z]*.py"]\n'
        '[map]\nbsz = "train.batch_size"\n'
        '[set]\n"train.seq_len" = 512\n[per-file-ignores]\n"*.yaml" = ["gpu-memory-tight"]\n'
        '[constraints]\nvocabulary = "a >= b * (c - 1) + 1"\n',
        'version = 1\n[defaults]\npartition = "gpu"\n[[nodes]]\nname = "n[01-04]"\ncount = 4\ncpus = 32\n'
        'memory = "250G"\n'
        'gpus = 4\ngpu = "A100 80GB"\n[[partitions]]\nname = "gpu"\nnodes = ["n[01-04]"]\nmax_time = "1-00:00:00"\n',
    ),
    "conf": (
        "ClusterName=c\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nGresTypes=gpu\n"
        "Include more.conf\n"
        "NodeName=n[01-16] CPUs=64 RealMemory=515000 Gres=gpu:a100:4 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2\n"
        "PartitionName=gpu Nodes=n[01-08] Default=YES MaxTime=2-00:00:00 DefMemPerCPU=4000 State=UP\n",
    ),
    "job": (
        '{"model": "gpt2", "train": {"batch_size": 8, "seq_len": 512, "precision": "bf16-mixed"}}',
        '{"model": {"architecture": "llama", "config": {"hidden_size": 64, "num_hidden_layers": 2, '
        '"vocab_size": 256}}, '
        '"train": {"batch_size": 1, "seq_len": 16, "peft": {"method": "lora", "r": 8}}, "parallel": '
        '{"strategy": "zero3", "gpus_per_node": 8}}',
        '{"model": "meta-llama/Llama-3.1-8B", "train": {"batch_size": 1, "seq_len": 64, "quantization": '
        '{"type": "nf4"}}, "parallel": {"strategy": "fsdp", "gpus_per_node": 2}, '
        '"data": {"workers": 4, "sample_bytes": 1000}}',
        '{"model": {"parameters": 1000000}, "train": {"batch_size": 4}, "machine": {"gpu": "A100 80GB"}}',
    ),
    "baseline": ('{"version": 1, "findings": [\n  {"rule": "a", "path": "b", "key": "c", "count": 2}\n]}\n',),
    "sbatch": (
        "--mem=64G -N 2 --gres=gpu:a100:4 -t 1-00:00:00 --array=0-10%2 train.sh --lr 0.1",
        "-n 4 -c 8 --mem-per-cpu=4G -p gpu : -N 1 --gpus-per-node=8 job.sh",
        "--wrap='python train.py' -J x -o %x-%j.out",
    ),
    "hosts": ("n[001-128,200],gpu[1-4]-[a,b]", "node-[01-10]x[1,3]"),
}
"""Texts of readers that no project of the tests has."""
