"""Training, validation and generation steps on meta tensors, written down as tapes."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from . import compiled, convolutions, models, seq2seq_generation
from .cuda import Cuda
from .tape import Observer, Tape, watch_modules


def trace(request: dict[str, Any]) -> dict[str, Any]:
    """One tape. Request: model, setup, point, kind ("train", "eval", "generate"), warm_up (bool, default true),
    accumulated (bool: gradients of an earlier micro-step are kept).

    setup: weights, autocast ("bf16", "fp16" or None), attention, mask (padded batches), checkpointing, peft, frozen.
    Reply: parameters [[name, bytes, elements, trainable]], buffers [[name, bytes]], events [[size or -1 - birth, tag]],
    gradients {birth: parameter index}, outputs [births of what the model returned], narrow [those of 16 bits], held
    [births of what lives as long as the loss does], loss_apart (bool: the loss is made after the model has returned),
    accumulations [[index of the next event, parameter index]: where each gradient is added to `.grad`], workspaces
    [births of workspaces of convolutions; targets and `models.OTHERS` only].
    """
    setup, kind = request["setup"], request["kind"]
    model = models.build(request["model"], setup)
    convolutional = bool(request["model"].get("target") or request["model"].get("kind"))
    tape = Tape(not setup.get("mask", False), convolutions=convolutional)
    if setup.get("winograd"):
        tape.workspace = convolutions.winograd
    before = model.before() if hasattr(model, "before") else []
    for tensor in [*model.parameters(), *model.buffers(), *before]:
        tape.known(tensor)
    unhook = watch_modules(model, tape)
    dtype = models.DTYPES[setup["autocast"]] if setup.get("autocast") else None
    _settle()
    gc.collect()
    gc.disable()  # storages must die by reference count alone, in a repeatable order
    try:
        run = {"train": _train, "eval": _evaluate, "generate": _generate}[kind]
        gradients, outputs = run(model, tape, request, dtype)
    finally:
        gc.enable()
        unhook()
    return {
        "parameters": _parameters(model),
        "buffers": [(name, b.untyped_storage().nbytes()) for name, b in model.named_buffers()],
        "events": tape.events,
        "gradients": gradients,
        "outputs": outputs,
        "narrow": tape.narrow,
        "held": tape.held,
        "loss_apart": tape.loss_apart,
        "accumulations": tape.accumulations,
        "workspaces": tape.workspaces,
    }


@lru_cache(maxsize=1)
def _settle() -> None:
    """Excludes the objects of imported libraries from garbage collection."""
    gc.collect()
    gc.freeze()


def _parameters(model: torch.nn.Module) -> list[tuple[str, float, int, bool]]:
    seen: set[int] = set()
    rows = []
    for name, parameter in model.named_parameters():
        key = parameter.untyped_storage()._cdata
        if key not in seen:
            seen.add(key)
            count = parameter.numel()
            each = getattr(parameter, "_preflight_bytes", None)  # what quantised weights really cost
            nbytes = parameter.untyped_storage().nbytes() if each is None else count * each
            rows.append((name, nbytes, count, parameter.requires_grad))
    return rows


def _forward(model: torch.nn.Module, batch: dict[str, Any], mode: Cuda, **extra: Any) -> Any:
    with mode:
        return model(**batch, **extra)


def _batch(request: dict[str, Any]) -> dict[str, torch.Tensor]:
    setup = request["setup"]
    dtype = models.DTYPES[setup.get("weights", "fp32")]
    return models.inputs(request["model"], request["point"], setup.get("mask", False), dtype)


def _loss_of(out: Any) -> torch.Tensor:
    loss = getattr(out, "loss", None)
    if loss is None:
        logits = out.logits if hasattr(out, "logits") else out
        logits = logits[0] if isinstance(logits, (tuple, list)) else logits
        logits = logits["out"] if isinstance(logits, dict) and "out" in logits else logits
        shape = (logits.shape[0], *logits.shape[2:])  # a class for each image, or for each of its pixels
        labels = torch.zeros(shape, dtype=torch.int64, device="meta")
        loss = torch.nn.functional.cross_entropy(logits, labels)
    return loss


def _train(model: Any, tape: Tape, request: dict[str, Any], dtype: Any) -> tuple[dict[int, int], list[int]]:
    """A micro-step on the tape, after one that is not (`warm_up`), for models that make something in their first."""
    setup = request["setup"]
    observer = Observer(tape)
    mode = Cuda(dtype, setup.get("attention", "sdpa"), observer)
    if hasattr(model, "checkpoints_in"):
        model.checkpoints_in(lambda: (contextlib.nullcontext(), _recompute(tape, mode.again())))
    elif setup.get("checkpointing"):
        models.enable_checkpointing(model, lambda: (contextlib.nullcontext(), _recompute(tape, mode.again())))
    extra = {"return_loss": True} if request["model"].get("task") == "contrastive" else {}
    outputs: list[int] = []
    _mark_accumulation(model, tape)
    fused = bool(setup.get("compile"))
    if fused:
        compiled.compile_layers(model, observer)
    for recorded in (False, True) if request.get("warm_up", True) or request.get("accumulated") or fused else (True,):
        tape.recording, tape.phase = recorded, "forward"
        with tape:
            batch = _batch(request)
            with offloaded(model) if setup.get("offload") else contextlib.nullcontext():
                out = _call(model, batch, Cuda(dtype, setup.get("attention", "sdpa"), observer), request, extra)
            with mode.again():
                loss = _loss_of(out)
            if recorded:
                outputs, tape.loss_apart = _births(tape, out, loss), getattr(out, "loss_apart", False)
                tape.narrow = _births(tape, out, loss, 2)
            del out
            tape.phase = "backward"
            loss.backward()
            tape.phase = "end"
            before = len(tape.events)
            own = tape.birth_of.get(loss.untyped_storage()._cdata)
            del loss
            if recorded:
                tape.held = sorted(_freed(tape, before) - {own, *outputs})
            del batch
        gradients = {}
        for index, parameter in enumerate(_unique(model)):
            if parameter.grad is not None:
                birth = tape.birth_of.get(parameter.grad.untyped_storage()._cdata)
                if birth is not None:
                    gradients[birth] = index
        tape.recording = False
        if not request.get("accumulated"):
            model.zero_grad(set_to_none=True)
    return gradients, outputs


@contextlib.contextmanager
def offloaded(model: torch.nn.Module) -> Iterator[None]:
    """Tensors that autograd saves, except parameters, are in host memory and come back as a new storage when used
    (torch.autograd.graph.save_on_cpu; torchtune's OffloadActivations keeps a few more on the GPU for its stream)."""
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

    def pack(saved: torch.Tensor) -> Any:
        if saved.untyped_storage()._cdata in own:
            return saved
        return saved.shape, saved.dtype

    def unpack(kept: Any) -> torch.Tensor:
        if isinstance(kept, torch.Tensor):
            return kept
        return torch.empty(kept[0], dtype=kept[1], device="meta")

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


@contextlib.contextmanager
def _recompute(tape: Tape, mode: Cuda) -> Iterator[None]:
    """Recomputation stops early by an exception, which leaves modules without their exit hooks: put them right."""
    depth = len(tape.modules)
    try:
        with mode:
            yield
    finally:
        del tape.modules[depth:]


def _mark_accumulation(model: Any, tape: Tape) -> None:
    """Write on the tape where each gradient is added to `.grad`: (index of the next event, parameter)."""
    for index, parameter in enumerate(_unique(model)):
        if parameter.requires_grad:

            def accumulated(_: Any, index: int = index) -> None:
                if tape.recording:
                    tape.accumulations.append((len(tape.events), index))

            parameter.register_post_accumulate_grad_hook(accumulated)


def _call(model: Any, batch: dict[str, Any], mode: Cuda, request: dict[str, Any], extra: dict[str, Any]) -> Any:
    with mode:
        if request["model"].get("target"):
            return model(batch["pixel_values"])
        return model(**batch, **extra)


def _unique(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    seen: dict[int, torch.nn.Parameter] = {}
    for parameter in model.parameters():
        seen.setdefault(parameter.untyped_storage()._cdata, parameter)
    return list(seen.values())


def _births(tape: Tape, out: Any, loss: torch.Tensor, width: int | None = None) -> list[int]:
    """Births of the model's outputs except the loss; marked with the place on the tape where they may die. `width`: of
    floating-point outputs with so many bytes an element alone."""
    values = [out] if isinstance(out, (torch.Tensor, tuple, list)) else out.values()
    found = [t for t in tree_leaves(list(values)) if isinstance(t, torch.Tensor)]
    if width is not None:
        found = [t for t in found if t.is_floating_point() and t.element_size() == width]
    keys = {t.untyped_storage()._cdata for t in found}
    keys.discard(loss.untyped_storage()._cdata)
    return sorted(tape.birth_of[key] for key in keys if key in tape.birth_of)


def _freed(tape: Tape, since: int) -> set[int]:
    """Births of storages that died with the loss. Tensors that functions of autograd hold without `save_for_backward`
    live as long as their graph, and so as long as a variable holds the loss. Scalars are left out."""
    died = {-1 - size for size, _ in tape.events[since:] if size < 0}
    return {birth for birth in died if tape.events[birth][0] > 8}


def _evaluate(model: Any, tape: Tape, request: dict[str, Any], dtype: Any) -> tuple[dict[int, int], list[int]]:
    model.eval()
    observer = Observer(tape)
    extra = {"return_loss": True} if request["model"].get("task") == "contrastive" else {}
    outputs: list[int] = []
    for recorded in (False, True) if request.get("warm_up", True) else (True,):
        tape.recording, tape.phase = recorded, "validation"
        with tape, torch.no_grad():
            batch = _batch(request)
            mode = Cuda(dtype, request["setup"].get("attention", "sdpa"), observer)
            out = _call(model, batch, mode, request, extra)
            if recorded:
                outputs, tape.narrow = _births(tape, out, _loss_of(out)), _births(tape, out, _loss_of(out), 2)
            del mode, batch, out
        tape.recording = False
    return {}, outputs


def _generate(model: Any, tape: Tape, request: dict[str, Any], dtype: Any) -> tuple[dict[int, int], list[int]]:
    """Prefill of s tokens with a cache, then one more token; encoders with a decoder: see `seq2seq_generation`."""
    if request["model"].get("task") in seq2seq_generation.TASKS:
        seq2seq_generation.generate(model, tape, request, dtype)
        return {}, []
    model.eval()
    model.config.use_cache = True
    observer = Observer(tape)
    attention = request["setup"].get("attention", "sdpa")
    with tape, torch.no_grad():
        batch = {k: v for k, v in _batch(request).items() if k != "labels"}
        tape.recording, tape.phase = True, "generation"
        extra = seq2seq_generation.whole_cache(model)
        out = _forward(model, batch, Cuda(dtype, attention, observer), use_cache=True, logits_to_keep=1, **extra)
        cache = out.past_key_values
        del out, batch
        tape.phase = "decoding"
        batch = {"input_ids": torch.zeros(request["point"]["b"], 1, dtype=torch.int64, device="meta")}
        out = _forward(model, batch, Cuda(dtype, attention, observer), past_key_values=cache, use_cache=True)
        tape.recording = False  # the cache lives on
    del out, cache
    return {}, []
