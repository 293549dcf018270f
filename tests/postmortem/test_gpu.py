"""PyTorch's messages of every generation, and what they say about who holds the memory."""

from __future__ import annotations

import pytest
from reader import all_of, cause, concluded, only

from preflight.postmortem.evidence import GpuOom
from preflight.postmortem.gpu_message import elsewhere, own

GIB, MIB = 2**30, 2**20
TAIL = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid"
    " fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html)"
)


def gib(size: float) -> int:
    return round(size * GIB)


def new(
    tried: str = "2.00 GiB",
    capacity: str = "23.56 GiB",
    free: str = "1.00 GiB",
    processes: str = "Including non-PyTorch memory, this process has 22.50 GiB memory in use. ",
    allocated: str = "21.75 GiB",
    loose: str = "250.00 MiB",
    word: str = "capacity",
    more: str = "",
) -> str:
    """A message of 2.1 or later."""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total {word} of "
        f"{capacity} of which {free} is free. {processes}{more}Of the allocated memory {allocated} is allocated by "
        f"PyTorch, and {loose} is reserved by PyTorch but unallocated.{TAIL}\n"
    )


def old(
    tried: str = "2.00 GiB",
    capacity: str = "39.59 GiB",
    allocated: str = "34.50 GiB",
    free: str = "1.50 GiB",
    last: str = "37.00 GiB reserved in total by PyTorch",
) -> str:
    """A message of 1.x."""
    return (
        f"RuntimeError: CUDA out of memory. Tried to allocate {tried} (GPU 3; {capacity} total capacity; {allocated} "
        f"already allocated; {free} free; {last})\n"
    )


def test_a_message_of_today() -> None:
    found = only(new(), GpuOom)
    assert (found.library, found.device, found.tried, found.capacity) == ("pytorch", 0, 2 * GIB, gib(23.56))
    assert (found.free, found.own, found.allocated) == (GIB, gib(22.5), gib(21.75))
    assert found.reserved == gib(21.75) + 250 * MIB


@pytest.mark.parametrize("word", ["capacty", "capacity"])
def test_a_message_of_2_1_misspelt(word: str) -> None:
    assert only(new(word=word), GpuOom).capacity == gib(23.56)


@pytest.mark.parametrize("api", ["HIP", "XPU"])
def test_other_makers(api: str) -> None:
    text = new(processes="").replace("CUDA", api).replace("2.00 GiB. GPU 0", "2.00 GiB. GPU ")
    found = only(text, GpuOom)
    assert (found.own, found.device, found.allocated) == (None, None, gib(21.75))


def test_a_message_of_1_x() -> None:
    found = only(old(), GpuOom)
    assert (found.device, found.capacity, found.allocated) == (3, gib(39.59), gib(34.5))
    assert (found.free, found.reserved) == (gib(1.5), 37 * GIB)


def test_cached_once_meant_what_lay_beside() -> None:
    found = only(old(last="512.00 MiB cached"), GpuOom)
    assert found.reserved == gib(34.5) + 512 * MIB
    assert only(old(last="37.00 GiB cached"), GpuOom).reserved == 37 * GIB


def test_the_asynchronous_allocator() -> None:
    text = (
        "torch.OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of memory)\n"
        "Currently allocated     : 9.50 GiB\nRequested               : 640.00 MiB\n"
        "Device limit            : 11.50 GiB\n"
        "Free (according to CUDA): 7.00 MiB\nPyTorch limit (set by user-supplied memory fraction)\n"
        "                        : 17179869184.00 GiB\n"
    )
    found = only(text, GpuOom)
    assert (found.device, found.allocated, found.tried) == (1, gib(9.5), 640 * MIB)
    assert (found.capacity, found.free) == (gib(11.5), 7 * MIB)


def test_a_message_that_was_broken_into_lines() -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.45 GiB. \n"
    text += "GPU 0 has a total capacity of 15.48 GiB of which 4.10 GiB is free.\nnext\n"
    found = only(text, GpuOom)
    assert (found.tried, found.capacity, found.free) == (gib(7.45), gib(15.48), gib(4.1))


def test_a_message_as_people_shorten_it() -> None:
    text = "Error: CUDA out of memory. Tried to allocate 360.00 MiB.\n"
    text += "       GPU has 23.56 GiB total, only 259.88 MiB free.\n       Process using 22.72 GiB.\n"
    found = only(text, GpuOom)
    assert (found.tried, found.capacity, found.own) == (360 * MIB, gib(23.56), gib(22.72))


def test_figures_that_no_memory_can_have() -> None:
    """WSL reports 2^64 bytes in use."""
    processes = "Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. "
    assert only(new(processes=processes), GpuOom).own is None


def test_graphs_have_pools_of_their_own() -> None:
    pools = "is allocated by PyTorch, with 328.00 MiB allocated in private pools (e.g., CUDA Graphs), and"
    text = new().replace("is allocated by PyTorch, and", pools)
    found = only(text, GpuOom)
    assert (found.private_pools, found.allocated) == (328 * MIB, gib(21.75))


def test_in_a_container_this_process_has_a_foreign_number() -> None:
    processes = "Process 503076 has 9.91 MiB memory in use. Process 3112211 has 22.60 GiB memory in use. "
    found = only(new(processes=processes), GpuOom)
    assert own(found) == gib(22.6)
    assert cause(new(processes=processes)).limit == "gpu"


def test_memory_held_by_another_process() -> None:
    processes = (
        "Process 777 has 16.00 GiB memory in use. Including non-PyTorch memory, this process has 6.50 GiB memory in "
        "use. "
    )
    text = new(processes=processes, allocated="6.00 GiB", loose="100.00 MiB")
    found = cause(text)
    assert found.limit == "gpu-shared"
    assert "16 GiB" in found.title
    assert any("777" in note for note in found.notes)
    assert any("do not reset the GPU" in line for line in found.help)


def test_what_others_hold_with_contexts_alone_is_not_to_blame() -> None:
    processes = (
        "Process 777 has 260.00 MiB memory in use. Including non-PyTorch memory, this process has 22.50 GiB memory in "
        "use. "
    )
    text = new(tried="200.00 MiB", free="64.00 MiB", processes=processes)
    assert cause(text).limit == "gpu"
    [message] = all_of(text, GpuOom)
    assert elsewhere(message) == pytest.approx(260 * MIB, abs=gib(1))


def test_an_old_message_tells_of_others_by_what_is_missing() -> None:
    text = old(tried="96.00 MiB", allocated="4.00 GiB", free="36.00 MiB", last="4.10 GiB reserved in total by PyTorch")
    found = cause(text)
    assert found.limit == "gpu-shared"
    assert "outside PyTorch" in found.title


def test_fragmentation() -> None:
    text = new(tried="3.00 GiB", free="1.00 GiB", allocated="15.00 GiB", loose="6.50 GiB")
    assert cause(text).limit == "gpu-fragmented"
    assert cause(new(tried="200.00 MiB", free="60.00 MiB")).limit == "gpu"  # a few loose pieces are always there


def test_a_fraction_that_the_program_set() -> None:
    text = new(tried="2.00 GiB", free="12.00 GiB", processes="11.00 GiB allowed; ", allocated="10.00 GiB")
    assert cause(text).limit == "gpu-fraction"
    assert "frees nothing" in cause(text).help[0]


def test_one_failure_told_three_times_is_one() -> None:
    message = new()
    wandb = "wandb: ERROR Run abc errored: OutOfMemoryError('" + message.partition(": ")[2].strip() + "')\n"
    trace = 'Traceback (most recent call last):\n  File "/p/train.py", line 7, in main\n    loss.backward()\n'
    [found] = concluded(trace + message + wandb + message).causes
    assert found.count == 1
    assert found.when.frame is not None
    assert found.when.frame.path == "/p/train.py"


def test_ranks_that_take_turns_are_grouped() -> None:
    lines = [
        "[rank{0}]: Traceback (most recent call last):",
        '[rank{0}]:   File "/p/train.py", line 40, in <module>',
        '[rank{0}]:   File "/e/lib/python3.11/site-packages/torch/optim/adamw.py", line 220, in step',
        "[rank{0}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {0}.50 GiB. GPU {0} has a total "
        "capacity of 23.56 GiB of which 1.00 GiB is free.",
    ]
    text = "\n".join(line.format(rank) for line in lines for rank in range(4)) + "\n"
    [found] = concluded(text).causes
    assert found.count == 4
    assert found.when.phase == "optimizer"
    assert any("4 ranks: 0, 1, 2, 3" in note for note in found.notes)


def test_colours_and_timestamps() -> None:
    text = "".join(f"\x1b[31m2021-12-08T01:25:15.387Z \x1b[0m{part}" for part in new().splitlines(keepends=True))
    assert only(text, GpuOom).tried == 2 * GIB


def test_source_code_is_no_error() -> None:
    text = 'if "CUDA out of memory" in str(error):\nexcept torch.cuda.OutOfMemoryError:  # CUDA out of memory\n'
    assert not all_of(text, GpuOom)


@pytest.mark.parametrize(
    ("line", "library", "tried"),
    [
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cublas", None),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear", "cudnn", None),
        ("RuntimeError: CUDA error: out of memory", "cuda", None),
        ("RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/THCStorage.cu:58", "cuda", None),
        ("node1:77:99 [0] include/alloc.h:48 NCCL WARN Cuda failure 'out of memory'", "nccl", None),
        ("node1:77:99 [0] NCCL WARN Cuda failure 2 'out of memory'", "nccl", None),
        ("jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4096 bytes.", "jax", 4096),
        ("JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.50GiB.", "jax", gib(2.5)),
        ("tensorflow...ResourceExhaustedError: OOM when allocating tensor with shape[8,4,2] and type float on /job",
         "tensorflow", 8 * 4 * 2 * 4),
    ],
)  # fmt: skip
def test_other_libraries_are_recognised_as_what_they_are(line: str, library: str, tried: int | None) -> None:
    found = only(line + "\n", GpuOom)
    assert (found.library, found.tried) == (library, tried)
    assert cause(line + "\n").limit == "gpu"


def test_a_library_that_fails_after_pytorch_is_a_consequence() -> None:
    text = new() + "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n"
    [found] = concluded(text).causes
    assert any("cuBLAS" in note for note in found.notes)


def test_a_small_request_is_a_last_straw() -> None:
    [one] = concluded(new(tried="20.00 MiB", free="10.00 MiB")).misleading
    assert "20 MiB" in one.figure
    assert not concluded(new(tried="8.00 GiB", free="7.00 GiB")).misleading
