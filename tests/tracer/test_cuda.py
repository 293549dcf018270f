"""The emulation of CUDA on meta tensors: autocast's lists and cache, attention kernels, what kernels allocate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from preflight.tracer import cuda  # noqa: E402
from preflight.tracer.cuda import Cuda  # noqa: E402
from preflight.tracer.tape import Tape  # noqa: E402


def meta(*shape: int, dtype: Any = None, grad: bool = False) -> Any:
    return torch.zeros(*shape, dtype=dtype or torch.float32, device="meta", requires_grad=grad)


def mode(dtype: Any = None, attention: str = "sdpa") -> Cuda:
    return Cuda(dtype, attention, lambda _: None)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        # No change first: ops on no list, and integers.
        pytest.param(lambda x: F.relu(x), torch.float32, id="relu keeps its type"),
        pytest.param(lambda x: x + x, torch.float32, id="add keeps its type"),
        pytest.param(lambda x: x.long() + x.long(), torch.int64, id="integers are left alone"),
        pytest.param(lambda x: x @ x.T, torch.bfloat16, id="matmul is lowered"),
        pytest.param(lambda x: torch.addmm(x, x, x), torch.bfloat16, id="addmm is lowered"),
        pytest.param(lambda x: F.linear(x, x), torch.bfloat16, id="linear is lowered"),
        pytest.param(lambda x: torch.einsum("ij,jk->ik", x, x), torch.bfloat16, id="einsum is lowered"),
        pytest.param(lambda x: F.softmax(x.bfloat16(), -1), torch.float32, id="softmax is raised"),
        pytest.param(lambda x: F.layer_norm(x.bfloat16(), (8,)), torch.float32, id="layer_norm is raised"),
        pytest.param(lambda x: torch.pow(x.bfloat16(), 2), torch.float32, id="pow is raised"),
        pytest.param(lambda x: x.bfloat16().sum(), torch.float32, id="sum is raised"),
        pytest.param(lambda x: torch.cat([x, x.bfloat16()]), torch.float32, id="cat takes the widest"),
        pytest.param(
            lambda x: F.interpolate(x[None, None].bfloat16(), scale_factor=2.0),
            torch.float32,
            id="upsampling is raised",
        ),
        pytest.param(
            lambda x: F.cross_entropy(x.bfloat16(), x[:, 0].long()), torch.float32, id="cross_entropy is raised"
        ),
    ],
)
def test_autocast(operation: Callable[[Any], Any], expected: Any) -> None:
    with mode(torch.bfloat16):
        assert operation(meta(8, 8)).dtype is expected


NO_KERNEL_OF_PYTHON = {"convolution", "cudnn_convolution", "cudnn_convolution_transpose", "native_layer_norm",
    "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "_scaled_dot_product_flash_attention"}  # fmt: skip
"""Operations of autocast's lists that Python reaches by others of the lists."""
REFUSED = {"binary_cross_entropy"}
"""Autocast raises an error."""


def test_the_lists_of_autocast_are_torchs_own() -> None:
    """Those that have a kernel for autocast on CUDA; a build for the CPU has them registered as well."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    registered = {name[6:].partition(".")[0] for name in names if has(name, "AutocastCUDA")}
    lists = (cuda.LOWER_OPS, cuda.FLOAT32_OPS, cuda.FLOAT32_OUT_OPS, cuda.PROMOTE_OPS)
    ours = {name for one in lists for name in one.split()}
    assert registered - ours == NO_KERNEL_OF_PYTHON | REFUSED
    assert ours - registered == set()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_16_bits(smoothing: float) -> None:
    """log_softmax stays in 16 bits (LossNLL.cpp tells it the type), and nll_loss reads a copy in fp32."""
    x, target = meta(32, 500, dtype=torch.bfloat16), torch.zeros(32, dtype=torch.int64, device="meta")

    def run() -> Any:
        with mode(torch.bfloat16):
            return F.cross_entropy(x, target, label_smoothing=smoothing)

    made = births(run)
    assert (made.count(32 * 500 * 2), made.count(32 * 500 * 4)) == (1, 1)


def test_cat_copies_nothing() -> None:
    """It promotes by itself on CUDA; autocast on the CPU alone has it on a list."""
    wide, narrow = meta(64, 64), meta(64, 64, dtype=torch.bfloat16)

    def run() -> Any:
        with mode(torch.bfloat16):
            return torch.cat([wide, narrow])

    assert births(run) == [2 * 64 * 64 * 4]


def test_weights_are_cast_once_and_inputs_every_time() -> None:
    weight, x = meta(8, 8, grad=True), meta(4, 8)
    autocast = mode(torch.bfloat16)
    with autocast:
        for _ in range(3):
            F.linear(x, weight)
    assert len(autocast._weights) == 1
    assert not autocast.again()._weights


def births(run: Callable[[], Any]) -> list[int]:
    """Bytes of the storages that running something makes."""
    tape = Tape(bool_answer=False)
    tape.recording = True
    with tape:
        kept = run()
    del kept
    return [size for size, _ in tape.events if size >= 0]


@pytest.mark.parametrize(
    ("dtype", "mask", "grouped", "kernel"),
    [
        pytest.param(torch.bfloat16, False, False, "flash", id="16 bit, no mask"),
        pytest.param(torch.bfloat16, False, True, "flash", id="16 bit, grouped heads"),
        pytest.param(torch.bfloat16, True, False, "efficient", id="a mask"),
        pytest.param(torch.float32, False, False, "efficient", id="32 bit"),
        pytest.param(torch.float32, False, True, "efficient", id="32 bit, grouped heads: keys are repeated"),
    ],
)
def test_attention_kernel(dtype: Any, mask: bool, grouped: bool, kernel: str) -> None:
    """The kernel shows in what it allocates: the math kernel alone makes the b x h x s x s scores."""
    b, h, s, d = 2, 4, 96, 16
    q = meta(b, h, s, d, dtype=dtype, grad=True)
    k = meta(b, h // 2 if grouped else h, s, d, dtype=dtype, grad=True)
    bias = torch.zeros(b, 1, s, s, dtype=torch.bool, device="meta") if mask else None

    def run() -> Any:
        with mode():
            return F.scaled_dot_product_attention(q, k, k, attn_mask=bias, enable_gqa=grouped)

    out = run()
    names = set()
    stack = [out.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None:
            names.add(type(node).__name__)
            stack += [n for n, _ in node.next_functions]
    wanted = {"flash": "ScaledDotProductFlash", "efficient": "ScaledDotProductEfficient"}.get(kernel)
    assert any(wanted in name for name in names) if wanted else not any("ScaledDotProduct" in n for n in names)
    scores = b * h * s * s * (2 if dtype is torch.bfloat16 else 4)
    assert (scores in births(run)) == (kernel == "math")


def test_dropout_keeps_a_bool_mask() -> None:
    x = meta(64, 64, grad=True)

    def run() -> Any:
        with mode():
            return F.dropout(x, 0.1, True)

    assert sorted(births(run)) == [64 * 64, 4 * 64 * 64]


def test_softmax_backward_holds_a_product() -> None:
    """SoftMax.cu: `tmp = grad * output` beside the gradient."""
    x = meta(32, 32, grad=True)
    out = torch.softmax(x, -1)
    made = births(lambda: out.backward(meta(32, 32)))
    assert made.count(32 * 32 * 4) >= 2


@pytest.mark.parametrize(("dtype", "converted"), [(torch.float16, False), (torch.bfloat16, True)])
def test_fp16_softmax_widens_within_the_kernel(dtype: Any, converted: bool) -> None:
    x = meta(32, 32, dtype=dtype)

    def run() -> Any:
        with mode():
            return F.softmax(x, dim=-1, dtype=torch.float32)

    assert births(run).count(32 * 32 * 4) == (2 if converted else 1)


def test_composites_are_seen_from_inside() -> None:
    """Python-level functions are followed into: what they call is cast, without endless recursion."""
    attention = torch.nn.MultiheadAttention(16, 2, batch_first=True).to("meta")
    with mode(torch.bfloat16):
        out, _ = attention(meta(2, 5, 16), meta(2, 5, 16), meta(2, 5, 16))
        pooled = F.max_pool2d(meta(1, 3, 8, 8), 2)
    assert out.dtype is torch.bfloat16
    assert pooled.dtype is torch.float32
