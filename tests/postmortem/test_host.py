"""What programs, containers and daemons say of host memory, and when in a run it happened."""

from __future__ import annotations

import pytest
from reader import all_of, cause, concluded, only, read

from preflight.postmortem.evidence import ContainerKilled, DaemonKill, HostAllocation, Killed, Trial, WorkerDied

GIB, MIB = 2**30, 2**20
KILLED = "RuntimeError: DataLoader worker (pid 61138) is killed by signal: Killed. \n"
BUS = (
    "RuntimeError: DataLoader worker (pid 270071) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit.\n"
)


def test_a_killed_worker_alone_explains_nothing() -> None:
    found = cause(KILLED)
    assert found.limit == "killed"
    assert any("dmesg" in text for text in found.help)


def test_a_killed_worker_beside_the_kernels_word() -> None:
    [found] = concluded(KILLED + "[1.0] Out of memory: Killed process 61138 (pt_data_worker) total-vm:4kB\n").causes
    assert found.limit == "node"
    assert any("DataLoader worker" in note for note in found.notes)


@pytest.mark.parametrize(
    "text",
    [
        BUS,
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shm.\n",
        "RuntimeError: unable to write to file </torch_311_1030151126_0>: No space left on device (28)\n",
        "RuntimeError: unable to mmap 1024 bytes from file </torch_31_9>: Cannot allocate memory (12)\n",
    ],
)
def test_shared_memory(text: str) -> None:
    found = cause(text)
    assert found.limit == "shm"
    assert any("--shm-size" in words for words in found.help)


def test_a_segmentation_fault_is_no_matter_of_memory() -> None:
    assert cause(BUS.replace("Bus error", "Segmentation fault")).limit == "worker"
    assert not concluded(BUS.replace("Bus error", "Terminated")).causes


def test_workers_that_only_went_away() -> None:
    text = "RuntimeError: DataLoader worker (pid(s) 3216, 3217) exited unexpectedly\n"
    assert only(text, WorkerDied).signal == ""
    assert not concluded(text).causes


@pytest.mark.parametrize(
    ("line", "tried"),
    [
        ("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
         "allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)", 8 * GIB),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 3.00 GiB for an array with shape (1,)", 3 * GIB),
        ("OSError: [Errno 12] Cannot allocate memory", None),
        ("MemoryError", None),
    ],
)  # fmt: skip
def test_memory_that_was_refused(line: str, tried: int | None) -> None:
    [found] = all_of(line + "\n", HostAllocation)
    assert found.tried == tried
    assert cause(line + "\n").limit == "refused"


@pytest.mark.parametrize(
    "line",
    [
        "  traceback : Signal 9 (SIGKILL) received by PID 8158",
        "  exitcode  : -9 (pid: 8158)",
        "failed (exitcode: -9) local_rank: 2 (pid: 8158) of binary: /opt/python",
        "/var/spool/slurmd/job7/slurm_script: line 4: 8158 Killed                  python train.py",
        "subprocess.CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>.",
        "[INFO] [launch.py:318] exits with return code = -9",
        "srun: error: n17: tasks 0-3: Killed",
        "command terminated with exit code 137",
        "137",
        "rc=137",
        "EXIT CODE: 137",
        "Killed",
    ],
)
def test_a_kill_that_nobody_explains(line: str) -> None:
    assert only(line + "\n", Killed).pid in (8158, None)
    assert cause(line + "\n").limit == "killed"


def test_ordinary_numbers_are_no_kills() -> None:
    assert not read("step 137/900 loss 0.9\nexit code 0\nepoch 9 lr -9e-5\nKilled 3 old checkpoints\n").evidence
    assert not read("136\n137\n138\nloss=137\nepoch 137\n").evidence


DESCRIBE = """\
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
    Limits:
      cpu:     4
      memory:  {limit}
    Requests:
      memory:  1Gi
"""


@pytest.mark.parametrize(("limit", "size"), [("64Gi", 64 * GIB), ("512Mi", 512 * MIB), ("2G", 2 * 10**9)])
def test_a_pods_limit(limit: str, size: int) -> None:
    text = DESCRIBE.format(limit=limit)
    assert only(text, ContainerKilled).limit == size
    found = cause(text)
    assert found.limit == "cgroup"
    assert found.host is not None
    assert found.host.limit == size


def test_pods_as_json_and_docker() -> None:
    assert only('  "reason": "OOMKilled",\n', ContainerKilled).limit is None
    assert only('            "OOMKilled": true,\n', ContainerKilled).limit is None
    assert not all_of('            "OOMKilled": false,\n', ContainerKilled)


@pytest.mark.parametrize(
    ("line", "daemon", "rss"),
    [
        ("systemd-oomd[889]: Killed /user.slice/u.scope due to memory pressure for /user.slice being 62.09% > 50.00%",
         "systemd-oomd", None),
        ('box earlyoom[500]: sending SIGTERM to process 216352 uid 1000 "python3": oom_score 900, VmRSS 2800 MiB',
         "earlyoom", 2800 * MIB),
        ("Memory on the node (IP: 10.0.0.1, ID: e5) where the task (task ID: 43, name=f, pid=1, memory used=1.50GB) "
         "was running was 27.71GB / 28.80GB (0.962273), which exceeds the memory usage threshold of 0.95.",
         "Ray's memory monitor", round(1.5 * GIB)),
    ],
)  # fmt: skip
def test_daemons_that_kill_before_the_kernel(line: str, daemon: str, rss: int | None) -> None:
    found = only(line + "\n", DaemonKill)
    assert (found.daemon, found.rss) == (daemon, rss)
    assert cause(line + "\n").limit == "node"


OPTUNA = (
    "[W 2025-01-24 03:12:44,812] Trial 7 failed with parameters: {'lr': 1e-05, 'bs': 48, 'm': None} because of the "
    "following error: OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of "
    "23.56 GiB of which 9.00 MiB is free.').\n"
)


def test_an_optuna_trial_and_its_failure() -> None:
    found = only(OPTUNA, Trial)
    assert found.parameters == {"lr": 1e-05, "bs": 48, "m": None}
    trial = cause(OPTUNA).trial
    assert trial is not None
    assert trial.name == "7"


def test_the_last_run_that_an_agent_started() -> None:
    runs = "".join(
        f"wandb: Agent Starting Run: run{n} with config:\nwandb: \tbatch: {n}\nwandb: \tmodel: yolo.pt\nwandb: done\n"
        for n in (1, 2)
    )
    trial = cause(runs + OPTUNA.replace("failed with parameters", "x") + runs.replace("run", "late")).trial
    assert trial is not None
    assert (trial.name, dict(trial.parameters)) == ("run2", {"batch": 2, "model": "yolo.pt"})


def test_a_multirun_job() -> None:
    found = only("[2024-01-01 10:00:00,000][HYDRA] \t#3 : +data.batch=8 model=large\n", Trial)
    assert (found.name, dict(found.parameters)) == ("3", {"data.batch": 8, "model": "large"})


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        ("/p/train.py main|/s/site-packages/torch/_tensor.py backward", "backward"),
        ("/p/train.py main|/s/site-packages/torch/optim/adamw.py step", "optimizer"),
        ("/p/train.py main|/s/site-packages/torch/nn/modules/module.py _call_impl|/p/model.py forward", "forward"),
        ("/p/train.py main|/p/train.py evaluate|/p/model.py forward", "validation"),
        ("/p/tune.py run_training_eval|/p/model.py forward", "forward"),
        (
            "/p/train.py main|/s/site-packages/transformers/generation/utils.py generate|/p/model.py forward",
            "generation",
        ),
        ("/p/train.py main|/s/site-packages/transformers/modeling_utils.py from_pretrained", "load"),
        ("/p/train.py main|/s/site-packages/torch/nn/modules/module.py to", "load"),
        ("/p/train.py train|/s/site-packages/torch/serialization.py save", "save"),
        ("/p/train.py main|/p/train.py helper", ""),
        ("/s/site-packages/torch/optim/adamw.py step|/s/lightning/x.py closure|/p/m.py forward", "forward"),
        ("/p/train.py cross_validate|/p/train.py fit|/s/site-packages/torch/_tensor.py backward", "backward"),
        ("/p/t.py main|/s/site-packages/torch/_tensor.py backward|/s/site-packages/torch/utils/checkpoint.py forward",
         "backward"),
        ("/p/train.py train|/p/train.py validate|/s/site-packages/x/utils.py generate", "validation"),
        ("/p/train.py main|/s/site-packages/transformers/tokenization_utils_base.py to", ""),
    ],
)  # fmt: skip
def test_the_phase_is_in_the_frames(frames: str, phase: str) -> None:
    lines = [(path, name) for path, name in (frame.split() for frame in frames.split("|"))]
    trace = "".join(f'  File "{path}", line {n}, in {name}\n    code()\n' for n, (path, name) in enumerate(lines, 1))
    text = f"Traceback (most recent call last):\n{trace}RuntimeError: CUDA error: out of memory\n"
    found = cause(text).when
    assert found.phase == phase
    assert found.frame is not None
    assert found.frame.path.startswith("/p/")


def test_progress_tells_when_no_traceback_does() -> None:
    text = "Epoch 0: 100%|####| 242/242 [22:54<00:00]\nValidation DataLoader 0:   0%|  | 0/52 [00:00<?]\n" + KILLED
    found = cause(text).when
    assert found.phase == "validation"
    assert found.last is not None
    assert found.last.line == 2


def test_nothing_wrong_is_nothing_found() -> None:
    assert not concluded("epoch 1 loss 0.5\nepoch 2 loss 0.4\ntraining finished\n").causes


def test_a_signal_in_the_accounting() -> None:
    text = "JobID|State|ExitCode|ReqMem\n77|FAILED|{}|4G\n"
    assert cause(text.format("0:9")).limit == "killed"
    assert cause(text.format("137:0")).limit == "killed"
    assert not concluded(text.format("1:0")).causes


def test_an_error_of_the_program_is_shown_where_nothing_else_is() -> None:
    from preflight.postmortem.run import Postmortem
    from preflight.postmortem.text import render
    from preflight.reports.style import Look

    trace = 'Traceback (most recent call last):\n  File "/p/train.py", line 3, in main\n    x = int("a")\n'
    text = trace + "ValueError: invalid literal for int()\nJobID|State|ExitCode|ReqMem\n77|FAILED|1:0|4G\n"
    found = read(text)
    shown = render(Postmortem(found, concluded(text)), Look())
    assert "job.log:4: ValueError: invalid literal" in shown
    assert "job 77 as FAILED, exit status 1" in shown
