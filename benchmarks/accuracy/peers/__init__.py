"""Other tools, each behind a small adapter: a Job in, bytes by tier or a refusal out.

A tool gets what a user could give it: the model's configuration from our catalogue (no hub is reached), and the
settings that it has options for. It refuses where it has no way to be told what the run was. A tool that is not
installed is "not run", and the document says so.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.accuracy.peers import (
    accelerate_estimate,
    deepspeed_states,
    eleuther,
    fitcheck_llm,
    hf_vram,
    memtracker,
)
from benchmarks.accuracy.peers.base import Answer, Peer, Refused

__all__ = ["PEERS", "Answer", "Peer", "Refused"]

PEERS: dict[str, Callable[[], Peer]] = {
    "fitcheck": fitcheck_llm.Fitcheck,
    "hf-vram-calc": hf_vram.HfVramCalc,
    "accelerate": accelerate_estimate.Accelerate,
    "deepspeed": deepspeed_states.DeepSpeed,
    "eleutherai": eleuther.Eleuther,
    "memtracker": memtracker.MemTracker,
}
