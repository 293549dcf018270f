"""Settings that several tools have in common, for rows of their tables."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import replace

from preflight.frameworks.library_defaults import shrinks_itself
from preflight.program.arguments import Arguments
from preflight.program.bindings import bind, constant, first_origin
from preflight.program.rows import FoundSettings
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Fact, Link, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown


def peft_targets(expr: Expr) -> Expr:
    """Names of layers. `all` (LLaMA-Factory) and `all-linear` (peft) are every linear layer."""
    given = constant(expr)
    if given in ("all", "all-linear") or given in (("all",), ("all-linear",)):
        return Const("all-linear", first_origin(expr))
    if isinstance(given, str) and "," in given:
        return Const(tuple(name.strip() for name in given.split(",")), first_origin(expr))
    return expr


def checkpointing(args: Arguments, found: FoundSettings) -> None:
    """Gradient checkpointing: yes, no, or in host memory as Unsloth does."""
    name = "gradient_checkpointing"
    given = args.value(name)
    if isinstance(given, Unknown):
        found.add("train.gradient_checkpointing", args.get(name))
        return
    found.add("train.gradient_checkpointing", Const(given not in (None, False, "false"), args.origin(name)))
    if given in ("unsloth", "offload"):
        found.add("train.activation_offload", Const(True, args.origin(name)))


def doubled(bindings: Iterable[Binding]) -> list[Binding]:
    """The bindings with twice the batch: two samples go through the model for each one of the batch."""
    return [
        replace(b, expr=Op("*", (b.expr, Const(2)), first_origin(b.expr))) if b.field == "train.batch_size" else b
        for b in bindings
    ]


def unmodelled_bits(args: Arguments, found: FoundSettings) -> None:
    """Quantisation that is not bitsandbytes' in 4 or 8 bits is not modelled."""
    for bits, method in (("quant_bits", "quant_method"), ("quantization_bit", "quantization_method")):
        known = args.value(method) in (None, "bnb", "bitsandbytes") and args.value(bits) in (4, 8)
        if bits in args and not known:
            reason = f"{args.value(bits)} bits by {args.value(method) or 'bnb'} are not modelled"
            found.add("train.quantization.type", Const(Unknown(reason, Cause.not_modelled), args.origin(bits)))


def shrinking(args: Arguments, found: FoundSettings) -> None:
    """A Trainer that reduces the batch until it fits."""
    expr = shrinks_itself(args.given)
    if expr is not None:
        found.facts.append(Fact("handles_oom", True, first_origin(expr)))


def file_link(expr: Expr, found: FoundSettings) -> None:
    """A further file of settings that the tool reads."""
    target = constant(expr)
    if isinstance(target, str) and target.endswith((".json", ".yaml", ".yml")):
        found.links.append(Link("config", posixpath.normpath(target), origin=expr.origin))


def scheme_link(expr: Expr, found: FoundSettings) -> None:
    """The same for a file of DeepSpeed, which alone says what is sharded."""
    before = len(found.links)
    file_link(expr, found)
    found.schemes += found.links[before:]


def unread(found: FoundSettings, project: Project) -> list[Binding]:
    """`parallel.strategy` is unknown if a file that is not in the project says how the model is sharded."""
    missing = [link for link in found.schemes if not project.exists(link.target)]
    reason = "{} says how the model is sharded, and is not in the project"
    return [
        bind(
            "parallel.strategy", Const(Unknown(reason.format(one.target), Cause.file_not_found), one.origin), Rank.read
        )
        for one in missing
    ]


def linked_files(args: Arguments, found: FoundSettings) -> None:
    """`deepspeed: ds.json`, `fsdp_config: fsdp.json`."""
    scheme_link(args.get("deepspeed"), found)
    file_link(args.get("fsdp_config"), found)
