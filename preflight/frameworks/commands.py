"""Commands that train without a program of the project: their tool, their file and their settings.

`tune run RECIPE --config x.yaml k=v`, `litgpt finetune_lora CHECKPOINT --train.micro_batch_size 2`, `swift sft ...`,
`llamafactory-cli train x.yaml`, `trl sft --config x.yaml`, `axolotl train x.yaml`, `yolo train model=x.pt`; and the
same as modules behind a launcher (`accelerate launch -m axolotl.cli.train x.yaml`), or as scripts of a checkout that is
not the project (`accelerate launch diffusers/examples/dreambooth/train_dreambooth_lora_sdxl.py ...`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from preflight.frameworks.launchers import MIXED_PRECISION, take_apart, text, visible
from preflight.frameworks.table import ToolCommand, heads
from preflight.frameworks.ultralytics import training
from preflight.program.bindings import constant, fold
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Fact, Launch, Reading, Request, Word
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Scalar, Unknown

_FILES = (".yaml", ".yml", ".json")
KIND = "kind="
"""A word that says which tool reads a file of settings whose own keys do not."""
_METHODS = ("lora", "full", "adapter", "adapter_v2")


class Started(Struct, frozen=True):
    """A trainer's command: `file` is the word that names its file of settings, `words` are all other settings."""

    kind: str
    file: Word | None
    words: tuple[Word, ...]
    launch: Launch


def started_by(source: str, words: Sequence[Word]) -> tuple[str, tuple[Word, ...]] | None:
    """The command that a script of the project is by its import, as a clone of the tool's repository has one."""
    for command in commands().values():
        for line, first in command.starters.items():
            if re.search(rf"^{re.escape(line)}\b", source, re.MULTILINE):
                return command.name, (Word("", Const(first)), *words)
    return None


def module(name: str, words: Sequence[Word]) -> tuple[str, tuple[Word, ...]] | None:
    """The command that a module (or its file, `swift/cli/sft.py`) runs, with its words; None for another module."""
    dotted = name.removesuffix(".py").replace("/", ".") if name.endswith(".py") else name
    for command in commands().values():
        known = {one: one for one in command.trains} if command.scripts else command.modules
        for name, first in known.items():
            if dotted == name or dotted.endswith(f".{name}"):
                return command.name, ((Word("", Const(first)), *words) if first else tuple(words))
    return None


@lru_cache(maxsize=1)
def commands() -> Mapping[str, ToolCommand]:
    """Kind of settings -> the command that reads them."""
    return {kind: head.command for kind, head in heads().items() if head.command is not None}


@lru_cache(maxsize=64)
def kind_named(name: str) -> str | None:
    """The kind of settings that a command reads."""
    return next((kind for kind, command in commands().items() if command.name == name), None)


def one_process(launch: Launch) -> Launch | None:
    """The launch of a tool's script by Python itself, on one GPU. None: it is on several, which one process shares in
    a way that is not modelled, or nothing says how many."""
    if launch.launcher != "python" or launch.ranks_per_node is not None:
        return launch
    seen = visible(launch.environment.get("CUDA_VISIBLE_DEVICES"))
    return replace(launch, ranks_per_node=Const(1)) if seen is not None and constant(seen) == 1 else None


def alone(name: str, launch: Launch) -> Launch:
    """The launch of a tool's module (`python -m axolotl.cli.train`), which starts no processes if the tool's command
    alone does."""
    counted = launch.ranks_per_node is not None or launch.total_ranks is not None or launch.launcher != "python"
    several = counted or commands()[str(kind_named(name))].module_spawns
    return launch if several else replace(launch, ranks_per_node=Const(1))


def copied(name: str, source: str) -> bool:
    """Whether a program of the project is a copy of one of diffusers' scripts, which cannot be read line by line. One
    that does not load the model of its option is another program by now."""
    script = name.rpartition("/")[2].removesuffix(".py")
    return script in commands()["diffusers"].trains and all(
        word in source for word in ("check_min_version(", "accelerator.prepare(", "args.pretrained_model_name_or_path")
    )


def effective(words: Sequence[Word], source: str) -> tuple[Word, ...]:
    """Words without the options that a copied script declares and never uses: `train_text_to_image_lora.py` of
    diffusers 0.24 takes --gradient_checkpointing, and switches nothing on. And with the defaults that it declares."""
    given = {word.prefix.rstrip("=") for word in words}
    words = (*(Word(f"{name}=", Const(default)) for name, default in _defaults(source) if name not in given), *words)
    kept, unused = [], False
    for word in words:
        if word.prefix.startswith("--"):
            option = word.prefix.removesuffix("=")
            used = re.search(rf"\bargs\.{re.escape(option[2:].replace('-', '_'))}\b", source)
            unused = re.search(rf"""["']{re.escape(option)}["']""", source) is not None and used is None
        kept += [] if unused else [word]
    return tuple(kept)


def _defaults(source: str) -> Iterator[tuple[str, Scalar]]:
    """The options of a script with the defaults that it writes in its own text."""
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError, RecursionError):
        return
    for call in calls:
        name = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument" and isinstance(name, str):
            for one in call.keywords:
                known = one.arg == "default" and isinstance(one.value, ast.Constant)
                if known and isinstance(value := getattr(one.value, "value", None), (str, int, float)):
                    yield from [] if isinstance(value, bool) else [(name, value)]


def started(name: str, words: Sequence[Word], launch: Launch, request: Request | None) -> Started | None:
    """The launch of a command; None if it trains nothing."""
    if name == "yolo":
        settings = training(words)
        words = () if settings is None else (Word("", Const("train")), *settings)
    first = text(words[0]) if words else None
    kind = kind_named(name)
    if first is None or kind is None or first not in commands()[kind].trains:
        return None
    rest = tuple(words[1:])
    said: list[Word] = []
    if name == "trl":
        launch, rest = _accelerated(launch, rest)
    if name == "tune":
        apart = take_apart([Word("", Const("torchrun")), *rest])
        if apart.target is None:
            return None
        launch = _counted(launch, apart.launch.nodes, _stated(rest, apart.launch))
        said.append(Word("method=", Const(apart.name, apart.target.origin)))
        rest = apart.words
    else:
        nodes = launch.environment.get("NNODES")
        machines = fold(Op("int", (nodes,)), nodes.origin) if nodes is not None else None
        launch = _counted(launch, machines, _processes(name, launch, request))
    if name == "litgpt":
        method, rest = _litgpt(first, rest)
        said.append(Word("method=", Const(method, words[0].origin)))
    elif commands()[kind].tells_its_word:
        said.append(Word("method=", Const(first, words[0].origin)))
    if name == "swift" and launch.ranks_per_node is not None:
        said.append(Word("nproc_per_node=", launch.ranks_per_node))
    file = _settings_file(rest) if name != "yolo" else _named_file(rest, "cfg=")
    if name == "yolo" and file is not None:
        said.append(Word(KIND, Const(kind)))
        rest = tuple(word for word in rest if word.prefix != "cfg=")
    kept = [word for word in rest if word is not file and word.prefix.rstrip("=") != "--config"]
    return Started(kind, file or _config(rest), (*said, *kept), launch)


def _accelerated(launch: Launch, words: Sequence[Word]) -> tuple[Launch, tuple[Word, ...]]:
    """TRL starts its scripts with `accelerate launch`, and takes the name of accelerate's file and the number of
    processes from words of its own (trl.cli: --accelerate_config, --num_processes). The words without these."""
    rest: list[Word] = []
    environment, ranks, left = dict(launch.environment), launch.total_ranks, list(words)
    while left:
        word = left.pop(0)
        flag = word.prefix.rstrip("=") if word.prefix else text(word)
        value = word.value if word.prefix.endswith("=") else left[0].value if left else None
        if flag not in ("--accelerate_config", "--num_processes") or value is None:
            rest.append(word)
            continue
        if not word.prefix.endswith("="):
            left.pop(0)
        if flag == "--num_processes":
            ranks = Op("int", (value,), value.origin)
        else:
            environment["ACCELERATE_CONFIG_FILE"] = value
    launcher = "accelerate" if launch.launcher == "python" else launch.launcher
    return replace(launch, launcher=launcher, total_ranks=ranks, environment=environment), tuple(rest)


def _settings_file(words: Sequence[Word]) -> Word | None:
    """The file of settings: a word of its own, or the value of `--config`. Behind any other option (`--deepspeed`,
    `--dataset_info`) a file is the value of that option."""
    before = ""
    for word in words:
        end = word.value.operands[-1] if isinstance(word.value, Op) and word.value.operator == "concat" else None
        known = text(word) or (str(constant(end)) if end is not None else "")  # `$DIR/x.yaml`
        named = known.endswith(_FILES) and not word.prefix.strip("-=")
        if named and (not before or before == "--config"):
            return word
        before = word.prefix if word.prefix.startswith("--") and word.value is None else ""
    return None


def _named_file(words: Sequence[Word], prefix: str) -> Word | None:
    """The file of settings that a word of the form `cfg=x.yaml` names."""
    found = next((word for word in words if word.prefix == prefix and word.value is not None), None)
    return None if found is None else Word("", found.value, found.origin)


def _config(words: Sequence[Word]) -> Word | None:
    """`--config=x.yaml` in one word."""
    return _named_file(words, "--config=")


def _stated(words: Sequence[Word], launch: Launch) -> Expr | None:
    """Processes of `tune run`, which starts one without torchrun unless it is told how many."""
    named = any(word.prefix.rstrip("=").replace("-", "_") == "__nproc_per_node" for word in words)
    return launch.ranks_per_node if named else None


def _counted(launch: Launch, nodes: Expr | None, ranks: Expr | None) -> Launch:
    return replace(launch, nodes=nodes or launch.nodes, ranks_per_node=ranks or launch.ranks_per_node)


def _processes(name: str, launch: Launch, request: Request | None) -> Expr | None:
    """How many processes the command starts on a node: as NPROC_PER_NODE says, or one on each GPU that it sees.

    `llamafactory-cli train` starts torchrun with `torch.cuda.device_count()` processes (its cli.py and launcher.py),
    `axolotl train` starts `accelerate launch`.
    """
    stated = launch.environment.get("NPROC_PER_NODE")
    if stated is not None and name in ("swift", "llamafactory-cli"):
        return Op("int", (stated,), stated.origin)
    started = launch.launcher in ("torchrun", "accelerate", "deepspeed") or launch.total_ranks is not None
    if not commands()[str(kind_named(name))].spawns or started or launch.ranks_per_node is not None:
        return None
    seen = visible(launch.environment.get("CUDA_VISIBLE_DEVICES"))
    if seen is not None:
        return seen
    gpus = request.gpus_per_node if request is not None else None
    if isinstance(gpus, int):
        return Const(gpus, request.origins.get("gpus_per_node") if request is not None else None)
    return Const(Unknown(f"{name} starts a process on each GPU of the machine", Cause.run_time))


def _litgpt(first: str, words: tuple[Word, ...]) -> tuple[str, tuple[Word, ...]]:
    """`litgpt finetune_lora CHECKPOINT ...`, `litgpt finetune lora ...`, `litgpt pretrain MODEL ...`."""
    method = first.removeprefix("finetune").lstrip("_") or "lora"
    if words and not words[0].prefix and text(words[0]) in _METHODS:
        method, words = str(text(words[0])), words[1:]
    if words and not words[0].prefix and words[0].value is not None:
        key = "model_name" if first == "pretrain" else "checkpoint_dir"
        words = (Word(f"{key}=", words[0].value, words[0].origin), *words[1:])
    return method, words


# A trainer's command without a file of the project: everything it does stands on its line of a job script.

NAME = "commands"


def recognises(source: Source, project: Project) -> bool:
    """No file is a command by itself: `preflight.study` passes on the line of a script that has one."""
    return False


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """The bindings of the command in `call`: its first word names the reader of its settings."""
    from preflight.frameworks.arguments import after_unread_words, arguments_of, given_by
    from preflight.frameworks.launch import launch_bindings, launch_links, visible_gpus
    from preflight.frameworks.named_files import folders
    from preflight.frameworks.shared import settle_files
    from preflight.frameworks.table import read as read_table
    from preflight.frameworks.transformers_trainer import BOUNDS
    from preflight.program.versions import bounds, pinned
    from preflight.vocabulary.argv import behind_unread_words

    words = call.words if call is not None else ()
    kind = words[0].value.value if words and isinstance(words[0].value, Const) else None
    if not isinstance(kind, str) or kind not in heads():
        return Reading(source.path, NAME, trains=False)
    versions = list(pinned(source.path, project))
    given = given_by(words[1:]) | {one.field: one.expr for one in versions}
    given |= {f"{BOUNDS}{name}": Const(said) for name, said in bounds(source.path, project)}
    mixed = call.launch.environment.get(MIXED_PRECISION) if call is not None else None
    if heads()[kind].framework == "accelerate" and mixed is not None:
        given.setdefault("mixed_precision", mixed)
    found = read_table(kind, arguments_of(None, {}, given))
    settle_files(found, project, folders(source.path, call))
    behind = read_table(kind, arguments_of(None, {}, given_by(behind_unread_words(words[1:])[1]))).bindings
    found.bindings = after_unread_words(words[1:], found.bindings, behind)
    facts = (Fact("framework", heads()[kind].framework), *found.facts)
    links = (*launch_links(call, project), *found.links)
    bindings = (*versions, *visible_gpus(None, call), *launch_bindings(call, facts, found.bindings, project))
    return Reading(source.path, kind, bindings=bindings, links=links, facts=facts, problems=tuple(found.problems))
