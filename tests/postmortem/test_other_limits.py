"""Words that look like one limit and mean another, or none."""

from __future__ import annotations

import pytest
from reader import cause, concluded

PINNED = """RuntimeError: Caught RuntimeError in pin memory thread for device 0.
Original Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/torch/utils/data/_utils/pin_memory.py", line 98, in pin_memory
    clone[i] = pin_memory(item, device)
RuntimeError: CUDA error: out of memory
"""


@pytest.mark.parametrize(
    "text",
    [
        'Tip: if you see "CUDA out of memory. Tried to allocate 2.00 GiB", reduce the batch size.\n',
        "Lower the batch size when CUDA runs out of memory (CUDA out of memory).\n",
        "This prevents CUDA out of memory. Tried to allocate 2.00 GiB\n",
    ],
)
def test_advice_about_the_error_is_not_the_error(text: str) -> None:
    assert not concluded(f"{text}step 10\nKeyError: 'a'\n").causes


def test_the_error_with_its_own_advice_is_the_error() -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "23.56 GiB of which 1.00 GiB is free. If reserved but unallocated memory is large try setting "
        "expandable_segments to avoid it.\n"
    )
    assert cause(text).limit == "gpu"


def test_too_many_open_files_is_no_full_shared_memory() -> None:
    text = (
        "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode: Too many open files (24)\n"
    )
    found = cause(text)
    assert found.limit == "files"
    assert any("ulimit -n" in words for words in found.help)


def test_the_thread_that_pins_batches_asks_the_host() -> None:
    found = cause(PINNED)
    assert found.limit == "refused"
    assert "pinned" in found.title


@pytest.mark.parametrize(
    ("text", "victim"),
    [
        ("Warning  Evicted  3m  kubelet  The node was low on resource: memory.\n", "the process"),
        (
            "Message:  The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container "
            "train was using 60Gi, request is 32Gi, has larger consumption of memory.\n",
            "train",
        ),
    ],
)
def test_an_evicted_pod_is_out_of_the_nodes_memory(text: str, victim: str) -> None:
    found = cause(text)
    assert found.limit == "node"
    assert f"the kubelet killed {victim}" in found.title


def test_a_node_that_is_low_on_disk_is_no_matter_of_memory() -> None:
    assert not concluded("The node was low on resource: ephemeral-storage.\n").causes
