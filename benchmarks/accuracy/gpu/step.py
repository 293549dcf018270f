"""One case on one device: load, two training iterations, validation; counters after each phase."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.accuracy.gpu.cases import Case
from benchmarks.accuracy.gpu.device import Device
from benchmarks.accuracy.gpu.snapshot import peak_blocks

AUTO = {
    "causal-lm": "AutoModelForCausalLM", "sequence-classification": "AutoModelForSequenceClassification",
    "seq2seq-lm": "AutoModelForSeq2SeqLM", "image-classification": "AutoModelForImageClassification",
    "contrastive": "AutoModel", "speech-seq2seq": "AutoModelForSpeechSeq2Seq",
}  # fmt: skip
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
ITERATIONS = 2


class Phases:
    """Counters at the end of each phase, with the peaks within it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.rows: list[dict[str, Any]] = []
        self.now = ""

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.now = name
        self.device.synchronize()
        self.device.reset_peaks()
        self.device.label(name)
        start = time.perf_counter()
        yield
        self.device.synchronize()
        seconds = round(time.perf_counter() - start, 3)
        self.rows.append({"phase": name, **self.device.counters(), "used": self.device.used(), "seconds": seconds})


def run(case: Case, device: Device, history: bool = True, model: Any = None) -> dict[str, Any]:
    """The record of a case: outcome "ok" or "oom" (with the phase it died in), phases, and the blocks at the peak.

    `model`: one to take instead of the case's own (tests). What is not lack of memory is raised.
    """
    phases = Phases(device)
    record: dict[str, Any] = {"outcome": "ok"}
    if history:
        device.record(True)
    try:
        _run(case, device, phases, model)
    except torch.OutOfMemoryError as error:
        record |= {"outcome": "oom", "died_in": phases.now, "message": str(error).splitlines()[0], **device.counters()}
    if history:
        record["peak"] = peak_blocks(device.snapshot())
        device.record(False)
    return {**record, "phases": phases.rows}


def _run(case: Case, device: Device, phases: Phases, model: Any) -> None:
    with phases.phase("load"):
        model = build(case) if model is None else model
        model = model.to(device.name)
        optimizer = optimizer_of(case, model)
    unlabel = _label_modules(model, device, phases)
    scaler = torch.amp.GradScaler(device.name, enabled=case.precision == "fp16-mixed")
    for number in range(1, ITERATIONS + 1):
        _iteration(case, device, phases, model, optimizer, scaler, number)
    if case.validation:
        model.eval()
        with phases.phase("validation"), torch.no_grad(), autocast(case, device):
            out = forward(case, model, batch_of(case, device.name, case.validation))
            del out
    unlabel()


def _iteration(case: Case, device: Device, phases: Phases, model: Any, optimizer: Any, scaler: Any,
               number: int) -> None:  # fmt: skip
    """Micro-batches of forward and backward, then the step. The last micro-batch has the phases to itself."""
    for micro in range(case.accumulation):
        last = f" {number}" if micro == case.accumulation - 1 else f" {number}, earlier"
        with phases.phase(f"forward{last}"):
            batch = batch_of(case, device.name, case.batch)
            with autocast(case, device):
                out = forward(case, model, batch)
                loss = loss_of(out) / case.accumulation
            if case.outputs == "no":
                del out
        with phases.phase(f"backward{last}"):
            scaler.scale(loss).backward()
        del loss, batch
        if case.outputs == "step":
            del out
    with phases.phase(f"optimizer {number}"):
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


def build(case: Case) -> Any:
    """The case's model in training mode, on the host, with random weights."""
    spec = case.of
    if spec.target:
        model = importlib.import_module("timm").create_model(spec.target.partition(":")[2], pretrained=False)
    else:
        import transformers

        config = transformers.AutoConfig.for_model(spec.architecture, **spec.config)
        attention = "eager" if case.attention == "eager" else "sdpa"
        auto = getattr(transformers, AUTO[spec.task])
        try:
            model = auto.from_config(config, attn_implementation=attention)
        except ValueError:  # families without sdpa
            model = auto.from_config(config, attn_implementation="eager")
    weights = case.precision if case.precision in DTYPES else "fp32"
    model = model.train().to(DTYPES[weights])
    if case.lora:
        import peft

        config = peft.LoraConfig(r=case.lora, lora_alpha=2 * case.lora, target_modules=list(spec.lora))
        model = peft.get_peft_model(model, config)
    if case.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if case.lora:
            model.enable_input_require_grads()
    return model


def optimizer_of(case: Case, model: Any) -> Any:
    """The case's optimizer over what trains."""
    params = [p for p in model.parameters() if p.requires_grad]
    how = {"foreach": case.implementation == "foreach"}
    if case.implementation == "fused":
        how = {"fused": True}
    if case.optimizer == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(params, lr=1e-3, relative_step=False, scale_parameter=False)
    if case.optimizer in ("adamw", "adam"):
        return {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[case.optimizer](params, lr=1e-5, **how)
    return torch.optim.SGD(params, lr=1e-5, momentum=0.9 if case.optimizer == "sgd-momentum" else 0.0, **how)


def autocast(case: Case, device: Device) -> Any:
    """Mixed precision, where the case has it."""
    if not case.precision.endswith("-mixed"):
        return contextlib.nullcontext()
    return torch.autocast(device.name, DTYPES[case.precision.removesuffix("-mixed")])


def batch_of(case: Case, device: str, size: int) -> dict[str, torch.Tensor]:
    """A batch of the case's task; a padded one has a mask that hides the end of its first row."""
    spec, length = case.of, case.length
    dtype = DTYPES.get(case.precision, torch.float32)

    def ids(width: int) -> torch.Tensor:
        return torch.ones(size, width, dtype=torch.int64, device=device)

    def classes() -> torch.Tensor:
        return torch.zeros(size, dtype=torch.int64, device=device)

    if spec.task == "image-classification":
        pixels = torch.zeros(size, 3, 224, 224, device=device, dtype=dtype)
        return {"pixel_values": pixels, "labels": classes()}
    if spec.task == "speech-seq2seq":
        frames = 2 * int(spec.config["max_source_positions"])
        mel = int(spec.config["num_mel_bins"])
        return {
            "input_features": torch.zeros(size, mel, frames, device=device, dtype=dtype),
            "labels": ids(case.target),
        }
    batch = {"input_ids": ids(length)}
    if spec.task == "contrastive":
        batch["pixel_values"] = torch.zeros(size, 3, 224, 224, device=device, dtype=dtype)
    else:
        batch["labels"] = classes() if spec.task == "sequence-classification" else ids(case.target or length)
    if case.padded:
        mask = ids(length)
        mask[0, length // 2 :] = 0
        batch["attention_mask"] = mask
    return batch


def forward(case: Case, model: Any, batch: dict[str, torch.Tensor]) -> Any:
    """What the model returns, a loss among it."""
    if case.of.target:
        logits = model(batch["pixel_values"])
        return {"loss": torch.nn.functional.cross_entropy(logits, batch["labels"]), "logits": logits}
    extra = {"return_loss": True} if case.of.task == "contrastive" else {}
    return model(**batch, **extra)


def loss_of(out: Any) -> torch.Tensor:
    loss: torch.Tensor = out["loss"]
    return loss


def _label_modules(model: Any, device: Device, phases: Phases) -> Callable[[], None]:
    """Label allocations with the module whose forward is at work; returns what takes the hooks off again."""
    handles = []
    for name, module in model.named_modules():
        if not name:
            continue

        def enter(_module: Any, _args: Any, name: str = name) -> None:
            device.label(f"{phases.now}:{name}")

        def leave(_module: Any, _args: Any, _out: Any, name: str = name) -> None:
            device.label(f"{phases.now}:{name.rpartition('.')[0]}")

        handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]

    def remove() -> None:
        for handle in handles:
            handle.remove()

    return remove


def context(device: Device) -> dict[str, Any]:
    """Bytes in use on the device after its context, after the first product of matrices, the first convolution and its
    gradient: what nvidia-smi shows beside what PyTorch reserved."""
    found: dict[str, Any] = {}

    def note(name: str) -> None:
        device.synchronize()
        used = device.used()
        found[name] = None if used is None else used - device.counters()["reserved"]

    x = torch.ones(1, device=device.name)
    note("context")
    matrix = torch.ones(256, 256, device=device.name, requires_grad=True)
    (matrix @ matrix).sum().backward()
    note("cublas")
    image = torch.ones(2, 8, 32, 32, device=device.name)
    layer = torch.nn.Conv2d(8, 8, 3).to(device.name)
    layer(image)
    note("cudnn forward")
    layer(image).sum().backward()
    note("cudnn backward")
    del x
    return found
