"""torch.cuda's answers: there is a GPU, its name and memory are those that were asked for, and streams do nothing."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

from . import guard
from .patches import answers, replace, wrap
from .settings import Settings
from .tape import Tape

_DTYPES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Byte": torch.uint8, "Bool": torch.bool,
}  # fmt: skip
_RAW = ("_cuda_getCurrentRawStream", "_cuda_getDevice", "_cuda_setDevice", "_cuda_synchronize",
        "_cuda_clearCublasWorkspaces")  # fmt: skip
"""What libraries with kernels of their own take from torch when they are imported."""
_nothing, _zero, _true = answers(None), answers(0), answers(True)


class Stream:
    """A stream or an event of the device: it does nothing, and is done."""

    device, cuda_stream, stream_id, device_index, device_type, priority = torch.device("cuda", 0), 0, 0, 0, 1, 0

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...
    def wait_stream(self, *_: Any) -> None: ...
    def wait_event(self, *_: Any) -> None: ...
    def synchronize(self) -> None: ...
    def record(self, *_: Any) -> None: ...
    def wait(self, *_: Any) -> None: ...
    def record_event(self, *_: Any) -> Stream:
        return self

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def elapsed_time(self, _: Any) -> float:
        return 1.0


class _NoContext(contextlib.nullcontext):  # type: ignore[type-arg]
    """torch.cuda.device(...), torch.cuda.stream(...): a context that changes nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


def _index(device: Any) -> int | None:
    """The number of a GPU, however it is spelled; None if it is none."""
    if isinstance(device, int):
        return device
    return torch.device(device).index if device is not None else None


def _answers(settings: Settings, tape: Tape) -> dict[str, Any]:
    state, count = torch.random.default_generator, settings.local_world_size
    properties = types.SimpleNamespace(
        name=settings.gpu_name, total_memory=settings.gpu_memory, major=settings.capability[0],
        minor=settings.capability[1], multi_processor_count=108, is_integrated=False, is_multi_gpu_board=False,
        max_threads_per_multi_processor=2048, warp_size=32, gcnArchName="", regs_per_multiprocessor=65536,
        shared_memory_per_multiprocessor=167936, shared_memory_per_block_optin=166912, L2_cache_size=40 * 2**20,
    )  # fmt: skip

    def chosen(device: Any, *_: Any) -> None:
        index = _index(device)
        if index is not None and index >= 0 and index != tape.current and guard.choose(index):
            tape.current = index

    def live(*_: Any, **__: Any) -> int:
        return tape.live

    def peak(*_: Any, **__: Any) -> int:
        return tape.peak

    def free(*_: Any, **__: Any) -> tuple[int, int]:
        return max(0, settings.gpu_memory - tape.live), settings.gpu_memory

    def stats(*_: Any, **__: Any) -> dict[str, int]:
        kinds = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
        known = {f"{kind}.all.current": tape.live for kind in kinds}
        return {**known, **{f"{kind}.all.peak": tape.peak for kind in kinds}, "num_ooms": 0, "num_alloc_retries": 0}

    memory = {"memory_allocated": live, "memory_reserved": live, "memory_cached": live, "max_memory_allocated": peak,
              "max_memory_reserved": peak, "max_memory_cached": peak, "mem_get_info": free, "memory_stats": stats,
              "memory_summary": answers("")}  # fmt: skip
    silent = ("_lazy_init", "init", "synchronize", "empty_cache", "ipc_collect", "manual_seed",
              "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "manual_seed_all",
              "set_per_process_memory_fraction", "seed", "seed_all", "set_rng_state", "set_rng_state_all",
              "set_stream", "reset_accumulated_memory_stats", "_sleep")  # fmt: skip
    return {
        **memory,
        **dict.fromkeys(silent, _nothing),
        "is_available": _true, "device_count": answers(count), "set_device": chosen,
        "current_device": lambda *_: tape.current, "is_initialized": _true,
        "get_device_name": answers(settings.gpu_name), "_is_in_bad_fork": answers(False),
        "get_device_properties": answers(properties), "get_device_capability": answers(tuple(settings.capability)),
        "is_bf16_supported": _bf16(settings.capability[0] >= 8), "initial_seed": _zero,
        "get_rng_state": lambda *_, **__: state.get_state(),
        "get_rng_state_all": lambda *_, **__: [state.get_state()] * count,
        "Stream": Stream, "Event": Stream, "ExternalStream": Stream, "current_stream": lambda *_, **__: Stream(),
        "default_stream": lambda *_, **__: Stream(), "stream": _NoContext, "device": _NoContext,
        "device_of": _NoContext, "get_arch_list": answers([f"sm_{settings.capability[0]}{settings.capability[1]}"]),
        "utilization": _zero, "temperature": _zero, "power_draw": _zero, "default_generators": (state,) * count,
        "_device_count_nvml": answers(count), "can_device_access_peer": _true, "current_blas_handle": _zero,
        "is_current_stream_capturing": answers(False), "graph_pool_handle": answers((0, 0)),
    }  # fmt: skip


def _bf16(native: bool) -> Callable[..., bool]:
    """An older GPU emulates the type, which counts where torch asks for it (torch/cuda/__init__.py)."""
    emulated = "including_emulation" in inspect.signature(torch.cuda.is_bf16_supported).parameters

    def supported(including_emulation: bool = True) -> bool:
        return native or (emulated and including_emulation)

    return supported


def install(settings: Settings, tape: Tape) -> None:
    """Put the answers into torch.cuda and its modules, torch.backends and torch.accelerator."""
    cuda = torch.cuda
    for name, value in _answers(settings, tape).items():
        replace(cuda, name, value)
        for module in (cuda.memory, cuda.random, cuda.streams):
            if hasattr(module, name):
                replace(module, name, value)
    for name in ("range_push", "range_pop", "mark"):
        replace(cuda.nvtx, name, _nothing)
    replace(cuda.nccl, "version", answers((2, 21, 5)))
    _typed_tensors()
    _generators()
    _devices()
    for name in _RAW:
        if not hasattr(torch._C, name):
            setattr(torch._C, name, _zero)
    replace(torch._C, "_scatter", lambda t, devices, *_: [c.to("cuda") for c in t.chunk(len(devices))])
    replace(torch._C, "_gather", lambda tensors, dim, *_: torch.cat(list(tensors), dim))
    torch.version.cuda = "12.8"
    replace(torch.backends.cudnn, "is_available", _true)
    replace(torch.backends.cuda, "is_built", _true)
    replace(torch.backends.cudnn, "version", answers(91000))
    _accelerator(settings, tape)


def _generators() -> None:
    """torch.Generator("cuda") draws on the CPU: what it draws is never looked at."""
    real = torch.Generator

    class Generator(real):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = None) -> Any:
            return real("cpu")

    torch.Generator = Generator


def _devices() -> None:
    """torch.device(0): a number alone means the accelerator, which C++ looks for."""
    real = torch.device

    def make(_: Any, *args: Any, **kwargs: Any) -> Any:
        return (
            real("cuda", args[0]) if len(args) == 1 and type(args[0]) is int and not kwargs else real(*args, **kwargs)
        )

    def is_one(_: Any, one: Any) -> bool:
        return isinstance(one, real)

    kind = type("kind", (type,), {"__call__": make, "__instancecheck__": is_one})
    torch.device = kind("device", (), {"__module__": "torch"})


def _accelerator(settings: Settings, tape: Tape) -> None:
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:  # torch before 2.6
        return
    known = {
        "is_available": _true, "device_count": answers(settings.local_world_size), "current_device_index": _zero,
        "current_accelerator": answers(torch.device("cuda")), "synchronize": _nothing, "set_device_index": _nothing,
        "current_stream": lambda *_, **__: Stream(), "empty_cache": _nothing, "device_index": _NoContext,
        "memory_allocated": lambda *_: tape.live, "max_memory_allocated": lambda *_: tape.peak,
    }  # fmt: skip
    for name, value in known.items():
        replace(accelerator, name, value)
    replace(torch._C, "_get_accelerator", lambda *_: torch.device("cuda"))
    replace(torch.nn.parallel._functions, "_get_stream", lambda *_: Stream())
    for name in ("Stream", "Event"):
        if hasattr(torch, name):
            replace(torch, name, Stream)


def _typed_tensors() -> None:
    """torch.cuda.FloatTensor(...) and its like, and `Tensor.type`."""
    known: dict[str, torch.dtype] = {}

    def by_default(real_default: Any, kind: Any) -> None:
        """torch.set_default_tensor_type of a type of the device: C++ would look for its tensors."""
        dtype = known.get(kind) if isinstance(kind, str) else getattr(kind, "dtype", None)
        if dtype is None or (not isinstance(kind, str) and not getattr(kind, "_dry", False)):
            real_default(kind)
            return
        torch.set_default_dtype(dtype)
        torch.set_default_device("cuda")

    wrap(torch, "set_default_tensor_type", by_default)
    for name, dtype in _DTYPES.items():
        made = _typed(name, dtype)
        setattr(torch.cuda, f"{name}Tensor", made)
        known[f"torch.cuda.{name}Tensor"] = dtype
    real = torch.Tensor.type

    def typed(t: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is None:
            return real(t)
        to = getattr(dtype, "dtype", None) if isinstance(dtype, type) else known.get(str(dtype))
        return real(t, dtype, *args, **kwargs) if to is None else t.to("cuda", to)

    replace(torch.Tensor, "type", typed)


def _typed(name: str, dtype: torch.dtype) -> Any:
    def make(_: Any, *size: Any) -> Any:
        if len(size) == 1 and not isinstance(size[0], (int, torch.Size)):
            return torch.as_tensor(size[0]).to("cuda", dtype)
        return torch.empty(*size, dtype=dtype, device="cuda")

    def is_one(_: Any, t: Any) -> bool:
        return isinstance(t, torch.Tensor) and t.is_cuda and t.dtype is dtype

    kind = type("kind", (type,), {"__call__": make, "__instancecheck__": is_one})
    return kind(f"{name}Tensor", (), {"__module__": "torch.cuda", "dtype": dtype, "_dry": True})
