"""Runs that fitted or died: reports of out-of-memory errors and of runs that worked, as Jobs.

A row gives the common fields; `FACTS` adds what the source's code or thread shows. A setting that neither says is
unknown, and the verdict may be too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from benchmarks.accuracy.sources import litgpt
from benchmarks.accuracy.truth import GIB, Fields, Inexpressible


class Message(TypedDict, total=False):
    total_capacity_gib: float | None
    tried_to_allocate: str | None


class Report(TypedDict):
    """A line of the file of incidents, as it is (the fields used here)."""

    id: str
    source: str
    gpu: str | None
    gpu_count: int | None
    parallelism: str
    model: str
    batch_size: int | str | None
    grad_accum: int | None
    seq_len: int | None
    image_size: int | None
    precision: str | None
    optimizer: str | None
    peft: str | None
    gradient_checkpointing: bool | None
    kind: str
    outcome: str
    cluster: str | None
    message_numbers: Message
    hard_case: bool
    inferred_fields: list[str]


@dataclass(frozen=True)
class Incident:
    """`group`: reports of one source or cluster, which together count as one. `died`: whether memory ran out."""

    id: str
    group: str
    died: bool
    fields: Fields | Inexpressible
    hard: bool
    """Known not to follow from a configuration (many boxes in one image, a bug of the library)."""
    inferred: tuple[str, ...] = ()
    """Fields of the row that its collector inferred."""
    asked: int | None = None
    """Bytes that the message says could not be allocated."""


_LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
_LITGPT: Fields = {
    "train.attention": "flash",
    "train.outputs_kept": "no",  # the longest example comes first
    "train.loss": "chunked",
    "train.peft.dropout": 0.05,
    "train.peft.dtype": "bf16",
    "train.peft.r": 8,
    "train.sequences": "exact",
    "software": {"torch": "2.1.0", "bitsandbytes": "0.41.1", "litgpt": "0.2.0"},
}
"""finetune/lora.py at 8641822; see sources/litgpt.py."""
_ALPACA_LORA: Fields = {
    # finetune.py, as alpaca-lora's: load_in_8bit, torch_dtype=float16, prepare_model_for_int8_training (which turns
    # gradient checkpointing on), fp16=True, optim adamw_torch, LoRA on q_proj and v_proj with dropout 0.05.
    "train.precision": "fp16-mixed", "train.weights_dtype": "fp16", "train.gradient_checkpointing": True,
    "train.quantization.type": "int8", "train.optimizer": "adamw", "train.peft.targets": ["q_proj", "v_proj"],
    "train.peft.dropout": 0.05, "train.attention": "eager", "software": {"transformers": "4.30"},  # mid-2023
}  # fmt: skip
_PLATYPUS: Fields = {
    # finetune.py, as alpaca-lora's but for optim adamw_torch_fused; fine-tuning.sh: the four projections of attention.
    **_ALPACA_LORA,
    "train.peft.targets": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "train.optimizer_impl": "fused",
}
_AXOLOTL: Fields = {
    # examples/mistral/qlora.yml: bf16, load_in_4bit, sample_packing, flash_attention, lora_target_linear, dropout 0.05;
    # axolotl/utils/models.py: double quantisation, and norms, embeddings and head back to bf16 for flash attention.
    "train.precision": "bf16-mixed",
    "train.weights_dtype": "bf16",
    "train.optimizer": "adamw-8bit",
    "train.quantization.type": "nf4",
    "train.quantization.double_quant": True,
    "train.quantization.compute_dtype": "bf16",
    "train.quantization.upcast_rest": False,
    "train.attention": "flash",
    "train.sequences": "packed",
    "train.peft.r": 32,
    "train.peft.targets": _LLAMA,
    "train.peft.dropout": 0.05,
}
_SDXL_LORA: Fields = {
    # diffusers at the reports' dates, mixed_precision fp16: the denoiser and the text encoders in fp16 and on the GPU
    # throughout, adapters in fp32 at rank 4; --gradient_checkpointing is parsed and not acted on (both scripts).
    "train.precision": "fp16-mixed", "train.gradient_checkpointing": False, "train.peft.r": 4,
    "train.companions": ["vae", "text_encoder", "text_encoder_2"],
}  # fmt: skip
_EAGER: Fields = {"train.attention": "eager"}
"""Reports older than the first fused attention of transformers (BERT, GPT-2 and Llama: 4.36 and later)."""
_MARCH_2019: Fields = {**_EAGER, "software": {"torch": "1.0"}}
"""The date of the thread; torch 1.0.1 was the newest release from February to April."""
FACTS: Mapping[str, Fields | Inexpressible] = {
    "aitextgen71-gpt2m": {"train.precision": "fp32", **_EAGER},
    "berttoxic6-large-256-16": _MARCH_2019,
    "berttoxic6-large-128-16": _MARCH_2019,
    "berttoxic6-base-256-16": _MARCH_2019,
    "qlora184-30b-1x3090": _EAGER,
    "platypus10-70b-ddp": _PLATYPUS,
    "platypus10-70b-ddp-r8": _PLATYPUS,
    # supervised_finetune.py: MICRO_BATCH_SIZE 4, CUTOFF_LEN 256, save_steps 200. The report is of May 19, 2023: 0.38.1
    # was bitsandbytes' newest release (0.39.0 came four days later), and the repository pinned none.
    "vicunarlhf6-t4": {**_ALPACA_LORA, "software": {"transformers": "4.29", "bitsandbytes": "0.38.1"}},
    "simplefinetuner7-4090-b15": {**_ALPACA_LORA, "train.peft.dropout": 0.01},  # main.py
    "fastchat693-13b-save": {
        # The thread's command: --bf16, batch 2, accumulation 16, --fsdp "full_shard auto_wrap offload"; fastchat/train/
        # train.py, safe_save_model_for_hf_trainer: trainer.model.state_dict(), whole on each GPU. Length and
        # checkpoints as in the README's command, which it follows.
        "train.batch_size": 2,
        "train.grad_accum": 16,
        "train.precision": "bf16-mixed",
        "train.seq_len": 2048,
        "train.gradient_checkpointing": True,
        "train.attention": "flash",
        "parallel.offload": "parameters",
        "parallel.options": {"fsdp_version": 1},
        "train.saves": "gathered",
        "software": {"transformers": "4.28"},
    },
    "llamacookbook413-7b-1xa100": {"train.precision": "fp32", "train.sequences": "packed"},
    "torchtune527-llama2-7b-paged": {
        "train.precision": "bf16",
        "train.optimizer": "paged-adamw",
        "train.optimizer_in_backward": True,
    },
    "milabench315-llava-l40s": {
        # benchmarks/llava/main.py: one sample a step, AdamW of torch, nothing frozen, no checkpoints; any length.
        "model.parameters": 7_063_427_072,
        "train.batch_size": 1,
        "train.gradient_checkpointing": False,
    },
    "llava655-7b-z2-a100-40": {
        # The thread's command: train_mem.py (flash attention; the tower is frozen), bf16, checkpoints, 2,048 tokens;
        # transformers 4.31 by pyproject.toml.
        "model.name": "liuhaotian/llava-v1.5-7b",
        "train.precision": "bf16-mixed",
        "train.attention": "flash",
        "software": {"transformers": "4.31"},
    },
    "axolotl708-mistral-qlora-mb4": _AXOLOTL,
    "axolotl708-mistral-qlora-mb2": _AXOLOTL,
    "diffusers4368-sdxl-t4": {
        # train_dreambooth_lora_sdxl.py of 3 August 2023 with --validation_prompt: text encoders loaded again in fp32,
        # in the end all of the pipeline beside the denoiser, which was cast to fp32 for saving.
        **_SDXL_LORA,
        "train.companions": ["vae", "text_encoder:fp32", "text_encoder_2:fp32"],
        "validation.generates": True,
        "validation.loads": ["denoiser", "text_encoder", "text_encoder_2"],
        "train.saved_as": "fp32",
    },
    "diffusers4872-sdxl-t4-save": {
        # train_text_to_image_lora_sdxl.py of 2 September 2023 without --validation_prompt, the VAE madebyollin/
        # sdxl-vae-fp16-fix in fp16; the thread: accelerate 0.21.0 dies at the first checkpoint.
        **_SDXL_LORA,
        "train.companions": ["vae:fp16", "text_encoder", "text_encoder_2"],
        "validation.generates": False,
        "software": {"accelerate": "0.21.0"},
    },
    "kohya648-sdxl-12gb": {
        # train_network.py of 15 July 2023: accelerator.prepare puts the denoiser and the text encoders on the GPU in
        # fp32, where the thread's run died, and only then is the denoiser cast; latents are cached.
        "train.precision": "fp16-mixed",
        "train.weights_dtype": "fp32",
        "train.peft.r": 16,
        "train.companions": ["text_encoder:fp32", "text_encoder_2:fp32"],
    },
    "huatuo60-3090-b8": _ALPACA_LORA,
    "huatuo60-3090-b32": _ALPACA_LORA,
    "dbgpthub248-chatglm3-4090": {"train.precision": "fp32", "model.parameters": 6_243_584_000},  # "6.24 B"
    "zero3-27b-lora-2xl40s": {
        # 55.6 GB in bf16; the row: the model was made before the arguments that switch on deepspeed.zero.Init.
        "model.parameters": 27_800_000_000,
        "parallel.options": {"zero3_init_flag": False},
    },
    "wenet-whisperL-8x3090": {
        # A batch has at most 12,000 frames of 10 ms, padding included: four windows of 30 s. Text as long as Whisper
        # takes it (448 tokens) is more than any of AISHELL's sentences.
        "task": "speech-seq2seq",
        "train.batch_size": 4,
        "train.target_len": 448,
    },
    "trl3678-grpo-0.6b-20gb": {
        # trl/trainer/grpo_trainer.py of 0.19: log-probabilities of whole sequences from whole logits, a name loads in
        # fp32, and beta 0 needs no reference; prompts and completions of 256 tokens each.
        "task": "causal-lm",
        "train.precision": "fp32",
        "train.loss": "log-probabilities",
    },
    "platypus10-70b-mp": {
        # As the rows with a process for each GPU; one process has the layers on four GPUs (device_map="auto"), so the
        # 32 micro-batches go through one after the other.
        **_PLATYPUS,
        "train.grad_accum": 1,
    },
    "ilrg1-resnet50-512": {"train.optimizer": "sgd"},  # gradients and no optimizer: sgd keeps no state either
    "ilrg1-resnet50-1024": {"train.optimizer": "sgd"},
    "smol-28L-b8-2048-4090": Inexpressible("a hand-written decoder with a second prediction head"),
    "nanogpt236-resume": Inexpressible("the model's size is not stated"),
    "hf15544-w2v2bert-v100": Inexpressible("an encoder and a decoder of two architectures"),
    "alma42-llama3-8b-z2": Inexpressible("preference training, whose second model and length are not stated"),
    "litgpt486-llama2-a5000": Inexpressible("LoRA and QLoRA are both reported as one"),
    "litgpt301-llama2-a6000": {
        **_LITGPT,
        "train.precision": "bf16-mixed",  # get_default_supported_precision
        "train.optimizer": "adamw",
        "train.gradient_checkpointing": False,
    },
    "unsloth2366-gemma3-27b-h200": Inexpressible("Unsloth's kernels, which no Job field says"),
    "gemma4-2xl40s-16k": Inexpressible("a model without a public configuration of that name"),
    "gemma4-2xl40s-16k-fixed": Inexpressible("a model without a public configuration of that name"),
    "tf-timm72-resume": Inexpressible("the model is not named"),
    "t5small-4500-b24": Inexpressible("the figures are a prediction of the author's"),
}
"""By report: what its source shows beyond the row."""
_NAMES = {
    "LLaMA-7B": "huggyllama/llama-7b", "Chinese-LLaMA-7B": "huggyllama/llama-7b", "Vicuna-7B": "huggyllama/llama-7b",
    "Vicuna/LLaMA-13B": "huggyllama/llama-13b", "LLaMA-33B": "huggyllama/llama-30b",
    "WizardLM-30B": "huggyllama/llama-30b", "Llama-2-70B": "meta-llama/Llama-2-70b-hf",
    "Llama-2-7B": "meta-llama/Llama-2-7b-hf", "Meta-Llama-3-8B": "meta-llama/Meta-Llama-3-8B",
    "bigscience/mt0-xxl-mt (13B)": "bigscience/mt0-xxl-mt", "llava-1.5-7b": "llava-hf/llava-1.5-7b-hf",
    "LLaVA-1.5-7B (vicuna-7b + CLIP-L/336)": "llava-hf/llava-1.5-7b-hf",
}  # fmt: skip
_TARGETS = {"torchvision resnet50": "torchvision:resnet50", "yolov5l": "ultralytics:yolov5l",
            "detectron2 mask_rcnn_R_50_FPN_1x": "detectron2:mask_rcnn_R_50_FPN_1x",
            "faster_rcnn_R_50_FPN": "maskrcnn_benchmark:e2e_faster_rcnn_R_50_FPN_1x"}  # fmt: skip
_PRECISIONS = {"bf16-true": "bf16", "bf16": "bf16", "fp32": "fp32", "fp16-amp": "fp16-mixed", "amp fp16": "fp16-mixed",
               "fp16": "fp16"}  # fmt: skip
_OPTIMIZERS = {"adamw": "adamw", "adam": "adam", "sgd": "sgd-momentum", "adamw_bnb_8bit": "adamw-8bit",
               "adamw_8bit": "adamw-8bit", "adam8bit": "adamw-8bit", "adamw8bit": "adamw-8bit"}  # fmt: skip
"""SGD of detection recipes has momentum (detectron2, yolov5: 0.9 and 0.937)."""
_GPUS = {"A800 80GB": "A100 80GB"}
"""The same memory."""


def reports(path: Path) -> Iterator[Report]:
    """The reports of a file that are about GPU memory."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                report: Report = json.loads(line)
                if report["kind"] == "gpu":
                    yield report


def incident_of(report: Report) -> Incident:
    """A report with the Job that it describes."""
    facts = FACTS.get(report["id"], {})
    fields = facts if isinstance(facts, Inexpressible) else _fields(report, facts)
    group = report["cluster"] or report["source"]
    inferred = tuple(report.get("inferred_fields", ()))
    asked = _bytes(report["message_numbers"].get("tried_to_allocate"))
    return Incident(report["id"], group, report["outcome"] == "oom", fields, report["hard_case"], inferred, asked)


def _bytes(text: str | None) -> int | None:
    """`80 MiB`, `9.97 GiB`."""
    found = re.fullmatch(r"([\d.]+) ?([KMG])iB", text or "")
    return None if found is None else round(float(found[1]) * 1024 ** (" KMG".index(found[2])))


def _fields(report: Report, facts: Fields) -> Fields:
    tables = _LITGPT if report["cluster"] == "litgpt-tables" else {}
    return {
        **_model(report["model"]),
        "train.batch_size": report["batch_size"] if isinstance(report["batch_size"], int) else None,
        "train.grad_accum": report["grad_accum"] or 1,
        "train.seq_len": report["seq_len"],
        "train.image_size": report["image_size"],
        "train.precision": _PRECISIONS.get(report["precision"] or ""),
        "train.optimizer": _OPTIMIZERS.get((report["optimizer"] or "").lower().split(" ")[0]),
        "train.gradient_checkpointing": _checkpointing(report),
        **_peft(report),
        **_parallel(report),
        **_machine(report),
        **tables,
        **facts,
    }


def _checkpointing(report: Report) -> bool | None:
    """Image models are checkpointed by nobody who does not say so."""
    stated = report["gradient_checkpointing"]
    return False if stated is None and report["image_size"] and not report["seq_len"] else stated


def _model(name: str) -> dict[str, object]:
    if name in _TARGETS:
        task = "image-classification" if "resnet" in name else "other"
        return {"model.target": _TARGETS[name], "task": task}
    found: dict[str, object] = {"model.name": _NAMES.get(name, name)}
    if "bert" in name or "longformer" in name:
        return found | {"task": "sequence-classification"}
    return found | ({"task": "diffusion"} if "diffusion" in name or "SD1.5" in name else {})


def _peft(report: Report) -> dict[str, object]:
    """Adapters in a Job's words. Where no layers are stated they stand where peft puts them for the model's type."""
    words = report["peft"]
    if not words:
        return {}
    rank = re.search(r"r=(\d+)", words)
    found: dict[str, object] = {"train.peft.method": "lora", "train.peft.r": int(rank.group(1)) if rank else None}
    if "q,v" in words:
        found["train.peft.targets"] = ["q_proj", "v_proj"]
    if "Lightning-AI/litgpt" in report["source"]:
        found["train.peft.targets"] = litgpt.query_and_value(report["model"])
    if "query_key_value" in words:
        found["train.peft.targets"] = ["query_key_value"]
    if words.startswith("qlora"):
        found |= {"train.quantization.type": "nf4", "train.quantization.compute_dtype": "bf16"}
    if words == "qlora-nf4":
        found |= {"train.quantization.upcast_rest": False, "train.optimizer": "paged-adamw"}
    return found


def _parallel(report: Report) -> dict[str, object]:
    """How the job was spread, in a Job's words."""
    words = report["parallelism"].lower()
    kinds = ("zero1", "zero2", "zero3", "fsdp", "ddp")
    strategy = next((kind for kind in kinds if words.startswith(kind)), "none")
    nodes = 2 if "2 nodes" in words else 1
    gpus = (report["gpu_count"] or 1) // nodes
    found: dict[str, object] = {"parallel.strategy": strategy, "parallel.nodes": nodes}
    found |= {"parallel.gpus_per_node": gpus, "parallel.ranks_per_node": gpus}
    if "device_map" in words:  # one process; each GPU has its share of the layers
        found["parallel.pipeline"] = gpus
    if "offload" in words:
        found["parallel.offload"] = "parameters" if "param" in words else "optimizer"
    return found


def _machine(report: Report) -> dict[str, object]:
    stated = report["message_numbers"].get("total_capacity_gib")
    if stated:
        return {"machine.gpu_memory": round(stated * GIB)}
    gpu = re.sub(r" \(.*\)| with ECC.*", "", report["gpu"] or "")
    card = re.fullmatch(r"(\d+) ?GB (card|target).*", gpu)
    if card or gpu == "Tesla 16GB":
        return {"machine.gpu_memory": int(re.findall(r"\d+", gpu)[0]) * GIB}
    return {"machine.gpu": _GPUS.get(gpu, gpu)} if gpu else {}
