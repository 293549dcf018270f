"""Inputs, each made from its number alone: texts of the seeds, changed where readers are known to be weak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import fuzz_seeds as seeds

MOST = 64 * 1024
"""Characters of an input that is made by repetition: enough to see work that grows with the square."""

TOKENS = (
    "{", "}", "[", "]", "(", ")", '"', "'", "`", "\\", "\n", "\r", "\t", " ", ",", ":", "-", "#", "$", "&", "*", "!",
    "<<: *a\n", "&a [*a]", "? ", "| \n", ">-\n", "---\n", "...\n", "%YAML 9.9\n", "!!python/object:os.system x",
    "\ufeff",
    "\u2028", "\x1b]0;x\x07", "\x85", "\x00", "😀", "é", "\udc80",
    "${", "${a}", "${add:${a},${a}}", "${oc.env:X}", "${X:-", "${X:=${X}}", "$((", "$(cat f)", "$@", "<<EOF\n",
    "${#a[@]}",
    "${oc.select:a,b}", "${now:%s}", "???", "override ", "defaults:\n  - _self_\n", "_target_: a.b\n",
    "@package _global_",
    "[z-a]", "**/", "*a*a*a*a*a*a", "glob(*)", "choice(1,2)", "range(1,1000000)", "interval(0,1)", "a=1,2,3",
    "9" * 5000, "-1", "0", "1e999", "1e-999", "nan", "inf", "0x10", "1_000", "0o17", "18446744073709551616", "-0",
    "1.5",
    "true", "null", "None", "1:30", "2**31", "9**9**9", "1/0", "''", "[]", "{}", "~",
    "lambda: 0", "f'{f'{a}'}'", "while True: pass\n", "s = s + s\n", "s = s.join([s, s])\n", "s.extend(s)\n",
    "x = x * 1000\n",
    "def f(): return f()\n", "import *", "async ", "yield ", "class A(A): pass\n", "if unknown(): x = 1\n", "del x\n",
    "for i in range(10**9):\n    x = i\n", "try:\n", "with a as b:\n", "global x\n", "*args", "**kw", "@d\n", ":=",
    "#SBATCH --mem=0\n", "#SBATCH -N 0\n", "#SBATCH --array=0-4294967295\n", "#SBATCH --gres=gpu:\n",
    "#SBATCH hetjob\n",
    "srun ", "torchrun --nproc_per_node=0 ", "accelerate launch --config_file x ", "deepspeed --num_gpus=-1 ",
    "while read x; do\n", "for i in {1..1000000}; do ", "a|a|", "eval ", "exec ", "set -- ", "cd / ", "source ./x\n",
    "NodeName=n[0-99999999] CPUs=0\n", "Include ./slurm.conf\n", "RealMemory=-1 ",
    "CUDA out of memory. Tried to allocate 99999999999999999999 GiB ", "slurmstepd: error: Detected 1 oom_kill event ",
    "Killed process 1 (python) total-vm:99999999999999999999999kB", "exit code 137", "MaxRSS|",
    "Traceback (most recent call last):\n",
    '"sub_group_size": 0', '"num_hidden_layers": 5000', '"train_batch_size": "auto"', "suggest_int('a', 0, 10**18)",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "1", "2", "3", "7", "1000000", "4294967295", "9223372036854775808", "1e400", "-1e400", "0.5", "1" * 4400,
    "nan", "1e-320", "00", "1.", ".5", "0x", "1e5",
)  # fmt: skip
PAIRS = (
    ("[", "]"),
    ("{", "}"),
    ("(", ")"),
    ('{"a":', "}"),
    ("${", "}"),
    ("${X:-", "}"),
    ("$(", ")"),
    ("-", ""),
    ("a:\n ", ""),
)

WEIGHTS = {
    "documents": 44, "project": 30, "log": 8, "job": 5, "settings": 5, "machine": 2, "conf": 2, "baseline": 1, "law": 1,
    "sbatch": 1, "hosts": 1,
}  # fmt: skip
"""How often each kind of input is made."""


@dataclass(frozen=True)
class Input:
    """One input: what reads it, and the files that it is made of, the first one named on the command line."""

    kind: str
    files: Mapping[str, str]

    @property
    def text(self) -> str:
        return next(iter(self.files.values()), "")


def made(seed: int, number: int, kind: str | None = None) -> Input:
    """The input of this number, the same in every run on the same seeds."""
    random = Random(f"{seed}/{number}")
    kind = kind or random.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
    if kind == "project":
        return Input(kind, _project(random))
    names = {
        "documents": random.choice(("a.yaml", "a.json", "a.sh", "a.py", "a.toml")), "log": "job.log", "job": "job.json",
        "settings": "preflight.toml", "machine": "machine.toml", "conf": "slurm.conf", "baseline": "baseline.json",
        "law": "model.json.gz", "sbatch": "words", "hosts": "hosts",
    }  # fmt: skip
    name = names[kind]
    source = {"documents": seeds.kind_of(name), "settings": "toml", "machine": "toml", "law": "json"}.get(kind, kind)
    return Input(kind, {name: _changed(random, source)})


def _project(random: Random) -> Mapping[str, str]:
    """A project with one or more of its files changed; seldom a file of another project beside them."""
    files = dict(random.choice(seeds.projects()))
    if random.random() < 0.1:
        files.update(random.choice(seeds.projects()))
    for name in random.sample(sorted(files), min(len(files), random.choice((1, 1, 1, 2, 3)))):
        files[name] = mutated(random, files[name], seeds.texts()[seeds.kind_of(name)])
    return {name: text for name, text in files.items() if _can_be_written(name)}


def _can_be_written(name: str) -> bool:
    return not name.startswith(("/", "..")) and "/../" not in name and "\0" not in name


def _changed(random: Random, kind: str) -> str:
    known = seeds.texts().get(kind) or ("",)
    return mutated(random, random.choice(known), known)


def mutated(random: Random, text: str, others: tuple[str, ...]) -> str:
    """A text after one to six changes."""
    for _ in range(random.choice((1, 1, 2, 2, 3, 6))):
        text = random.choice(CHANGES)(random, text, others)[: 4 * MOST]
    return text


def _span(random: Random, text: str, most: int = 200) -> tuple[int, int]:
    start = random.randint(0, len(text))
    return start, min(len(text), start + random.randint(0, most))


def _insert(random: Random, text: str, _: tuple[str, ...]) -> str:
    at = random.randint(0, len(text))
    return text[:at] + random.choice(TOKENS) + text[at:]


def _delete(random: Random, text: str, _: tuple[str, ...]) -> str:
    start, end = _span(random, text)
    return text[:start] + text[end:]


def _repeat(random: Random, text: str, _: tuple[str, ...]) -> str:
    start, end = _span(random, text)
    times = random.choice((2, 2, 3, 10, 100, 1000))
    times = max(1, min(times, MOST // max(1, end - start)))
    return text[:end] + text[start:end] * times + text[end:]


def _nest(random: Random, text: str, _: tuple[str, ...]) -> str:
    start, end = _span(random, text)
    left, right = random.choice(PAIRS)
    times = random.choice((1, 2, 10, 100, 300, 3000))
    return text[:start] + left * times + text[start:end] + right * times + text[end:]


def _number(random: Random, text: str, _: tuple[str, ...]) -> str:
    places = [at for at, char in enumerate(text) if char.isdigit()]
    if not places:
        return text
    at = random.choice(places)
    end = at
    while end < len(text) and text[end].isdigit():
        end += 1
    return text[:at] + random.choice(NUMBERS) + text[end:]


def _lines(random: Random, text: str, _: tuple[str, ...]) -> str:
    lines = text.splitlines(keepends=True)
    if len(lines) < 2:
        return text
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    how = random.randrange(3)
    if how == 0:
        lines[one], lines[other] = lines[other], lines[one]
    elif how == 1:
        lines.insert(other, lines[one])
    else:
        lines[one] = " " * random.choice((1, 2, 4, 8, 300)) + lines[one]
    return "".join(lines)


def _splice(random: Random, text: str, others: tuple[str, ...]) -> str:
    other = random.choice(others) if others else ""
    start, end = _span(random, other, 2000)
    at = random.randint(0, len(text))
    return text[:at] + other[start:end] + text[at:]


def _cut(random: Random, text: str, _: tuple[str, ...]) -> str:
    return text[: random.randint(0, len(text))]


def _flip(random: Random, text: str, _: tuple[str, ...]) -> str:
    if not text:
        return text
    at = random.randrange(len(text))
    return text[:at] + chr(random.choice((random.randrange(128), random.randrange(0x3000)))) + text[at + 1 :]


def _word(random: Random, text: str, _: tuple[str, ...]) -> str:
    """One word of the text in the place of another."""
    words = text.split()
    return text.replace(random.choice(words), random.choice(words), random.choice((1, 1, 5))) if words else text


CHANGES = (_insert, _insert, _delete, _repeat, _nest, _number, _number, _lines, _splice, _cut, _flip, _flip, _word)
