"""The five reports, read from what their jobs left behind: the post-mortem has to say what they established."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from rooms import GIB, open_room

Json = dict[str, Any]

DMESG = """\
[141620.866871] pt_data_worker invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
[141620.867012] 7864320 pages RAM
[141620.867013] Free swap  = 112kB
[141620.867014] Total swap = 8388608kB
[141620.867020] Tasks state (memory values in pages):
[141620.867021] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[141620.867101] [ 1413497]  1000 1413497 12586247  1611230  21073920   340112             0 python
[141620.867110] [ 1413631]  1000 1413631  9003311   402110   9073920    50112             0 pt_data_worker
[141620.867156] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task=python,pid=1413497,uid=1000
[141620.867403] Out of memory: Killed process 1413497 (python) total-vm:50344988kB, anon-rss:6280460kB, \
file-rss:36840kB, shmem-rss:127620kB, UID:1000 pgtables:20580kB oom_score_adj:0
"""
YOLO = """\
wandb: Agent Starting Run: k1 with config:
wandb: \tbatch: 64
wandb: \timgsz: 640
wandb: \tmodel: yolov8n.pt
      9/100      9.1G      1.201      0.811      1.091        512        640: 100%|####| 212/212 [02:58<00:00]
                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95):  52%|##  | 14/27 [00:11]
/bin/bash: line 1: 1413497 Killed                  python train_sweep.py
"""
VOCABULARY = """\
Traceback (most recent call last):
  File "/home/ada/star/train.py", line 72, in <module>
    main()
  File "/home/ada/star/train.py", line 58, in main
    loss = model(inputs, targets)
  File "/home/ada/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1751, in _call_impl
    return forward_call(*args, **kwargs)
  File "/home/ada/star/model.py", line 77, in forward
    return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.45 GiB. GPU 0 has a total capacity of 15.48 GiB of \
which 4.10 GiB is free.
"""
SLURM_ERR = """\
slurmstepd: error: Detected 4 oom_kill events in StepId=273202.0. Some of the step tasks have been OOM Killed.
srun: error: gl017: task 2: Out Of Memory
slurmstepd: error: *** STEP 273202.0 ON gl017 CANCELLED AT 2025-10-16T14:34:05 ***
"""
SLURM_OUT = """\
Epoch 0: 100%|##########| 242/242 [22:54<00:00,  0.18it/s, v_num=0, train/loss=5.190]
Validation DataLoader 0:   0%|          | 0/52 [00:00<?, ?it/s]
"""
SACCT = """\
JobID|JobName|State|ExitCode|ReqMem|MaxRSS|AveRSS|AllocTRES|NNodes|NTasks|AllocCPUS|WorkDir|SubmitLine
273202|train|OUT_OF_MEMORY|0:125|256G|||cpu=256,mem=1T,node=4|4||256|/u/{name}|sbatch train_4node_16gpu_l40s.slurm
273202.0|python|OUT_OF_MEMORY|0:125||76021880K|74868326K|cpu=256,mem=1T,node=4|4|16|256||srun python run_training.py
"""
CLIP = """\
epoch 1: validation loss 3.1021
 44%|####4     | 309/703 [02:11<02:47,  2.36it/s]
Traceback (most recent call last):
  File "scripts/train_car_clip.py", line 102, in <module>
    main()
  File "scripts/train_car_clip.py", line 88, in main
    scaler.scale(loss).backward()
  File "/home/u/.venv/lib/python3.10/site-packages/torch/_tensor.py", line 525, in backward
    torch.autograd.backward(
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 38.00 MiB. GPU 0 has a total capacity of 7.66 GiB \
of which 30.31 MiB is free. Including non-PyTorch memory, this process has 7.26 GiB memory in use. Of the allocated \
memory 6.88 GiB is allocated by PyTorch, and 190.51 MiB is reserved by PyTorch but unallocated.
"""
OPTUNA = """\
[W 2025-01-24 03:12:44,812] Trial 7 failed with parameters: {'seed': 4411, 'model.name': 'bert-large-uncased', \
'tok.max_length': 480, 'train.batch_size': 48, 'train.grad_accum': 4, 'optim.lr': 1.4e-05} because of the following \
error: OutOfMemoryError('CUDA out of memory. Tried to allocate 360.00 MiB. GPU 0 has a total capacity of 23.56 GiB of \
which 259.88 MiB is free. Including non-PyTorch memory, this process has 22.72 GiB memory in use. Of the allocated \
memory 22.31 GiB is allocated by PyTorch, and 120.01 MiB is reserved by PyTorch but unallocated.').
Traceback (most recent call last):
  File "/home/u/psy/.venv/lib/python3.10/site-packages/optuna/study/_optimize.py", line 201, in _run_trial
    value_or_values = func(trial)
  File "/home/u/psy/scripts/tune_max.py", line 110, in objective
    return run_training_eval(cfg, trial)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 360.00 MiB. GPU 0 has a total capacity of 23.56 GiB of \
which 259.88 MiB is free. Including non-PyTorch memory, this process has 22.72 GiB memory in use. Of the allocated \
memory 22.31 GiB is allocated by PyTorch, and 120.01 MiB is reserved by PyTorch but unallocated.
"""


def postmortem(name: str, logs: Mapping[str, str], where: Path, *options: str) -> Json:
    """The JSON of a post-mortem beside an incident's files; no --config: the logs have to name them."""
    from preflight.cli import run

    root = open_room(name, where).root
    for path, text in logs.items():
        (root / path).write_text(text)
    before, written = Path.cwd(), io.StringIO()
    os.chdir(root)
    try:
        with redirect_stdout(written):
            status = run(["postmortem", *logs, *options, "--output-format", "json"])
    finally:
        os.chdir(before)
    assert status == 1, written.getvalue()
    return dict(json.loads(written.getvalue()))


def words(found: Json) -> str:
    """All that the comparison says."""
    return " ".join(text for one in found["estimates"] for text in one["words"])


def tier(found: Json, name: str) -> Json:
    return dict(next(row for row in found["estimates"][0]["tiers"] if row["tier"] == name))


def test_the_sweep_that_the_kernel_killed(tmp_path: Path) -> None:
    logs = {"run.log": YOLO, "dmesg.txt": DMESG}
    found = postmortem("wandb-host-oom", logs, tmp_path, "--config", "sweep_config.yaml")
    [cause] = found["causes"]
    assert (cause["limit"], cause["when"]["phase"]) == ("node", "validation")
    assert cause["host"]["limit"] == 38 * GIB  # 30 GiB of RAM and 8 of swap
    assert any("total-vm 48.01 GiB" in one["figure"] for one in found["misleading"])
    estimate = found["estimates"][0]["host"]
    assert estimate["verdict"] == "exceeds"
    assert "it had to fail" in words(found)
    fix = next(one["fix"] for one in found["check"]["findings"] if one["rule"] == "host-memory-exceeded")
    assert fix["safety"] == "safe"


def test_the_vocabulary_of_ten_million(tmp_path: Path) -> None:
    options = ("--config", "sweep_config_minimal.yaml")
    found = postmortem("wandb-vocab-gpu-oom", {"run.log": VOCABULARY}, tmp_path, *options)
    [cause] = found["causes"]
    assert (cause["limit"], cause["when"]["phase"]) == ("gpu", "forward")
    assert "200 tokens x 10,000,000 vocabulary x 4" in words(found)  # 7.45 GiB, to the digit
    assert "optimizer states alone take 9.54 GiB" in words(found)
    assert "11.38 GiB were in use" in words(found)
    rules = {one["rule"] for one in found["check"]["findings"]}
    assert {"logits-exceed-gpu", "eval-unbatched"} <= rules


def test_killed_when_validation_starts(tmp_path: Path) -> None:
    logs = {
        "train.err": SLURM_ERR,
        "train.out": SLURM_OUT,
        "sacct.txt": SACCT.replace("{name}", "slurm-validation-oom"),
    }
    found = postmortem("slurm-validation-oom", logs, tmp_path)
    [cause] = found["causes"]
    assert (cause["limit"], cause["when"]["phase"]) == ("cgroup", "validation")
    assert cause["host"]["limit"] == 256 * GIB
    [one] = [one for one in found["misleading"] if "MaxRSS 72.5 GiB" in one["figure"]]
    assert "sampled" in one["why"]
    assert found["configuration"] == ["train_4node_16gpu_l40s.slurm"]  # as the accounting names it
    assert "one decoded sample is larger than" in words(found)


def test_the_size_of_a_sample_makes_it_a_verdict(tmp_path: Path) -> None:
    logs = {"train.err": SLURM_ERR, "train.out": SLURM_OUT}
    options = ("--config", "train_4node_16gpu_l40s.slurm", "--set", "data.sample_bytes=230000000")
    found = postmortem("slurm-validation-oom", logs, tmp_path, *options)
    assert "it had to fail" in words(found)
    assert "the rest comes with the validation loaders" in words(found)
    assert any(one["rule"] == "validation-memory-spike" and one["fix"] for one in found["check"]["findings"])


def test_clip_on_eight_gigabytes(tmp_path: Path) -> None:
    found = postmortem("argparse-clip-gpu-oom", {"train.log": CLIP}, tmp_path)
    [cause] = found["causes"]
    assert (cause["limit"], cause["when"]["phase"]) == ("gpu", "backward")
    assert found["configuration"] == ["scripts/train_car_clip.py"]
    assert "it had to fail" in words(found)
    row = tier(found, "allocated")
    assert row["seen"] < row["needed"] < row["estimate"]["low"]  # it died on its way to the peak
    assert "contrastive" in json.dumps(found["check"])


def test_the_trial_that_ended_the_night(tmp_path: Path) -> None:
    found = postmortem("optuna-hpo-gpu-oom", {"hpo.log": OPTUNA}, tmp_path)
    [cause] = found["causes"]
    assert (cause["limit"], cause["trial"]["name"]) == ("gpu", "7")
    [estimate] = found["estimates"]
    assert estimate["certain"]
    assert estimate["job"]["model"]["name"] == "bert-large-uncased"
    assert (estimate["job"]["train"]["batch_size"], estimate["job"]["train"]["seq_len"]) == (48, 480)
    assert estimate["device"]["verdict"] == "exceeds"
    assert "it had to fail" in words(found)
    assert {one["rule"] for one in found["check"]["findings"]} >= {"space-partly-unsafe", "oom-not-handled"}
    for name in ("allocated", "reserved", "process"):
        assert tier(found, name)["estimate"] == estimate["device"][name]  # never one tier beside another
