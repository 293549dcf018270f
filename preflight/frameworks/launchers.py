"""Launch commands as data: which words belong to `torchrun`, `accelerate launch`, `deepspeed`, `uv run`, ... and which
name the program and are passed on to it.

Sources: the argument parsers of torch.distributed.run (2.13), accelerate 1.15 and deepspeed 0.19; the manual pages of
the wrappers. An option takes a value unless it is listed as a switch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.vocabulary.reading import TORCHRUN_RANKS, Launch, Launcher, Word
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown, evaluate, names

Kind = Literal["program", "module", "script", "none"]


class LaunchCommand(Struct, frozen=True):
    """A launch command taken apart: `target` is a path (program, script) or a dotted name (module)."""

    kind: Kind
    target: Word | None = None
    words: tuple[Word, ...] = ()
    launch: Launch = field(default_factory=Launch)
    ranks: tuple[Word, ...] = ()
    """What the launcher puts before the words: the rank of the process, by the names of torch before and since 2.0."""

    @property
    def name(self) -> str | None:
        """The target's text; None if it is not known, or nothing is started."""
        return None if self.target is None else text(self.target)

    @property
    def rank(self) -> tuple[str, ...]:
        """The last of `ranks`, which is that of a current torch, as the program sees it."""
        return tuple(text(one) or "" for one in self.ranks[-1:])


class _Seen(Struct):
    launcher: Launcher = "python"
    nodes: Expr | None = None
    ranks_per_node: Expr | None = None
    total_ranks: Expr | None = None
    environment: dict[str, Expr] = field(default_factory=dict)
    module: bool = False
    says_rank: bool = False
    """Whether the launcher gives the program its rank on the node as an argument."""


_RANKS = (Word("--local_rank=", Const("0")), Word("--local-rank=", Const("0")))
_RANK_BY_ENVIRONMENT = frozenset({"--use-env", "--use_env", "--no_local_rank", "--no_python", "--no-python"})
"""Switches with which torch.distributed.launch and deepspeed leave out the argument `--local_rank`."""
_TORCHRUN_SWITCHES = {
    "--standalone",
    "--no-python",
    "--no_python",
    "--run-path",
    "--run_path",
    "--use-env",
    "--use_env",
}
_ACCELERATE_SWITCHES = {
    "--multi_gpu", "--cpu", "--tpu", "--use_deepspeed", "--use_fsdp", "--use_megatron_lm", "--use_xpu", "--no_python",
    "--debug", "--quiet", "-q", "--ipex", "--mps", "--same_network", "--rdzv_conf_static", "--enable_cpu_affinity",
    "--use_parallelism_config", "--tpu_use_cluster", "--no_tpu_use_cluster", "--tpu_use_sudo",
}  # fmt: skip
_DEEPSPEED_SWITCHES = {
    "--no_python", "--no_local_rank", "--force_multi", "--save_pid", "--enable_each_rank_log", "--no_ssh_check",
    "--no_ssh", "--bind_cores_to_rank", "--elastic_training",
}  # fmt: skip
_TORCHRUN = {
    "nproc_per_node": "ranks_per_node", "nproc-per-node": "ranks_per_node", "nnodes": "nodes",
}  # fmt: skip
_ACCELERATE = {"num_processes": "total_ranks", "num_machines": "nodes"}
_DEEPSPEED = {"num_gpus": "ranks_per_node", "num_nodes": "nodes"}
MIXED_PRECISION = "ACCELERATE_MIXED_PRECISION"
_ACCELERATE_ENVIRONMENT = {
    "mixed_precision": MIXED_PRECISION,
    "gradient_accumulation_steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "config_file": "ACCELERATE_CONFIG_FILE",
    "deepspeed_config_file": "ACCELERATE_DEEPSPEED_CONFIG_FILE",
    "zero_stage": "ACCELERATE_DEEPSPEED_ZERO_STAGE",
    "offload_optimizer_device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "dynamo_backend": "ACCELERATE_DYNAMO_BACKEND",
    **{name: name.upper() for name in (
        "fsdp_version", "fsdp_sharding_strategy", "fsdp_reshard_after_forward", "fsdp_offload_params",
        "fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_activation_checkpointing",
        "fsdp_activation_checkpointing_offload",
    )},
}  # fmt: skip
"""What `accelerate launch` hands to the program, as environment variables (accelerate.utils.launch)."""
_ACCELERATE_TRUE = {
    "use_deepspeed": "ACCELERATE_USE_DEEPSPEED",
    "use_fsdp": "ACCELERATE_USE_FSDP",
    "multi_gpu": "ACCELERATE_USE_MULTI_GPU",
}
"""Switches that choose the sharding, which is then not accelerate's file's (accelerate.commands.launch,
_validate_launch_command). The variable of the last is preflight's own: accelerate sets none for it."""

_MODULES: Mapping[str, Launcher] = {
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate", "deepspeed.launcher.runner": "deepspeed", "deepspeed": "deepspeed",
}  # fmt: skip
_WRAPPERS: Mapping[str, frozenset[str]] = {
    "env": frozenset({"-u", "-C", "-S"}),
    "nohup": frozenset(), "time": frozenset({"-f", "-o"}), "exec": frozenset(), "command": frozenset(),
    "stdbuf": frozenset({"-i", "-o", "-e"}), "nice": frozenset({"-n"}), "ionice": frozenset({"-c", "-n"}),
    "numactl": frozenset({"-N", "-m", "-C"}), "timeout": frozenset({"-k", "-s"}), "xvfb-run": frozenset({"-s", "-n"}),
    "sudo": frozenset({"-u", "-g"}), "unbuffer": frozenset(), "setsid": frozenset(),
    "taskset": frozenset(),
}  # fmt: skip
"""Commands that run another: their options that take a value as the next word."""
RUNNERS: Mapping[str, frozenset[str]] = {
    "uv": frozenset({"--with", "--python", "-p", "--extra", "--group", "--project", "--directory", "--env-file"}),
    "poetry": frozenset({"-C", "--directory", "-P"}), "pipenv": frozenset(), "pdm": frozenset({"-p"}),
    "rye": frozenset(), "hatch": frozenset(), "pixi": frozenset({"-e", "--environment", "--manifest-path"}),
    "conda": frozenset({"-n", "--name", "-p", "--prefix", "--cwd"}), "mamba": frozenset({"-n", "--name", "-p"}),
    "micromamba": frozenset({"-n", "--name", "-p"}), "pyenv": frozenset(),
}  # fmt: skip
"""Tools whose `run` or `exec` starts a program."""
_PYTHON_VALUES = {"-X", "-W", "--check-hash-based-pycs"}


def text(word: Word) -> str | None:
    """A word as the program sees it; None if its value is not known."""
    if word.value is None:
        return word.hydra_prefix + word.prefix
    if isinstance(word.value, Const) and not isinstance(word.value.value, Unknown):
        return f"{word.hydra_prefix}{word.prefix}{word.value.value}"
    return None


def take_apart(words: Sequence[Word]) -> LaunchCommand:
    """The program that a command starts, its words, and how it is started. `kind` "none": no program in it."""
    seen, rest = _Seen(), list(words)
    while rest:
        head = text(rest[0])
        if head is None:
            return LaunchCommand("none", None, (), _launch(seen))
        name = head.rsplit("/", 1)[-1]
        assigned, equals, _ = head.partition("=")
        if equals and assigned.isidentifier():
            if rest[0].value is not None:
                seen.environment[assigned] = rest[0].value
            rest = rest[1:]
        elif name in _WRAPPERS:
            rest = _skip_options(rest[1:], _WRAPPERS[name])
            rest = rest[1:] if name in ("timeout", "taskset") else rest  # their first argument is a time, a mask
        elif name in RUNNERS and len(rest) > 1:
            rest = _skip_options(_skip_options(rest[1:], RUNNERS[name])[1:], RUNNERS[name])
        else:
            return _program(name, rest, seen)
    return LaunchCommand("none", None, (), _launch(seen))


def _skip_options(words: list[Word], valued: frozenset[str]) -> list[Word]:
    while words and (text(words[0]) or "").startswith("-"):
        option = text(words[0])
        words = words[2:] if option in valued else words[1:]
        if option == "--":
            break
    return words


def _program(name: str, rest: list[Word], seen: _Seen) -> LaunchCommand:
    release = name.removeprefix("python").replace(".", "")
    if (name.startswith("python") and release.isdecimal()) or name in ("python", "pythonw", "ipython"):
        return _python(rest[1:], seen)
    if name == "torchrun":
        return _launcher("torchrun", rest[1:], seen)
    if name == "deepspeed":
        return _launcher("deepspeed", rest[1:], seen)
    if name in ("accelerate", "accelerate-launch"):
        rest = rest[1:] if name == "accelerate-launch" else rest[1:] if len(rest) < 2 else rest[2:]
        return _launcher("accelerate", rest, seen)
    if name in ("bash", "sh", "zsh"):
        rest = _skip_options(rest[1:], frozenset({"-o", "-O"}))
        return LaunchCommand("script" if rest else "none", rest[0] if rest else None, tuple(rest[1:]), _launch(seen))
    if name.endswith((".sh", ".bash", ".zsh", ".sbatch", ".slurm")):
        return LaunchCommand("script", rest[0], tuple(rest[1:]), _launch(seen))
    if name.endswith((".py", ".pyw")):
        return LaunchCommand("module" if seen.module else "program", rest[0], tuple(rest[1:]), _launch(seen))
    return LaunchCommand("none", rest[0], tuple(rest[1:]), _launch(seen))


def _python(rest: list[Word], seen: _Seen) -> LaunchCommand:
    while rest:
        option = text(rest[0])
        if option is None or not option.startswith("-") or option == "-":
            break
        if option == "-c":
            return LaunchCommand("none", None, (), _launch(seen))
        if option == "-m" and len(rest) > 1:
            module = text(rest[1]) or ""
            if module in _MODULES:
                seen.says_rank = module == "torch.distributed.launch"
                return _launcher(_MODULES[module], rest[2:], seen)
            return LaunchCommand("module", rest[1], tuple(rest[2:]), _launch(seen))
        rest = rest[2:] if option in _PYTHON_VALUES else rest[1:]
    if not rest:
        return LaunchCommand("none", None, (), _launch(seen))
    return LaunchCommand("program", rest[0], tuple(rest[1:]), _launch(seen))


_LAUNCHERS: Mapping[Launcher, tuple[Mapping[str, str], set[str]]] = {
    "torchrun": (_TORCHRUN, _TORCHRUN_SWITCHES),
    "accelerate": (_ACCELERATE, _ACCELERATE_SWITCHES),
    "deepspeed": (_DEEPSPEED, _DEEPSPEED_SWITCHES),
}


def _launcher(launcher: Launcher, rest: list[Word], seen: _Seen) -> LaunchCommand:
    """A launcher's own options, up to the word that names the program."""
    counts, switches = _LAUNCHERS[launcher]
    seen.launcher = launcher
    seen.says_rank = seen.says_rank or launcher == "deepspeed"
    while rest:
        head = rest[0].prefix if rest[0].value is not None and rest[0].prefix else text(rest[0])
        if head is None or not head.startswith("-"):
            break
        name, equals, _ = head.lstrip("-").partition("=")
        if head in ("-m", "--module"):
            seen.module, rest = True, rest[1:]
            continue
        if head in switches:
            seen.says_rank = seen.says_rank and head not in _RANK_BY_ENVIRONMENT
            if launcher == "accelerate" and name in _ACCELERATE_TRUE:
                seen.environment[_ACCELERATE_TRUE[name]] = Const("true", rest[0].origin)
            rest = rest[1:]
            continue
        value = rest[0].value if equals else rest[1].value if len(rest) > 1 else None
        if value is not None:
            _note(launcher, counts, name, value, seen)
        rest = rest[1:] if equals else rest[2:]
    if not rest:
        return LaunchCommand("none", None, (), _launch(seen))
    name = text(rest[0]) or ""
    kind: Kind = "module" if seen.module else "script" if name.endswith((".sh", ".bash", ".zsh")) else "program"
    ranks = _RANKS[: 2 if launcher == "torchrun" else 1] if seen.says_rank and kind == "program" else ()
    return LaunchCommand(kind, rest[0], tuple(rest[1:]), _launch(seen), ranks)


def _note(launcher: Launcher, counts: Mapping[str, str], name: str, value: Expr, seen: _Seen) -> None:
    if name in counts:
        setattr(seen, counts[name], _count(value))
    elif launcher == "accelerate" and name in _ACCELERATE_ENVIRONMENT:
        seen.environment[_ACCELERATE_ENVIRONMENT[name]] = value
    elif launcher == "deepspeed" and name in ("include", "i"):
        seen.nodes, seen.ranks_per_node = _included(value)


def _included(value: Expr) -> tuple[Expr, Expr]:
    """Nodes and processes per node of `--include localhost:0,1` and `--include "a:0,1@b:0,1"` (its runner.py)."""
    said = str(value.value) if isinstance(value, Const) and isinstance(value.value, str) else ""
    hosts = [part.partition(":") for part in said.split("@")]
    counts = {len(slots.split(",")) if slots else 0 for _, _, slots in hosts}
    if len(counts) != 1 or not (count := counts.pop()):
        unread = Const(Unknown("as many processes as the machine has devices", Cause.run_time), value.origin)
        return unread, unread
    return Const(len(hosts), value.origin), Const(count, value.origin)


def _count(value: Expr) -> Expr:
    """A number of processes or machines: `2:4` (elastic) counts as its upper end, `gpu` and `auto` are unknown."""
    if isinstance(value, Const):
        said = str(value.value).rpartition(":")[2]
        if said.isdecimal():
            return Const(int(said), value.origin)
        return Const(Unknown(f"{said!r} processes: as many as the machine has devices", Cause.run_time), value.origin)
    return Op("int", (value,), value.origin)


def _launch(seen: _Seen) -> Launch:
    # torchrun starts one process per node unless told otherwise (torch.distributed.run, --nproc-per-node)
    ranks = Const(1) if seen.launcher == "torchrun" and seen.ranks_per_node is None else seen.ranks_per_node
    if ranks is None and seen.total_ranks is None and asks_the_machine(seen.launcher, seen.environment):
        ranks = visible(seen.environment.get("CUDA_VISIBLE_DEVICES"))
    return Launch(seen.launcher, seen.nodes, ranks, seen.total_ranks, None, dict(seen.environment))


def as_the_environment_says(launch: Launch, environment: Mapping[str, Expr]) -> Launch:
    """torchrun takes options that are not given from variables, PET_NPROC_PER_NODE and PET_NNODES
    (torch.distributed.argparse_util)."""
    told, nodes = environment.get(TORCHRUN_RANKS), environment.get("PET_NNODES")
    if launch.launcher != "torchrun":
        return launch
    if told is not None and launch.ranks_per_node == Const(1):  # its default, which has no place
        launch = replace(launch, ranks_per_node=_count(told))
    return launch if nodes is None or launch.nodes is not None else replace(launch, nodes=_count(nodes))


def asks_the_machine(launcher: Launcher, environment: Mapping[str, Expr]) -> bool:
    """Whether a launcher starts a process on each GPU that it finds, unless its options say how many: deepspeed, and
    accelerate if no file is named (accelerate.commands.launch: `num_processes` is `torch.cuda.device_count()`)."""
    return launcher == "deepspeed" or (launcher == "accelerate" and "ACCELERATE_CONFIG_FILE" not in environment)


def visible(devices: Expr | None) -> Expr | None:
    """How many GPUs `CUDA_VISIBLE_DEVICES=0,1` leaves; None where it names none."""
    if devices is None:
        return None
    if any(True for _ in names(devices)):
        return Op("len", (Op("split", (Op("str", (devices,)), Const(","))),), devices.origin)
    said = evaluate(devices)
    listed = [name for name in str(said).split(",") if name.strip()] if isinstance(said, (str, int)) else []
    return Const(len(listed), devices.origin) if listed and "-1" not in listed else None
