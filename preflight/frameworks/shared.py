"""Settings that several tools have in common, for rows of their tables."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

from preflight.frameworks.library_defaults import shrinks_itself
from preflight.frameworks.named_files import joined, name_in, without_file
from preflight.program.arguments import Arguments
from preflight.program.bindings import constant, first_origin
from preflight.program.rows import FoundSettings
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Fact, Link
from preflight.vocabulary.values import Cause, Const, Expr, Unknown


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


def scheme_link(expr: Expr, found: FoundSettings) -> None:
    """A file of DeepSpeed or FSDP, which alone says what is sharded. It may have any name."""
    value = constant(expr)
    if isinstance(value, Mapping) or value in (None, "", "true", "false", True, False):
        return
    name = name_in(expr) or ""
    if "." in name or "/" in name or isinstance(value, Unknown):
        found.links.append(Link("config", posixpath.normpath(name) if name else "", origin=first_origin(expr)))
        found.schemes.append(found.links[-1])


def settle_files(found: FoundSettings, project: Project, starts: Sequence[str]) -> None:
    """Finds the files that the tool's settings name. Without one, what it says of sharding is unknown."""
    there, missing = joined(found.links, project, starts)
    found.links = [*there, *missing]
    for link in missing:
        if link in found.schemes:
            found.bindings += without_file(link.target, link.origin)


def linked_files(args: Arguments, found: FoundSettings) -> None:
    """`deepspeed: ds.json`, `fsdp_config: fsdp.json`."""
    scheme_link(args.get("deepspeed"), found)
    scheme_link(args.get("fsdp_config"), found)
