"""Make the shipped laws: `python scripts/make_laws.py [FAMILY ...] [--missing | --only WORDS]`. Needs the `test` extra.

Every law is made from traces of small models and proved on a deeper one (preflight.memory.device.fit.make). A setup
that a family does not have (an architecture without SDPA, say) is left out; everything else must succeed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from law_files import write
from msgspec.structs import replace

from preflight.memory.device.families import FAMILIES, GROUPED, Family
from preflight.memory.device.fit.batch_one import make_law
from preflight.memory.device.fit.make import CannotMake
from preflight.memory.device.fit.subprocess import TraceError
from preflight.memory.device.law.adapters import Adapters
from preflight.memory.device.law.made import MadeLaw, Runner
from preflight.memory.device.law.quantization import QuantizedWeights
from preflight.memory.device.law.setup import Setup
from preflight.memory.device.law.store import (
    FORMAT,
    LawKey,
    key_text,
    keys,
    law_path,
    load,
    made_by,
    pack,
    packed_laws,
)
from preflight.memory.device.workloads.remote_code import SAME_CODE

PRECISIONS = (("fp32", None), ("fp32", "bf16"), ("bf16", None))
LORA_PRECISIONS = (("fp32", "bf16"), ("bf16", None), ("bf16", "bf16"))
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
# Config keys whose other value is usual as well. A GPT that a program builds itself has an activation of one kernel.
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "llama": ({}, {"tie_word_embeddings": True}, {GROUPED: False}, {GROUPED: False, "tie_word_embeddings": True}),
    "phi3": ({GROUPED: False}, {}),
    "qwen2": ({}, {"tie_word_embeddings": False}, {GROUPED: False, "tie_word_embeddings": False}, {GROUPED: False}),
    "gpt2": ({}, NO_DROPOUT, {**NO_DROPOUT, "activation_function": "gelu"}, {"activation_function": "gelu"}),
    "bert": ({}, {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
    "t5": ({}, {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "qwen3": ({"tie_word_embeddings": True}, {}),
    "gemma": ({GROUPED: "one"}, {GROUPED: False}),
    "olmo": ({GROUPED: False},),
    "olmo2": ({GROUPED: False}, {}),
    "cohere": ({GROUPED: False},),
    "stablelm": ({GROUPED: False}, {GROUPED: False, "use_qkv_bias": True}),
    "starcoder2": ({"attention_dropout": 0.1, "residual_dropout": 0.1, "embedding_dropout": 0.1}, {}),
    "phi": ({"resid_pdrop": 0.1}, {}),
    "qwen2_moe": ({GROUPED: False},),
    "olmoe": ({GROUPED: False},),
    "opt": ({"embedding": "width"},),
    "bart": ({"attention_dropout": 0.1, "activation_dropout": 0.1}, {}),
    "mbart": ({"activation_function": "relu"},),
    "pegasus": ({"attention_dropout": 0.1, "activation_dropout": 0.1},),
    "m2m_100": ({"attention_dropout": 0.1},),
    "electra": ({"embedding": "width"}, {}),
}
# Of a family's variants, those that are fine-tuned with adapters (the first where nothing is said).
ADAPTED_VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "llama": ({}, {"tie_word_embeddings": True}, {GROUPED: False}, {GROUPED: False, "tie_word_embeddings": True}),
    "qwen2": ({}, {"tie_word_embeddings": False}),
}
GENERATE = ("causal-lm", "seq2seq-lm", "speech-seq2seq")


def plans(family: Family) -> Iterator[tuple[str, str, Setup, dict[str, Any]]]:
    """(task, kind, setup, structure) of every law to make. Eager attention, variants, adapters for the first task."""
    for task in family.tasks:
        first = task == family.tasks[0]
        for turn, changed in enumerate(VARIANTS.get(family.name, ({},)) if first else ({},)):
            structure = {**family.usual, **changed}
            for attention, mask in _attentions(family, first and turn == 0):
                for weights, autocast in _precisions(PRECISIONS, attention):
                    setup = Setup(weights, autocast, attention, mask)
                    yield task, "train", setup, structure
                    yield task, "train", replace(setup, checkpointing=True), structure
                    yield task, "eval", setup, structure
                    if task in GENERATE and (attention == "eager" or not mask):
                        yield task, "generate", replace(setup, mask=False), structure
                if first and task in ("causal-lm", "seq2seq-lm", "sequence-classification") and family.name != "gpt2":
                    peft = Adapters("lora", family.lora_targets)
                    for weights, autocast in _precisions(LORA_PRECISIONS, attention):
                        setup = Setup(weights, autocast, attention, mask, peft=peft)
                        yield task, "train", setup, structure
                        yield task, "train", replace(setup, checkpointing=True), structure


# Of these every attention, task and adapter; of the others what is used most, padded batches first.
FULL = ("llama", "mistral", "qwen2", "gemma2", "phi3", "gpt2", "bert", "roberta", "xlm-roberta", "distilbert",
        "deberta-v2", "t5", "vit", "clip", "whisper")  # fmt: skip


def lean_plans(family: Family) -> Iterator[tuple[str, str, Setup, dict[str, Any]]]:
    """What of a family is used, most used first: padded batches, its first attention, LoRA where adapters are put."""
    masks = (True, False) if family.padded and "sdpa" in family.attentions else (family.padded,)
    for mask, task in product(masks, family.tasks if family.padded else family.tasks[:1]):
        base = Setup(attention=family.attentions[0], mask=mask)
        for kind, change in _lean_setups(family, task, everything=mask == masks[0] and task == family.tasks[0]):
            for changed in VARIANTS.get(family.name, ({},)):
                yield task, kind, replace(base, **change), {**family.usual, **changed}


def _lean_setups(family: Family, task: str, everything: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    plain, mixed, half = ({"weights": w, "autocast": a} for w, a in PRECISIONS)
    main = [mixed, half] if task != "causal-lm" else [half, mixed]
    stored = {"checkpointing": False}
    for precision, checkpointing in product(main, (stored, {"checkpointing": True})):
        yield "train", {**precision, **checkpointing}
    if not everything:
        return
    yield "train", plain
    if task in ("causal-lm", "seq2seq-lm", "sequence-classification"):
        peft = {"peft": Adapters("lora", family.lora_targets)}
        for precision, checkpointing in product(main, (stored, {"checkpointing": True})):
            yield "train", {**precision, **checkpointing, **peft}
    for precision in (*main, plain):
        yield "eval", precision
        if task in GENERATE:
            yield "generate", {**precision, "mask": False}


# Families whose models are fine-tuned with adapters and quantised weights, and the layers that adapters stand beside.
_ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
_EVERY = [*_ATTENTION, "gate_proj", "up_proj", "down_proj"]
ADAPTED: dict[str, tuple[list[str], ...]] = {
    "llama": (_ATTENTION, ["q_proj", "v_proj"], _EVERY),
    "qwen2": (_ATTENTION, ["q_proj", "v_proj"], _EVERY),
    "gemma": (["q_proj", "v_proj"], _EVERY),
    "gemma2": (["q_proj", "v_proj"], _EVERY),
    "qwen3": (["q_proj", "v_proj"], _EVERY),
    "phi3": (["qkv_proj"], ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
    "phi": (["q_proj", "v_proj"],),
    "gpt_neox": (["query_key_value"],),
    "falcon": (["query_key_value"],),
}
# (kernels, padding mask, dtypes of the weights): flash, the kernels of older GPUs, attention written out.
KERNELS = (("sdpa", False, ("bf16",)), ("sdpa", True, ("bf16",)), ("efficient", False, ("bf16",)),
           ("eager", True, ("fp16", "bf16")))  # fmt: skip


def adapted_plans(family: Family) -> Iterator[tuple[str, str, Setup, dict[str, Any]]]:
    """Adapters beside layers in 4 bits, prepared for k-bit training or not, and beside whole layers."""
    every = family.name in ("llama", "qwen2")
    for changed in ADAPTED_VARIANTS.get(family.name, VARIANTS.get(family.name, ({},))[:1]):
        structure = {**family.usual, **changed}
        for turn, targets in enumerate(ADAPTED.get(family.name, ())):
            for (attention, mask, dtypes), rest in product(KERNELS, (None, True, False)):
                if attention not in ("efficient", *family.attentions):
                    continue
                if attention in ("efficient", "eager") and (turn or not every) and "sdpa" in family.attentions:
                    continue
                dropouts = (False, True) if attention == family.attentions[0] else (False,)
                for weights, mixed, checkpointing, dropout in product(dtypes, (False, True), (True, False), dropouts):
                    peft = Adapters("lora", tuple(targets), dropout)
                    packed = QuantizedWeights("4bit", weights, rest) if rest is not None else None
                    autocast = weights if mixed else None
                    setup = Setup(weights, autocast, attention, mask, checkpointing, peft, packed)
                    yield "causal-lm", "train", setup, structure


TUNED: dict[str, tuple[dict[str, Any], ...]] = {
    "llama": ({}, {"tie_word_embeddings": True}),
    "qwen2": ({}, {"tie_word_embeddings": False}),
}
"""Families, and variants of them, that fine-tuning frameworks run with a fused loss and offloaded activations."""


def tuned_plans(family: Family) -> Iterator[tuple[str, str, Setup, dict[str, Any]]]:
    """What fine-tuning frameworks set (TRL, axolotl, Unsloth): adapters beside all linear layers, a fused loss,
    checkpoints, activations that wait in host memory; in 4 bits, whole, or trained in full; packed, or padded."""
    adapters = [Adapters("lora", tuple(_EVERY), dropout) for dropout in (False, True)]
    variants = TUNED.get(family.name, ())
    for mask, changed, peft, offload in product((False, True), variants, (*adapters, None), (False, True)):
        for rest, mixed in product((None, True, False) if peft else (None,), (True, False)):
            setup = Setup(
                "bf16" if peft or not mixed else "fp32", "bf16" if mixed else None, "sdpa", mask, True, peft,
                QuantizedWeights("4bit", "bf16", rest) if rest is not None else None, loss="fused", offload=offload,
            )  # fmt: skip
            yield "causal-lm", "train", setup, {**family.usual, **changed}


def dropped_plans(family: Family) -> Iterator[tuple[str, str, Setup, dict[str, Any]]]:
    """Adapters with dropout beside whole weights in fp32 under autocast: a model as it is loaded where nothing is said,
    and `bf16=True`."""
    if family.name not in DROPPED:
        return
    structure = {**family.usual, **VARIANTS.get(family.name, ({},))[0]}
    peft = Adapters("lora", family.lora_targets, True)
    for mask, checkpointing in product((True, False), (False, True)):
        yield family.tasks[0], "train", Setup("fp32", "bf16", "sdpa", mask, checkpointing, peft), structure


DROPPED = ("llama", "qwen2", "bert", "roberta", "t5", "qwen3", "gemma", "phi3", "distilbert", "gemma2")
"""Families that are fine-tuned like that the most."""


def _precisions(pairs: Sequence[tuple[str, str | None]], attention: str) -> list[tuple[str, str | None]]:
    """fp16 beside bf16 where the softmax is written out (see setup.setup_of)."""
    found = list(pairs)
    if attention == "eager":
        half = {"bf16": "fp16"}
        found += [(half.get(w, w), half.get(a or "", a)) for w, a in pairs if "bf16" in (w, a)]
    return found


def _attentions(family: Family, everything: bool) -> list[tuple[str, bool]]:
    if "sdpa" not in family.attentions:
        return [("eager", family.padded)]
    found = [("sdpa", False), ("sdpa", True)] if family.padded else [("sdpa", False)]
    return [*found, ("eager", family.padded)] if everything else found


def runner(versions: dict[str, str]) -> Runner:
    """Traces in this process; `versions` is filled with what made them."""
    from preflight.tracer.main import serve

    def run(traces: Any) -> list[dict[str, Any]]:
        replies = serve({"traces": traces})
        versions.update(replies["versions"])
        for reply in replies["traces"]:
            if "error" in reply:
                raise TraceError(reply["error"])
        return json.loads(json.dumps(replies["traces"]))  # type: ignore[no-any-return]

    return run


def run_family(family: Family, missing_only: bool, most: int | None = None, only: str = "") -> dict[str, Any]:
    """All laws of a family, or the first `most` of its plans; `missing_only` keeps those that are there, `only` those
    whose key does not match it."""
    versions: dict[str, str] = dict(made_by(family.name)) if missing_only else {}
    there = packed_laws(family.name) if missing_only else None
    found = {key: law for key in (keys(family.name) if only else ()) if (law := load(LawKey(family.name, key)))}
    laws: dict[str, MadeLaw] = {key: law for key, law in found.items() if not re.search(only, key)}
    run = runner(versions)
    wanted = plans(family) if family.name in FULL else lean_plans(family)
    for task, kind, setup, structure in [*wanted, *adapted_plans(family), *tuned_plans(family), *dropped_plans(family)][
        :most
    ]:
        key = key_text(task, kind, setup, structure)
        if key in laws or (there is not None and key in there["laws"]) or (only and key not in found):
            continue
        try:
            laws[key] = make_law(family, task, kind, setup, structure, run)
        except (CannotMake, TraceError) as error:
            print(f"  not made: {family.name} {key}: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            print(f"  stopped: {family.name} keeps what is made", file=sys.stderr)
            break
    laws = {**found, **laws}  # in their order
    return {"format": FORMAT, "family": family.name, "made_by": dict(sorted(versions.items())), **pack(laws, there)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--missing", action="store_true", help="make only what is not there yet")
    parser.add_argument("--only", default="", help="make those anew whose key this regular expression is found in")
    parser.add_argument("--most", type=int, help="make only this many of a family's laws, those used most first")
    options = parser.parse_args()
    for name in options.families or [f for f in FAMILIES if f not in SAME_CODE]:
        start = time.perf_counter()
        data = run_family(FAMILIES[name], options.missing, options.most, options.only)
        size = write(law_path(data["family"]), data)
        print(f"{name}: {len(data['laws'])} laws, {size} bytes, {time.perf_counter() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
