"""The console script in fresh processes, quickly: a server that has imported everything and asked nothing forks them.

Estimates of devices are those of `command_line`, which need no law.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SERVER = """
import json, os, sys
from importlib import import_module
from pkgutil import walk_packages
import preflight
apart = ("preflight.tracer", "preflight.batch", "preflight.editor")  # they need what only some have
for one in walk_packages(preflight.__path__, "preflight."):
    if not one.name.startswith(apart) and "__main__" not in one.name:
        import_module(one.name)
import preflight.cli, preflight.commands.check, preflight.commands.cache, preflight.fixes.proof, preflight.study.build
import hydra.core.config_search_path, hydra._internal.config_loader_impl, omegaconf, ruamel.yaml, tree_sitter_bash
import preflight.engine.check as engine, preflight.system.observed as observed, preflight_rules
for one in walk_packages(preflight_rules.__path__, "preflight_rules."):
    import_module(one.name)
sys.path.insert(0, sys.argv[1])
import command_line
from preflight.memory import device
device.estimate, device.bound = command_line.estimate, command_line.bound
del sys.path[0]
analyse = engine.analyse

def build(model):
    # pydantic puts off the validators until a model is used: each process would build them anew.
    for one in model.__subclasses__():
        if one.__module__.startswith("preflight"):
            one.model_rebuild()
        build(one)

import pydantic, gc
build(pydantic.BaseModel)
gc.collect()
gc.freeze()  # a collection in a process would copy all pages of what is imported

def serve(asked):
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, errors="backslashreplace")
    sys.argv = ["preflight", *asked["words"]]
    if asked["settled"]:
        observed.RESOLUTION_NS = -10**18
    def noted(*arguments):
        open(asked["anew"], "w").close()
        return analyse(*arguments)
    engine.analyse = noted
    exec(asked["before"], globals())
    from preflight.__main__ import main
    main()

for line in sys.stdin:
    asked = json.loads(line)
    pids = []
    for one in asked:
        pid = os.fork()
        if not pid:
            try:
                serve(one)
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                os._exit(99)
        pids.append(pid)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)
"""


@dataclass(frozen=True)
class Ran:
    """What one process said. `anew`: whether it analysed anything."""

    status: int
    out: str
    err: str
    anew: bool

    @property
    def said(self) -> tuple[int, str, str]:
        return self.status, self.out, self.err


class Server:
    """Forks `preflight` processes. `home`: where they keep results and settings."""

    def __init__(self, home: Path) -> None:
        self.home = home
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        env.pop("PREFLIGHT_NO_CACHE", None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(Path(__file__).parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    @property
    def results(self) -> Path:
        return self.home / "cache" / "results"

    def run(self, cwd: Path, *words: str, settled: bool = False, before: str = "", **env: str) -> Ran:
        return self.together(cwd, [words], settled, before, **env)[0]

    def together(
        self, cwd: Path, commands: list[tuple[str, ...]], settled: bool = False, before: str = "", **env: str
    ) -> list[Ran]:
        """Processes that run at the same time. `before`: what each does first; `settled`: no time is too young."""
        (self.home / "cache").mkdir(mode=0o700, exist_ok=True)
        base = {"HOME": str(self.home), "PATH": os.environ["PATH"], "PREFLIGHT_CACHE_DIR": str(self.home / "cache")}
        asked = []
        for number, words in enumerate(commands):
            places = {name: str(self.home / f"{name}{number}") for name in ("out", "err", "anew")}
            Path(places["anew"]).unlink(missing_ok=True)
            asked.append({**places, "cwd": str(cwd), "words": list(words), "env": {**base, **env},
                          "settled": settled, "before": before})  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        statuses = json.loads(self.process.stdout.readline())
        return [
            Ran(status, Path(one["out"]).read_text(), Path(one["err"]).read_text(), Path(one["anew"]).exists())
            for status, one in zip(statuses, asked, strict=True)
        ]

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


SETTINGS = 'gpu = "RTX 4090"\nmachine = "cluster.toml"\nroots = ["sweeps/*.yaml"]\n'
CLUSTER = '[node.big]\nmemory = "64GB"\ncpus = 16\ngpu = "RTX 4090"\ngpus = 1\n'
PROGRAM = """\
import argparse

import torch
from transformers import AutoModelForCausalLM

from sizes import LENGTH

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--max_length", type=int, default=LENGTH)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2")
optimizer = torch.optim.AdamW(model.parameters())
for batch in torch.utils.data.DataLoader(data, batch_size=args.batch_size):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
"""
SWEEP = """\
program: train.py
method: grid
parameters:
  batch_size: {values: [16, 96]}
"""
APP = """\
import hydra
import torch
from transformers import AutoModelForCausalLM


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    model = AutoModelForCausalLM.from_pretrained(cfg.model.name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for batch in torch.utils.data.DataLoader(data, batch_size=cfg.batch_size):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""
PROJECT = {
    "preflight.toml": SETTINGS,
    "cluster.toml": CLUSTER,
    "train.py": PROGRAM,
    "sizes.py": "LENGTH = 512\n",
    "sweep.yaml": SWEEP,
    "notes/readme.yaml": "words: []\n",
}
HYDRA = {
    "app.py": APP,
    "conf/config.yaml": "defaults:\n  - model: small\n  - _self_\nbatch_size: 4\n",
    "conf/model/small.yaml": "name: gpt2\n",
    "conf/model/large.yaml": "name: gpt2-large\n",
}


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root
