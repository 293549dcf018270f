"""Reading: everything that one file says: settings with origins, search axes, links, facts and problems.

A dialect is a module of a package of `preflight.dialects`, with three names:

    NAME: str                                                  "wandb", "hydra", "slurm", "optuna", "program", ...
    def recognises(source: Source, project: Project) -> bool   cheap and sure: a false alarm annoys, doubt means False
    def read(source: Source, call: Call | None, project: Project) -> Reading
                                                               `call` says who starts this file and with what

Dialects do not import each other: a link is followed by `preflight.study`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Literal, TypeAlias

from msgspec import Struct, field

from preflight.vocabulary.budgets import Budget
from preflight.vocabulary.text import DocumentError
from preflight.vocabulary.values import Axis, Cause, Const, Expr, Op, Origin, Span, Unknown, Value, unknown
from preflight.vocabulary.written import Written

Launcher: TypeAlias = Literal["python", "torchrun", "accelerate", "deepspeed", "srun", "wandb-agent", "optuna"]
LinkKind: TypeAlias = Literal["program", "module", "sweep", "config", "script", "command", "job"]
"""module: the target is dotted. command, job: the target is the script that has its line, or the text of the job."""
ParameterKind: TypeAlias = Literal["argparse", "click", "wandb", "hydra", "omegaconf", "dataclass"]
ProblemSeverity: TypeAlias = Literal["error", "warning", "info"]


ONE_PROCESS = "parallel.options.one_process"
"""What makes one process train on all GPUs that it sees: `DATA_PARALLEL`, or a trainer that uses it. No Job has it: the
passes over a box use it up."""
VISIBLE = "parallel.options.visible_gpus"
"""How many GPUs `CUDA_VISIBLE_DEVICES` leaves to a process. No Job has it either."""
DATA_PARALLEL = "torch.nn.DataParallel"
GPUS_SEEN = Unknown("the machine decides how many GPUs the process sees", Cause.run_time, ("parallel.gpus_per_node",))
"""`torch.cuda.device_count()`, where no file says it."""


class Rank(IntEnum):
    """How much a binding's word counts: among bindings of one Job field the highest rank wins, then the last."""

    hint = -2
    """The name suggests the field, but other code reads the value. Used only if no other setting gives the field."""
    not_followed = -1
    """An argument is passed whose value is unknown. It only excludes the library's default."""
    by_name = 0
    """A setting whose name suggests the field."""
    default = 1
    """The default of a library for an argument that is not passed."""
    read = 2
    """Read from the program's text, a tool's settings, the launch or the request."""
    literal = 3
    """Written in a call, where no setting can override it."""
    mapped = 4
    """The user's own map says which field a setting feeds."""
    settings = 5
    """The user's settings state the field."""
    command_line = 6
    """`--set` states the field."""


class Word(Struct, frozen=True):
    """One word of an argv: literal text (`prefix`), then a value, if any.

    `--bs=16` is Word("--bs=", Const("16")), `--bs 16` the two words Word("--bs") and Word("", Const("16")); values that
    the shell passes are strings. `expands` names a macro still to be filled by who knows it ("args").
    """

    prefix: str
    value: Expr | None = None
    origin: Origin | None = None
    hydra_prefix: str = ""
    """`+`, `++` or `~` before a Hydra override."""


def word(text: str, origin: Origin | None = None) -> Word:
    """A literal word, split at the first `=` so that the value has its own place."""
    head, equals, tail = text.partition("=")
    if not equals:
        return Word("", Const(text, origin), origin) if not text.startswith("-") else Word(text, None, origin)
    at = None
    if origin is not None:
        start = origin.span.start + len(head) + 1
        at = Origin(origin.path, Span(start, origin.span.end), None, origin.via, origin.editable)
    return Word(head + equals, Const(tail, at), origin)


class Launch(Struct, frozen=True):
    """How a link starts its target. processes and machines. None: not said here (an outer launch or a default does)."""

    launcher: Launcher = "python"
    nodes: Expr | None = None
    ranks_per_node: Expr | None = None
    total_ranks: Expr | None = None
    trials_per_gpu: Expr | None = None
    environment: Mapping[str, Expr] = field(default_factory=dict)
    multirun: bool = False
    written: Mapping[str, Written] = field(default_factory=dict)
    """Files that scripts wrote before, by their path in the project: what the project has under it is older."""


HET_GROUP = "--het-group"
"""In a launch's environment: which part of a heterogeneous job srun starts it on (its own name: no variable has it)."""
SHM, MEMORY, GPUS = "container:shm", "container:memory", "container:gpus"
"""Where a launch's environment keeps the bytes of the container's /dev/shm and of its memory limit, and its GPUs."""
TORCHRUN_RANKS = "PET_NPROC_PER_NODE"
"""The variable from which torchrun takes its processes per node, where no option says them."""


class Submitted(Struct, frozen=True):
    """How a script gives a job to SLURM: `sbatch OPTIONS job.sh`. `script` is the text of a job that is no file."""

    options: tuple[Word, ...] = ()
    script: Expr | None = None


class Link(Struct, frozen=True):
    """This file starts (or configures) another: `target` relative to the project's root, with `/`.

    `settings` are values the target reads by name without argv (a sweep's parameters through wandb.config).
    `group` numbers the launches of one script: equal numbers run at the same time, different ones one after the other.
    """

    kind: LinkKind
    target: str
    words: tuple[Word, ...] = ()
    settings: Mapping[str, Expr] = field(default_factory=dict)
    launch: Launch = Launch()
    origin: Origin | None = None
    group: int = 0
    directory: str | None = None
    """The current directory in which the target starts, relative to the project's root; None: not known."""
    submitted: Submitted | None = None
    """Set if the target is a job script that is given to sbatch."""


class Call(Struct, frozen=True):
    """How a file is started: a link, seen from its target."""

    caller: str
    words: tuple[Word, ...] = ()
    settings: Mapping[str, Expr] = field(default_factory=dict)
    launch: Launch = Launch()
    directory: str | None = None
    submitted: Submitted | None = None


class Parameter(Struct, frozen=True):
    """A parameter of a program: `name` is its name in expressions (argparse dest, config key)."""

    name: str
    default: Expr
    flags: tuple[str, ...] = ()
    kind: ParameterKind = "argparse"
    type: str | None = None
    """int, float, str, bool, flag (present: True), no-flag (present: False), list"""
    choices: tuple[Value, ...] = ()
    origin: Origin | None = None


class Binding(Struct, frozen=True):
    """A Job field takes the value of an expression over parameters, axes and settings."""

    field: str
    expr: Expr
    rank: Rank = Rank.read
    origin: Origin | None = None
    others: tuple[Value, ...] = ()
    """Of a default: its values in other releases of the library, where no release is stated."""
    perhaps: bool = False
    """Only a run decides whether the program makes the call that says so; nothing else gives the field a value."""


class Setting(Struct, frozen=True):
    """A key of a config layer (dotted), with its value; `rank` orders layers, higher wins."""

    key: str
    expr: Expr
    rank: int = 0


OPEN_ARGUMENTS = "open_arguments"
NOT_SEARCHED = "not_searched"
"""The fact that a budget ended the search for what starts a file, in words."""


class Fact(Struct, frozen=True):
    """Something the program does that rules speak of; see FACTS."""

    name: str
    value: Value
    origin: Origin | None = None


FACTS: Mapping[str, str] = {
    "framework": "transformers-trainer, trl, lightning, ultralytics, accelerate, hand-written",
    NOT_SEARCHED: "words: a budget ended the search for what starts the file",
    "handles_oom": "bool: an OutOfMemoryError is caught and the trial pruned or the run shrunk",
    "oom_teaches_nothing": "bool: a trial that runs out of memory fails, and the sampler leaves failed trials out",
    "search": "optuna, wandb, hydra: what drives the search",
    "contrastive_loss": "bool: the loss compares samples of one micro-batch (CLIP, InfoNCE, SupCon)",
    "eval_unbatched": "bool: a forward or generate call takes the whole evaluation set at once",
    "eval_samples": "int: how many samples that call takes",
    "saves_late": "bool: no checkpoint is written before the first validation",
    "token_mean_loss": "bool: a hand-written loop averages the loss over tokens per micro-batch",
    "loss_undivided": "words: the number of batches whose gradients a loop adds up and does not divide the loss by",
    "kept_outputs": "words: names that hold the model's outputs while backward runs",
    "scheduler_per_micro_batch": "bool: a learning-rate scheduler is stepped once per micro-batch",
    "batch_norm": "bool: the model normalises over the batch",
    "dataset_kind": "map or iterable: whether what is loaded to train on is indexed or iterated; absent: not known",
    "nominal_batch": "int: the framework accumulates to this batch by itself (Ultralytics nbs)",
    "stated_batch": "int: micro-batch x accumulation x ranks, as a DeepSpeed file states it (train_batch_size)",
    "accumulation_supported": "bool: the program reads train.grad_accum",
    "dataset_held": "objects or strings: a data set keeps a list of Python objects that its __init__ builds",
    "sample_files": "bool: a data set opens a file of arrays, of any size, for each sample",
    "checkpoint_loaded": "torch.load: every process reads a whole checkpoint into host memory",
    "one_process": "a device_map: one process has the layers of the model on all GPUs that it sees",
    "changed_by": "words: code that was not read gets the model or its trainer, and may change how it trains",
    OPEN_ARGUMENTS: "words: the arguments of what trains come from a mapping that was not read",
    "extends": "str: the program's own class of the model, and how it extends one of transformers",
    "resembles": "gpt2, llama or bert: the family that a model of the program's own class is estimated as",
    "reads_config": "bool: settings reach the program (argv or a config object)",
}


class Problem(Struct, frozen=True):
    """Something malformed in a file; `rule` names the rule that reports it (invalid-config when none is closer).

    `fix` is the text that would repair the span, where there is exactly one. `also` has more places of the same cause,
    each with the text that would repair it. `kind` tells the problems of one rule apart, where the rule repairs them in
    different ways.
    """

    rule: str
    message: str
    origin: Origin
    severity: ProblemSeverity = "error"
    fix: str | None = None
    safe: bool = False
    related: tuple[tuple[Origin, str], ...] = ()
    kind: str = ""
    also: tuple[tuple[Origin, str], ...] = ()

    @property
    def fix_title(self) -> str:
        """A description of the repair."""
        more = f", and repair {len(self.also)} more" if self.also else ""
        return f"write `{self.fix}`{more}" if self.fix else "take it out"


def cannot_be_parsed(path: str, error: DocumentError) -> Problem:
    """The problem of a file that cannot be parsed. It is no error of the user's if it is in another language."""
    if error.mistake:
        return Problem("invalid-config", error.message, Origin(path, error.span))
    return Problem("invalid-config", f"not read: {error.message}", Origin(path, error.span), "info")


class Unread(Struct, frozen=True):
    """A part of a file that was not followed, since it is over a budget: what it starts is unknown."""

    why: Unknown
    origin: Origin
    whole: bool = False
    """Whether it is all of a program: what it sets may be written anywhere."""

    @classmethod
    def beyond(cls, budget: Budget, origin: Origin, whole: bool = False) -> Unread:
        """What a file has more of than a budget allows."""
        return cls(Unknown(f"it is {budget.over}", Cause.budget), origin, whole)


class Branch(Struct, frozen=True):
    """One box of a conditional space: its fixed values, and its own axes, settings and bindings."""

    fixed: Mapping[str, Value] = field(default_factory=dict)
    axes: tuple[Axis, ...] = ()
    settings: tuple[Setting, ...] = ()
    bindings: tuple[Binding, ...] = ()


class Request(Struct, frozen=True):
    """A request for SLURM, as written (None: not given). `origins` by the names below."""

    nodes: Value = None
    tasks: Value = None
    tasks_per_node: Value = None
    cpus_per_task: Value = None
    memory: Value = None
    """--mem, bytes per node (0: the whole node)"""
    memory_per_cpu: Value = None
    memory_per_gpu: Value = None
    gpus_per_node: Value = None
    gpus: Value = None
    gpus_per_task: Value = None
    gpu_type: Value = None
    partition: Value = None
    constraint: Value = None
    exclusive: bool = False
    shared_with: str | None = None
    """Who else may use its nodes (--exclusive=user, mcs); None: see `exclusive`."""
    time_minutes: Value = None
    array: Value = None
    cpus_per_gpu: Value = None
    tasks_per_gpu: Value = None
    gpus_per_socket: Value = None
    min_nodes: Value = None
    max_nodes: Value = None
    """Both for a range of nodes (`nodes` is unknown then)."""
    cpus_per_node: Value = None
    """--mincpus"""
    tasks_per_socket: Value = None
    tasks_per_core: Value = None
    sockets_per_node: Value = None
    cores_per_socket: Value = None
    threads_per_core: Value = None
    node_list: Value = None
    exclude: Value = None
    time_min_minutes: Value = None
    plane_size: Value = None
    """Tasks that are kept together (--distribution=plane=N)"""
    overcommit: bool = False
    contiguous: bool = False
    tasks_of_layout: bool = False
    """Sockets, cores and threads are given together (--extra-node-info): they say how many tasks there are."""
    licenses: Value = None
    prefer: Value = None
    dependency: Value = None
    local_disk: Value = None
    """--tmp, bytes per node"""
    gres: tuple[tuple[str, str], ...] = ()
    """Everything that is asked of generic resources, GPUs too: (job, node, socket or task; "gpu:a100:2,nvme:1")."""
    origins: Mapping[str, Origin] = field(default_factory=dict)
    insert_at: Origin | None = None
    """An empty span where a new `#SBATCH` line may go (after the last directive)."""
    directives: tuple[tuple[str, str | None, Origin], ...] = ()
    """Every option in order, the environment's and the command line's behind the script's: long name, text, place."""
    components: tuple[Request, ...] = ()
    """The further parts of a heterogeneous job."""


class StartedProgram(Struct, frozen=True):
    """A program that a script starts, by its name, and the places of the links that lead to it.

    Programs of one `group` run at the same time.
    """

    name: str
    group: int
    links: tuple[Origin | None, ...] = ()


class Reading(Struct, frozen=True):
    """All that one file says, unmerged."""

    path: str
    dialect: str
    parameters: tuple[Parameter, ...] = ()
    bindings: tuple[Binding, ...] = ()
    settings: tuple[Setting, ...] = ()
    axes: tuple[Axis, ...] = ()
    branches: tuple[Branch, ...] = ()
    """Boxes of a conditional space; none: one box of `axes`."""
    links: tuple[Link, ...] = ()
    facts: tuple[Fact, ...] = ()
    request: Request | None = None
    problems: tuple[Problem, ...] = ()
    reads: tuple[str, ...] = ()
    """Other files that went into this reading (a composed config's parts, imported modules)."""
    trains: bool = True
    """False: recognised, but it trains no model and makes no study."""
    unread: Unread | None = None
    """What the file starts beyond a budget."""
    trains_itself: bool = False
    """It trains a model beside what its links start."""
    started: tuple[StartedProgram, ...] = ()
    """Every program of a script that may take memory in its job, in their order."""

    @classmethod
    def over(cls, budget: Budget, path: str, dialect: str) -> Reading:
        """The reading of a file that a budget ended: what it says is unknown, since what was not read may set it."""
        return cls(path, dialect, unread=Unread.beyond(budget, Origin(path, Span(0, 0)), whole=True))


TRUE, FALSE = frozenset({"1", "true", "t", "yes", "y", "on"}), frozenset({"0", "false", "f", "no", "n", "off"})
"""Texts that HfArgumentParser's `string_to_bool` and click's BOOL accept (click adds on and off)."""

SWITCHES = ("flag", "no-flag")


def convert(value: Expr, kind: str | None, keyed: bool = False) -> Expr:
    """Text from an argv as a parameter of that type reads it; an operation, so that the way back stays known."""
    if kind in ("int", "float"):
        return Op(kind, (value,), value.origin)
    if isinstance(value, Const) and isinstance(value.value, str):
        text = value.value
        if kind in ("bool", *SWITCHES):
            low = text.lower()
            if low in TRUE | FALSE:
                return Const(low in TRUE, value.origin)
            return unknown(f"{text!r} is not a yes or no", value.origin, Cause.invalid)
        if keyed and kind is None:
            return Const(scalar(text), value.origin)
    return value


def scalar(text: str) -> bool | int | float | str | None:
    """A word of `key=value` as YAML and OmegaConf read it."""
    low = text.lower()
    if low in ("null", "none", "~", ""):
        return None if low != "none" else text
    if low in ("true", "false"):
        return low == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
