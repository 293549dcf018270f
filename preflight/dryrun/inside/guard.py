"""The private interface of torch that a dry run stands on: the device guard, and a test of all of it at the start."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch

_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
"""c10::impl::device_guard_impl_registry (c10/core/impl/DeviceGuardImplInterface.h): a pointer for each type."""
_CUDA = 1
"""DeviceType::CUDA (torch/headeronly/core/DeviceType.h)."""
_METHODS = 64
"""More entries than the table of methods of DeviceGuardImplInterface has (about 25)."""


_BEFORE, _ENTRIES, _GET_DEVICE = 2, 28, 2
"""Entries of the table before its methods (Itanium C++ ABI, 2.5.2); as many as it has methods, or a few more; the place
of getDevice, after type and exchangeDevice. A Device is two bytes in a register: its type and its index."""
_chosen: list[int] = []
"""The GPU that is the current one, once the program has chosen one."""


class NotFakeable(Exception):
    """This build of torch cannot pretend to have a GPU; the message says why."""


_kept: list[Any] = []
"""What C++ points to: it must live as long as the process."""


def install() -> None:
    """A device guard for CUDA that does nothing, in every build of torch.

    `_ensureCUDADeviceGuardSet` gives it to a build with CUDA that has no device. A build without CUDA has no guard to
    replace, so a stand-in whose every method returns 0 (`deviceCount` among them) is registered first. Without a guard
    autograd says "PyTorch is not linked with support for cuda devices".
    """
    ensure = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    if ensure is None:
        raise NotFakeable("torch._C._ensureCUDADeviceGuardSet is missing")
    registry = _registry()
    if registry is None:
        ensure()
        return
    zero = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: 0)
    table = (ctypes.c_void_p * _METHODS)(*[ctypes.cast(zero, ctypes.c_void_p).value] * _METHODS)
    stand_in = ctypes.c_void_p(ctypes.addressof(table))
    _kept.extend((zero, table, stand_in))
    if not registry[_CUDA]:
        registry[_CUDA] = ctypes.addressof(stand_in)
    ensure()
    if registry[_CUDA] == ctypes.addressof(stand_in):
        raise NotFakeable("torch keeps its own device guard for CUDA")


def choose(index: int) -> bool:
    """Tell C++ which GPU is the current one. The guard that does nothing says 0: a copy of its table says `index` in
    place of that. False where the guard cannot be had."""
    registry = _registry()
    if registry is None or not registry[_CUDA]:
        return False
    if not _chosen:
        table = ctypes.c_void_p.from_address(registry[_CUDA]).value or 0
        copied = (ctypes.c_void_p * (_METHODS + _BEFORE))()
        ctypes.memmove(copied, table - 8 * _BEFORE, 8 * (_ENTRIES + _BEFORE))
        says = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(lambda _: _CUDA | _chosen[0] << 8)
        copied[_BEFORE + _GET_DEVICE] = ctypes.cast(says, ctypes.c_void_p).value
        stand_in = ctypes.c_void_p(ctypes.addressof(copied) + 8 * _BEFORE)
        _kept.extend((copied, says, stand_in))
        registry[_CUDA] = ctypes.addressof(stand_in)
        _chosen.append(0)
    _chosen[0] = index
    return True


def _registry() -> Any:
    """The registry in libc10; None where the library does not show it."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    for name in ("libc10.so", "libc10.dylib"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            try:
                start = ctypes.c_void_p.in_dll(ctypes.CDLL(path), _REGISTRY)
            except (OSError, ValueError):
                return None
            return (ctypes.c_void_p * 2).from_address(ctypes.addressof(start))
    return None


def self_test(tape: Any) -> None:
    """Two layers, autocast, backward and an optimizer on the faked device, compared with what they must allocate.

    Raises NotFakeable. The private interface changes between releases; a dry run that is wrong is worse than none.
    """
    try:
        _test(tape)
    except NotFakeable:
        raise
    except Exception as error:
        raise NotFakeable(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
    finally:
        tape.clear()


def _test(tape: Any) -> None:
    weight = torch.nn.Parameter(torch.randn(64, 32))
    layer = torch.nn.Linear(32, 64, bias=False)
    layer.weight = weight
    layer.cuda()
    _expect("a moved parameter keeps its identity", layer.weight is weight)
    _expect("a moved parameter is on cuda", weight.is_cuda and weight.device.type == "cuda")
    _expect("a weight of 64 x 32 takes 8,192 bytes", tape.live == 8192)
    x = torch.zeros(4, 32, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        out = layer(x)
        # weight and input, both again in 16 bits, and the result
        _expect("autocast keeps what it cast", tape.live == 8192 + 512 + 4096 + 256 + 512)
    _expect("autocast computes in 16 bits", out.dtype is torch.float16 and out.is_cuda)
    out.float().sum().backward()
    _expect("backward makes a gradient on cuda", weight.grad is not None and weight.grad.is_cuda)
    optimizer = torch.optim.AdamW(layer.parameters())
    optimizer.step()
    states = [one for one in optimizer.state[weight].values() if one.dim()]
    _expect("AdamW has two states on cuda", len(states) == 2 and all(one.is_cuda for one in states))
    _expect("the value of a small tensor is known", int((torch.arange(5).cuda() + 1).sum()) == 15)
    q = torch.zeros(1, 2, 8, 16, device="cuda", dtype=torch.float16, requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
    _expect("attention has a gradient", q.grad is not None)


def _expect(words: str, holds: bool) -> None:
    if not holds:
        raise NotFakeable(f"the self-test failed: {words}")
