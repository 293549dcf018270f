"""Settings that a launch adds to a program: accelerate's environment, and data parallelism of several processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preflight.frameworks.deepspeed import STAGES
from preflight.frameworks.fsdp import fsdp_details, fsdp_settings
from preflight.frameworks.launchers import asks_the_machine, visible
from preflight.frameworks.named_files import PROCESSES, SHARDING, folders, located, name_in, without_file
from preflight.frameworks.shared import scheme_link
from preflight.program.arguments import Arguments
from preflight.program.bindings import bind, constant, first_origin, fold, unless_unset
from preflight.program.rows import FoundSettings
from preflight.python.position import ProgramArguments, ProgramStart
from preflight.vocabulary.argv import until_unread_words
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import DATA_PARALLEL, ONE_PROCESS, VISIBLE, Binding, Call, Fact, Launch, Link, Rank
from preflight.vocabulary.spelling import PRECISIONS, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown, evaluate, names, unknown

_ACCELERATED = ("accelerate", "transformers-trainer", "trl")
"""Frameworks that read what `accelerate launch` puts into the environment."""


def launch_bindings(
    call: Call | None, facts: Sequence[Fact], bindings: Sequence[Binding], project: Project
) -> list[Binding]:
    """The program's bindings after those of its launch: of the same rank, the program's win."""
    several = call is not None and _several(call.launch)
    framework = next((fact.value for fact in facts if fact.name == "framework"), None)
    if framework == _ON_EACH_GPU and call is not None:
        several = several or _has_gpus(call.launch)
    found = list(_environment(call.launch.environment)) if call is not None and framework in _ACCELERATED else []
    kept = [b for b in bindings if several or b.field != "parallel.strategy" or b.rank != Rank.default]
    if several and framework in (*_ACCELERATED, _ON_EACH_GPU):
        found.insert(0, bind("parallel.strategy", Const("ddp"), Rank.default))
    rented = call is None and any(binding.field == VISIBLE for binding in bindings)  # by Ray or Modal
    plain = rented or (call is not None and call.launch.launcher in _PLAIN)
    if framework in _OVER_ALL and not several and plain:
        found.append(bind(ONE_PROCESS, Const(f"{framework}'s use of {DATA_PARALLEL}")))
    missing = list(_without_files(call, project)) if call is not None and framework in _ACCELERATED else []
    counted = list(_counted_by_the_machine(call.launch)) if call is not None else []
    return [*missing, *counted, *found, *kept]


_ON_EACH_GPU = "lightning"
"""The framework that starts a process on each GPU itself."""
_OVER_ALL = ("transformers-trainer", "trl")
"""Frameworks that use DataParallel if one process sees several GPUs (transformers.Trainer, `_wrap_model`)."""
_PLAIN = ("python", "srun")
"""Launchers that start no process on each GPU."""


def visible_gpus(own: Expr | None, call: Call | None) -> list[Binding]:
    """How many GPUs a process sees: by the `CUDA_VISIBLE_DEVICES` that the program sets, else by that of its launch."""
    devices = own if own is not None else call.launch.environment.get("CUDA_VISIBLE_DEVICES") if call else None
    count = visible(devices)
    return [] if count is None else [bind(VISIBLE, count, Rank.read)]


def _counted_by_the_machine(launch: Launch) -> Iterator[Binding]:
    """The processes of a launcher that starts one on each GPU of the machine. A file of accelerate's in the user's home
    may say something else."""
    stated = launch.ranks_per_node is not None or launch.total_ranks is not None
    if stated or not asks_the_machine(launch.launcher, launch.environment):
        return
    sharded = ("parallel.strategy",) if launch.launcher == "accelerate" else ()
    for field in ("parallel.ranks_per_node", "parallel.gpus_per_node", *sharded):
        why = Unknown(f"{launch.launcher} starts a process on each GPU of the machine", Cause.run_time, (field,))
        yield bind(field, Const(why), Rank.not_followed)


_LAUNCHED = ("parallel.strategy", "parallel.ranks_per_node", "parallel.gpus_per_node", "train.precision")
"""What `accelerate launch`, `torchrun` or `tune run` decide if the file of the trainer does not."""


def without_launch(found: FoundSettings) -> Iterator[Binding]:
    """What a launch would decide, unknown as long as no file is seen to start the run. Values of the file win."""
    stated = {one.field for one in found.bindings if one.rank >= Rank.read}
    stated |= {"parallel.strategy"} if found.schemes else set()
    halved = [b for b in found.bindings if b.field == "train.precision" and constant(b.expr) not in (None, "fp32")]
    stated |= {"train.precision"} if halved else set()  # TRL's own bf16, which no launch takes back
    for field in _LAUNCHED:
        if field not in stated:
            words = "the command that starts the run decides it, and no file that was read has that command"
            yield bind(field, Const(Unknown(words, Cause.not_set, (field,))), Rank.not_followed)


_RENDEZVOUS = frozenset({"MASTER_ADDR", "MASTER_PORT"})
"""Variables that say where processes meet. No memory depends on them, and most scripts set others."""


def _unplaced(expr: Expr) -> Expr:
    """A value without its place, so that scripts that give the same one share one evaluation of the program."""
    return expr if any(True for _ in names(expr)) else Const(evaluate(expr))


def _unknown_unplaced(expr: Expr) -> Expr:
    """The same for values that are unknown; a known one keeps its place, which findings and fixes name."""
    unplaced = _unplaced(expr)
    return unplaced if isinstance(unplaced, Const) and isinstance(unplaced.value, Unknown) else expr


def environment_of(launch: Launch) -> dict[str, Expr]:
    """The program's environment: variables that the script exports, and those that the launcher sets."""
    found = {name: _unknown_unplaced(expr) for name, expr in launch.environment.items() if name not in _RENDEZVOUS}
    total = launch.total_ranks
    if total is None and launch.ranks_per_node is not None:
        total = fold(Op("*", (launch.ranks_per_node, launch.nodes or Const(1))))
    count = (
        _unplaced(fold(Op("str", (total,))))
        if total is not None
        else unknown("the number of processes is not stated", cause=Cause.run_time)
    )
    if launch.launcher in ("torchrun", "accelerate", "deepspeed"):
        for name, expr in (("RANK", Const("0")), ("LOCAL_RANK", Const("0")), ("WORLD_SIZE", count)):
            found.setdefault(name, expr)
    elif launch.launcher == "srun":
        for name, expr in (("SLURM_PROCID", Const("0")), ("SLURM_LOCALID", Const("0")), ("SLURM_NTASKS", count)):
            found.setdefault(name, expr)
    return found


def start_of(call: Call | None) -> ProgramStart:
    """What the launch gives the program: nothing that is known, if no launch was read."""
    if call is None:
        return ProgramStart()
    return ProgramStart(environment_of(call.launch), ProgramArguments(*until_unread_words(call.words)), call.directory)


def _several(launch: Launch) -> bool:
    """Whether the launch may start more than one process (an unknown number counts)."""
    for expr in (launch.ranks_per_node, launch.total_ranks, launch.nodes):
        value = constant(expr) if expr is not None else 1
        if isinstance(value, Unknown) or (isinstance(value, (int, float)) and value > 1):
            return True
    return False


def _has_gpus(launch: Launch) -> bool:
    """Whether SLURM gives the job more than one GPU on a node."""
    given = launch.environment.get("SLURM_GPUS_ON_NODE")
    count = None if given is None else evaluate(Op("int", (given,)))
    return isinstance(count, int) and count > 1


def _environment(environment: Mapping[str, Expr]) -> Iterator[Binding]:
    """Variables of accelerate.utils.launch, as Accelerator reads them."""
    mixed = environment.get("ACCELERATE_MIXED_PRECISION")
    if mixed is not None and str(constant(mixed)) != "no":
        yield bind("train.precision", spelled(mixed, PRECISIONS), Rank.read)
    steps = environment.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS")
    if steps is not None:
        yield bind("train.grad_accum", steps, Rank.read)
    if "ACCELERATE_USE_FSDP" in environment:
        settings = {name: expr for name, expr in environment.items() if name.startswith("FSDP_")}
        yield from fsdp_settings(settings, 1, mixed)
    backend = environment.get("ACCELERATE_DYNAMO_BACKEND")
    if backend is not None and str(constant(backend)).upper() != "NO":
        yield bind("train.compile", Const(True, backend.origin), Rank.read)
    stage = constant(environment.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", Const(2)))  # accelerate's default stage
    number = int(stage) if isinstance(stage, (int, str)) and str(stage).isdecimal() else 2
    if "ACCELERATE_USE_DEEPSPEED" in environment:
        yield bind("parallel.strategy", Const(STAGES.get(number, "zero2")), Rank.read)
    for name, part, least in (("OPTIMIZER", "optimizer", 1), ("PARAM", "parameters", 3)):
        device = environment.get(f"ACCELERATE_DEEPSPEED_OFFLOAD_{name}_DEVICE")
        if device is not None and constant(device) in ("cpu", "nvme") and number >= least:
            yield bind("parallel.offload", Const(part, device.origin), Rank.read)


_FILES = {
    "ACCELERATE_CONFIG_FILE": ("train.precision", "train.grad_accum", *PROCESSES, *SHARDING),
    "ACCELERATE_DEEPSPEED_CONFIG_FILE": ("train.precision", "train.batch_size", "train.grad_accum", *SHARDING),
}
"""Files that `accelerate launch` names, and the Job fields that they may set."""


def launch_links(call: Call | None, project: Project) -> Iterator[Link]:
    """Configuration files that the launch names (`accelerate launch --config_file`)."""
    for expr, path, _ in _named(call, project):
        if path is not None:
            yield Link("config", path, origin=expr.origin)


def _named(call: Call | None, project: Project) -> Iterator[tuple[Expr, str | None, tuple[str, ...]]]:
    """The file names in a launch, each with its path in the project, if it is there, and the fields it may set."""
    for variable, fields in _FILES.items():
        expr = call.launch.environment.get(variable) if call is not None else None
        if call is not None and expr is not None:
            name = name_in(expr)
            yield expr, located(name, project, folders(call.caller, call)) if name is not None else None, fields


def _without_files(call: Call, project: Project) -> Iterator[Binding]:
    """Settings of a launch whose file is not in the project. What the launch or the program states itself is known."""
    stated = {"parallel.ranks_per_node"} if call.launch.ranks_per_node or call.launch.total_ranks else set()
    for expr, path, fields in _named(call, project):
        if path is None:
            rest = [field for field in fields if field not in SHARDING and field not in stated]
            yield from without_file(name_in(expr) or "", expr.origin)
            yield from without_file(name_in(expr) or "", expr.origin, rest, Rank.not_followed)


# Rules that tables/accelerate.toml cannot express.


def processes(args: Arguments, found: FoundSettings) -> None:
    """accelerate: ranks of a node, and how FSDP shards over them."""
    total, machines = args.get("num_processes"), args.get("num_machines", 1)
    per_node = fold(Op("//", (total, machines)), first_origin(total)) if "num_processes" in args else Const(None)
    for name in ("parallel.ranks_per_node", "parallel.gpus_per_node") if "num_processes" in args else ():
        found.add(name, per_node)
    if args.value("distributed_type") == "FSDP":
        known = None if constant(per_node) is None else per_node
        found.bindings += fsdp_details(args.inner("fsdp_config").given, 1, args.get("mixed_precision"), known)


def own_precision(expr: Expr) -> Expr:
    """`Accelerator(mixed_precision=args.mixed_precision)`: None, the flag's usual default, is as the launch says."""
    return Const(None) if constant(expr) is None else unless_unset(expr, spelled(expr, PRECISIONS))


def scheme(args: Arguments, found: FoundSettings) -> None:
    """accelerate: a file of DeepSpeed's."""
    scheme_link(args.get("deepspeed_config.deepspeed_config_file"), found)
