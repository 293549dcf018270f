"""What readers of argument files collect, and what several of them say in the same way."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from preflight.frameworks.arguments import Arguments
from preflight.frameworks.library_defaults import shrinks_itself
from preflight.program.bindings import bind, constant, first_origin
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Fact, Link, Problem, Rank
from preflight.vocabulary.records import dataclass, field
from preflight.vocabulary.spelling import OPTIMIZERS, spelled
from preflight.vocabulary.values import Cause, Const, Expr, Unknown, Value


@dataclass
class Found:
    bindings: list[Binding] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    schemes: list[Link] = field(default_factory=list)
    """Of the links, those to a file that says how the model is sharded."""

    def add(self, name: str, expr: Expr, rank: Rank | None = Rank.read) -> None:
        """A binding, unless the value is None; without a place it is a default."""
        if constant(expr) is not None:
            self.bindings.append(bind(name, expr, rank if first_origin(expr) is not None else Rank.default))

    def default(self, name: str, value: Value) -> None:
        """What the tool does where nobody says otherwise."""
        self.bindings.append(bind(name, Const(value), Rank.default))

    def when_true(self, args: Arguments, key: str, name: str, value: Value = True) -> None:
        """The field takes `value` where the key is a yes, at the key's place."""
        if args.value(key) is True:
            self.add(name, Const(value, args.origin(key)))

    def has(self, name: str) -> bool:
        return any(binding.field == name for binding in self.bindings)


def lora(
    args: Arguments, found: Found, rank: str, rank_default: int, dropout: str, dropout_default: float, targets: str
) -> None:
    """LoRA by a tool's own names; `all` is LLaMA-Factory's word for every linear layer, `all-linear` peft's."""
    found.bindings.append(bind("train.peft.method", Const("lora"), Rank.read))
    found.add("train.peft.r", args.get(rank, rank_default))
    found.add("train.peft.dropout", args.get(dropout, dropout_default))
    given = args.value(targets)
    if given in ("all", "all-linear") or given in (("all",), ("all-linear",)):
        found.add("train.peft.targets", Const("all-linear", args.origin(targets)))
    elif isinstance(given, str) and "," in given:
        found.add("train.peft.targets", Const(tuple(x.strip() for x in given.split(",")), args.origin(targets)))
    else:
        found.add("train.peft.targets", args.get(targets))


def lora_kind(args: Arguments, found: Found) -> None:
    """DoRA and its like are kept apart from LoRA: what they keep is not what LoRA keeps."""
    for name in ("use_dora", "peft_use_dora"):
        found.when_true(args, name, "train.peft.method", "dora")


def quantized(
    args: Arguments, found: Found, names: Mapping[str, str], compute: Expr | None = None, double: bool | None = None
) -> None:
    """`load_in_4bit: true` and its like: key -> what weights are then stored as. `compute` is the type that the tool
    computes in, `double` whether it quantises the scales, too."""
    for name, kind in names.items():
        found.when_true(args, name, "train.quantization.type", kind)
    if any(args.value(name) is True and kind in ("nf4", "fp4") for name, kind in names.items()):
        if compute is not None:
            found.add("train.quantization.compute_dtype", compute)
        if double is not None:
            found.default("train.quantization.double_quant", double)


def optimizer(args: Arguments, found: Found, name: str, default: str) -> None:
    """train.optimizer by a tool's key."""
    found.add("train.optimizer", spelled(args.get(name, default), OPTIMIZERS, "other"))


def attention(args: Arguments, found: Found, name: str, spellings: Mapping[str, str]) -> None:
    """train.attention by a tool's key; what the tool decides while it runs says nothing."""
    given = args.value(name)
    if given is not None and str(given).lower() in spellings:
        found.add("train.attention", spelled(args.get(name), spellings))


def checkpointing(args: Arguments, found: Found, name: str = "gradient_checkpointing") -> None:
    """Yes or no, or Unsloth's way: checkpoints that wait in host memory."""
    given = args.value(name)
    if isinstance(given, Unknown):
        found.add("train.gradient_checkpointing", args.get(name))
        return
    found.add("train.gradient_checkpointing", Const(given not in (None, False, "false"), args.origin(name)))
    if given in ("unsloth", "offload"):
        found.add("train.activation_offload", Const(True, args.origin(name)))


def shrinking(args: Arguments, found: Found) -> None:
    """A Trainer that looks for a batch that fits."""
    expr = shrinks_itself(args.all())
    if expr is not None:
        found.facts.append(Fact("handles_oom", True, first_origin(expr)))


def file_link(expr: Expr, found: Found) -> None:
    """A further file of settings that the tool reads."""
    target = constant(expr)
    if isinstance(target, str) and target.endswith((".json", ".yaml", ".yml")):
        found.links.append(Link("config", posixpath.normpath(target), origin=expr.origin))


def scheme_link(expr: Expr, found: Found) -> None:
    """The same for a file of DeepSpeed's, which alone says what is sharded."""
    before = len(found.links)
    file_link(expr, found)
    found.schemes += found.links[before:]


def unread(found: Found, project: Project) -> list[Binding]:
    """How a model is sharded by a file that is not in the project: nobody can say."""
    missing = [link for link in found.schemes if not project.exists(link.target)]
    reason = "{} is not in the project, and says how the model is sharded"
    return [
        bind(
            "parallel.strategy", Const(Unknown(reason.format(one.target), Cause.file_not_found), one.origin), Rank.read
        )
        for one in missing
    ]


def deepspeed_link(args: Arguments, found: Found) -> None:
    """`deepspeed: ds.json`."""
    scheme_link(args.get("deepspeed"), found)
    file_link(args.get("fsdp_config"), found)
