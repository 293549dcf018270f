"""Job: one fully specified training run. The names are a contract: files, `--set`, JSON output and rules all use them.

Bytes are integers. None is "unknown" (JSON null); a field that is absent has the default below, or the default of the
framework and version in use (`preflight.program`). Fields whose comment says "no default" are unknown until stated.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from preflight.vocabulary.caches import BoundedCache

MOST = 10**36
"""No number of a Job is larger. "No limit" is a smaller one (transformers' VERY_LARGE_INTEGER is 1e30), and products of
eight such numbers do not overflow a float."""
Count = Annotated[int, Field(ge=1, le=MOST)]
Amount = Annotated[int, Field(ge=0, le=MOST)]
Share = Annotated[float, Field(ge=0, le=1)]
Json = Any  # architecture configurations and keyword arguments: JSON whose keys belong to other projects


class Part(BaseModel):
    """A group of Job fields; an unknown key is an error that names the key."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, defer_build=True)


class Model(Part):
    """The trained model. No defaults: at least one of these must be known for a device estimate."""

    name: str | None = None
    architecture: str | None = None
    config: dict[str, Json] | None = None
    path: str | None = None
    target: str | None = None
    kwargs: dict[str, Json] | None = None
    law: str | None = None
    parameters: Count | None = None
    activation_bytes: Count | None = None  # of one sample, where the program's own layers say it
    least_parameters: Count | None = None  # of a model whose count is not known: what is known to be in it
    load: (
        Literal["built", "from-pretrained", "from-pretrained-cast", "torch-load", "torch-load-mmap", "torch-load-full"]
        | None
    ) = None


class Quantization(Part):
    type: Literal["nf4", "fp4", "int8", "gptq", "awq", "hqq", "torchao-int8", "fp8", "eetq", "none"] | None = "none"
    double_quant: bool | None = False
    compute_dtype: Literal["fp32", "bf16", "fp16"] | None = "fp32"
    upcast_rest: bool | None = True
    bits: Count | None = None  # of gptq, awq and hqq; the method's own when absent
    group_size: Annotated[int, Field(ge=-1)] | None = None  # elements that share a scale; -1: a column
    backend: str | None = None  # whose kernels run (gptq: torch, cuda, cuda-old, triton, tritonv2)


class Peft(Part):
    method: str | None = None
    r: Count | None = 8
    targets: list[str] | str | None = None
    dropout: Share | None = 0.0
    dtype: Literal["fp32", "bf16", "fp16"] | None = "fp32"
    options: dict[str, Json] = {}


class Copies(Part):
    """Whole further copies of the model's weights on the GPU."""

    reference: Amount | None = 0
    ema: Amount | None = 0


class Allocator(Part):
    """PYTORCH_CUDA_ALLOC_CONF."""

    expandable_segments: bool | None = False
    max_split_size_mb: Count | None = None
    garbage_collection_threshold: Share | None = None
    per_process_fraction: Share | None = None


class Train(Part):
    # Samples that one device gets at a time, as the program counts them: a trainer of preferences counts pairs. No
    # default.
    batch_size: Count | None = None
    # Sequences of a sample that go through the model together, in training and in validation: 2 for a trainer of pairs
    # (DPO, ORPO, CPO, SimPO, reward models).
    sequences_per_sample: Count | None = 1
    grad_accum: Count | None = 1
    seq_len: Count | None = None  # no default
    target_len: Count | None = None  # seq2seq; no default
    text_len: Count | None = None  # of the text with an image; no default
    image_size: Count | None = None  # the model's own when absent
    images: Amount | None = 1  # in each sample
    sequences: Literal["exact", "bound", "packed", "dynamic"] | None = "bound"
    precision: Literal["fp32", "bf16-mixed", "fp16-mixed", "bf16", "fp16"] | None = "fp32"
    weights_dtype: Literal["fp32", "bf16", "fp16"] | None = None  # what precision implies
    tf32: bool | None = False
    quantization: Quantization = Quantization.model_construct()
    optimizer: str | None = "adamw"
    optimizer_impl: Literal["foreach", "fused", "for-loop"] | None = "foreach"
    gradient_checkpointing: bool | None = False
    reentrant: bool | None = None  # its kind; what the libraries' releases do when absent
    attention: Literal["eager", "sdpa", "flash", "efficient", "math"] | None = "sdpa"
    compile: bool | None = False
    peft: Peft = Peft.model_construct()
    frozen: list[str] = []
    vocab_size: Count | None = None  # the model's own when absent
    copies: Copies = Copies.model_construct()
    companions: list[str] | None = None  # frozen models on the GPU (vae, text_encoder); no default
    outputs_kept: Literal["no", "step", "loop"] | None = "no"
    outputs_cast: bool | None = False  # accelerate copies a model's 16-bit outputs to fp32 under mixed precision
    # of a language model: whole logits in fp32, or not
    loss: Literal["full", "chunked", "chunked-output", "fused", "log-probabilities"] | None = "full"
    # Liger's and alike; each keeps less than plain operations. "liger": as Liger does for the type of the model
    fused_kernels: list[Literal["norm", "rope", "mlp", "liger"]] = []
    optimizer_in_backward: bool | None = False  # each gradient is used and freed during backward
    activation_offload: bool | None = False  # saved activations wait in host memory
    empty_cache_every: Count | None = None
    resumes: Literal["no", "host", "device", "kept", "trainer"] | None = "no"  # by way of; kept: it stays on the device
    saves: Literal["streamed", "gathered"] | None = "streamed"  # storage by storage, or all weights whole on each GPU
    saved_as: Literal["fp32"] | None = None  # what 16-bit weights are cast to, in place, before the last save
    channels_last: bool | None = False
    cudnn_benchmark: bool | None = False
    allocator: Allocator = Allocator.model_construct()


class Validation(Part):
    """All absent: no validation on the device is known of."""

    batch_size: Count | None = None
    seq_len: Count | None = None
    samples: Count | None = None
    accumulates_logits: bool | None = False
    eval_accumulation: Count | None = None
    generates: bool | None = False
    loss: bool | None = None  # absent: yes, unless it generates; then no default
    max_new_tokens: Count | None = None
    beams: Count | None = 1
    loads: list[str] | None = None  # models of a pipeline that are loaded to generate (denoiser, vae); no default


class Data(Part):
    workers: Amount | None = 0
    prefetch: Count | None = 2
    persistent_workers: bool | None = False
    pin_memory: bool | None = False
    start_method: Literal["fork", "spawn", "forkserver"] | None = "fork"
    shuffle: bool | None = False
    samples: Count | None = None  # no default
    epochs: Count | None = None  # passes over them; no default
    sample_bytes: Count | None = None  # one decoded sample; no default
    in_memory_bytes: Amount | None = 0
    in_memory_kind: Literal["arrays", "tensors", "strings", "objects", "mapped"] | None = "arrays"
    samples_from: Literal["torch", "numpy"] | None = None  # whose memory a sample is when it is handed out
    copies_samples: bool | None = None  # of data in memory; absent: rows as large as a sample are handed out as views
    validation_workers: Amount | None = None  # absent: no validation loader is known of
    validation_persistent: bool | None = None  # absent: as the training loader's
    validation_overlaps: bool | None = False
    worker_bytes: Amount | None = 0  # kept by each training worker in addition to its batches (a mosaic buffer)
    imports: list[str] = ["torch"]


class Parallel(Part):
    strategy: Literal["none", "ddp", "fsdp", "zero1", "zero2", "zero3"] | None = "none"
    nodes: Count | None = 1
    gpus_per_node: Count | None = 1
    ranks_per_node: Count | None = 1
    trials_per_gpu: Count | None = 1
    tensor: Count | None = 1
    pipeline: Count | None = 1
    offload: Literal["none", "gradients", "optimizer", "parameters"] | None = "none"
    options: dict[str, Json] = {}  # of DDP, FSDP and DeepSpeed, by their own names


class MachinePart(Part):
    """The machine as the job sees it. No defaults but the accelerator's."""

    accelerator: Literal["gpu", "cpu"] | None = "gpu"  # cpu: no CUDA context on the host
    gpu: str | None = None
    gpu_memory: Count | None = None
    context: Amount | None = None
    node_memory: Count | None = None
    swap: Amount | None = None
    shm: Amount | None = None
    cpus: Count | None = None
    memory_limit: Count | None = None


class Job(Part):
    """One fully specified run. A field is named with its group: `job.train.batch_size` is "train.batch_size"."""

    model: Model = Model.model_construct()
    task: (
        Literal[
            "causal-lm",
            "masked-lm",
            "sequence-classification",
            "token-classification",
            "seq2seq-lm",
            "image-classification",
            "contrastive",
            "speech-seq2seq",
            "diffusion",
            "other",
        ]
        | None
    ) = None
    train: Train = Train.model_construct()
    validation: Validation = Validation.model_construct()
    data: Data = Data.model_construct()
    parallel: Parallel = Parallel.model_construct()
    machine: MachinePart = MachinePart.model_construct()
    software: dict[str, str] = {}

    @field_validator("software", mode="before")
    @classmethod
    def _versions(cls, value: object) -> object:
        """A file's `2.40` without quotes is the number 2.4: of glibc, whose releases have two digits since 2.10."""
        glibc = value.get("glibc") if isinstance(value, dict) else None
        return {**value, "glibc": f"{glibc:.2f}"} if isinstance(value, dict) and isinstance(glibc, float) else value

    def get(self, field: str) -> object:
        """The value of a dotted field, "train.batch_size". Raises KeyError for a name that is none."""
        value: object = self
        for part in field.split("."):
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, BaseModel) and part in type(value).__pydantic_fields__:
                value = getattr(value, part)
            else:
                raise KeyError(field)
        return value


@cache
def fields() -> tuple[str, ...]:
    """Every dotted Job field that holds a value, in the order of the schema."""
    return tuple(_fields(Job, ""))


def _fields(part: type[BaseModel], prefix: str) -> list[str]:
    found: list[str] = []
    for name, info in part.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += _fields(kind, f"{prefix}{name}.")
        else:
            found.append(prefix + name)
    return found


def build(values: dict[str, object]) -> Job:
    """A Job from dotted fields. Raises pydantic.ValidationError (its `loc` names the field)."""
    tree: dict[str, Any] = {}
    for field, value in values.items():
        *path, last = field.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return Job.model_validate(tree)


def identity(part: BaseModel, kept: BoundedCache[str] | None = None) -> str:
    """A text that equal jobs share. It is not their JSON, which has no words for all that a configuration may hold.

    A value that is stated may mean something else than the same value as the default of a field that is not.
    `kept`: of jobs that nobody changes and of their parts; the jobs of a search share all that no axis feeds.
    """
    return _identity(part, kept) if kept is None else kept.get(part, None, lambda: _identity(part, kept))


def _identity(part: BaseModel, kept: BoundedCache[str] | None) -> str:
    parts, values = _parts(), part.__dict__.values()
    said = [name for name in _STATED if name in part.model_fields_set]
    return "|".join([*said, *(identity(one, kept) if type(one) in parts else repr(one) for one in values)])


_STATED = ("frozen", "images", "attention", "sequences", "cudnn_benchmark", "ema", "r", "generates")
"""Fields that a model's kind decides where they are not stated."""


@cache
def _parts() -> frozenset[type]:
    """The classes of the parts of a job. Pydantic takes long to say whether a value is one."""
    return frozenset(_below(Job))


def _below(part: type[BaseModel]) -> list[type[BaseModel]]:
    kinds = [info.annotation for info in part.model_fields.values()]
    own = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return [*own, *(inner for kind in own for inner in _below(kind))]
