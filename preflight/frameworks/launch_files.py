"""Files that configure how a program is launched, or the library below it: accelerate, DeepSpeed, FSDP, Lightning."""

from __future__ import annotations

from preflight.frameworks.arguments import Arguments
from preflight.frameworks.deepspeed import STAGES, deepspeed_config
from preflight.frameworks.fsdp import fsdp_settings
from preflight.frameworks.lightning import lightning_arguments
from preflight.frameworks.shared import Found, scheme_link
from preflight.program.bindings import constant, first_origin, fold
from preflight.vocabulary.reading import Fact
from preflight.vocabulary.spelling import PRECISIONS, spelled
from preflight.vocabulary.values import Const, Expr, Op, Value


def accelerate(args: Arguments) -> Found:
    """accelerate 1.15: num_processes counts all machines' processes."""
    found = Found()
    mixed = args.get("mixed_precision")
    if constant(mixed) not in (None, "no", False):
        found.add("train.precision", spelled(mixed, PRECISIONS))
    total, machines = args.get("num_processes"), args.get("num_machines", 1)
    per_node = fold(Op("//", (total, machines)), first_origin(total)) if "num_processes" in args else Const(None)
    for name in ("parallel.ranks_per_node", "parallel.gpus_per_node"):
        found.add(name, per_node)
    found.add("parallel.nodes", args.get("num_machines"))
    kind = args.get("distributed_type", "NO")
    strategies: dict[str, Value] = {"MULTI_GPU": "ddp", "FSDP": "fsdp", "NO": "none"}
    found.add("parallel.strategy", Const(strategies.get(str(constant(kind))), first_origin(kind)))
    if constant(kind) == "FSDP":
        known = None if constant(per_node) is None else per_node
        settings = fsdp_settings(args.inner("fsdp_config").all(), 1, mixed, known)
        found.bindings += [b for b in settings if b.field != "parallel.strategy" or constant(b.expr) != "fsdp"]
    _deepspeed(args.inner("deepspeed_config"), found)
    _dynamo(args.inner("dynamo_config"), found)
    return found


def _deepspeed(config: Arguments, found: Found) -> None:
    """accelerate's own few words on DeepSpeed; a file of DeepSpeed's says the rest."""
    stage = config.value("zero_stage")
    if isinstance(stage, int):
        found.add("parallel.strategy", Const(STAGES.get(stage), config.origin("zero_stage")))
    for name, part in (("offload_optimizer_device", "optimizer"), ("offload_param_device", "parameters")):
        if config.value(name) in ("cpu", "nvme"):
            found.add("parallel.offload", Const(part, config.origin(name)))
    steps = config.value("gradient_accumulation_steps")
    if isinstance(steps, int) and not isinstance(steps, bool):
        found.add("train.grad_accum", config.get("gradient_accumulation_steps"))
    scheme_link(config.get("deepspeed_config_file"), found)


def _dynamo(config: Arguments, found: Found) -> None:
    """torch.compile, as accelerate wraps the model in it; `NO` is its word for none."""
    backend = config.value("dynamo_backend")
    if isinstance(backend, str) and backend.upper() != "NO":
        found.add("train.compile", Const(True, config.origin("dynamo_backend")))


def deepspeed(args: Arguments) -> Found:
    """DeepSpeed's JSON: what is "auto" is the Trainer's."""

    def place(keys: tuple[str, ...]) -> Expr | None:
        document = args.document
        if document is None:
            return None
        route = keys if document.has(keys) else keys[:1]
        return Const(None, document.origin(route)) if document.has(route) else None

    stated = args.value("train_batch_size")
    facts = [Fact("stated_batch", stated, args.origin("train_batch_size"))] if isinstance(stated, int) else []
    return Found(deepspeed_config(args.top, place), facts=facts)


def fsdp(args: Arguments) -> Found:
    """The file of `fsdp_config="fsdp.json"`; the argument that names it says that FSDP is used."""
    bindings = fsdp_settings(args.all(), None)
    return Found([b for b in bindings if b.field != "parallel.strategy" or constant(b.expr) != "fsdp"])


def lightning(args: Arguments) -> Found:
    """LightningCLI: `trainer` is the Trainer's arguments; the data module's own names speak for themselves."""
    from preflight.program.names import binding_for

    found = Found(lightning_arguments(args.inner("trainer").all()))
    document = args.document
    for route in document.routes() if document is not None else ():
        key = ".".join(str(part) for part in route)
        if document is not None and route and route[0] in ("data", "model"):
            suggested = binding_for(key, Const(document.value(route), document.origin(route)), "json")
            if suggested is not None:
                found.bindings.append(suggested)
    return found
