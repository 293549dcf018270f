"""`preflight sbatch` in front of a real sbatch, with real jobs that run."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from slurm_live.cluster import Cluster, Ran

pytestmark = pytest.mark.integration

PREFLIGHT = (sys.executable, "-m", "preflight", "sbatch")

PATIENT = "--preflight-timeout=200"
"""What is tested is not how fast a machine is that has other work."""

TRAIN = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
(args,) = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("gpt2")
trainer = Trainer(model=model, args=args, train_dataset=data)
trainer.train()
"""
SETTINGS = "[set]\ntrain.seq_len = 1024\n"
PYTHON = '#!/bin/sh\necho "python $*"\n'
"""What jobs run as `python` here: the training program is read, and not run."""

HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:rtx_4090:1 --output=%x.txt\n"
LAUNCH = "python train.py --output_dir out --per_device_train_batch_size {} --gradient_accumulation_steps 1\n"
SMALL = HEAD + "#SBATCH --mem=8G\n" + LAUNCH.format(1) + 'echo "$SLURM_JOB_NAME $PWD $*"\necho done\n'
LARGE = HEAD + "#SBATCH --mem=8G\n" + LAUNCH.format(64) + 'echo "$SLURM_JOB_NAME $PWD $*"\necho done\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project that trains, and a `python` that does not."""
    for name, text in {
        "train.py": TRAIN, "preflight.toml": SETTINGS, "bin/python": PYTHON, "small.sh": SMALL, "large.sh": LARGE,
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "bin" / "python").chmod(0o755)
    return tmp_path


def submit(cluster: Cluster, folder: Path, *words: str, text: str | None = None, **variables: str) -> Ran:
    path = f"{folder}/bin:{cluster.controller.environment['PATH']}"
    given = None if text is None else text.encode()
    return cluster.run([*PREFLIGHT, PATIENT, *words], folder, given, **{"PATH": path, **variables})


def test_a_job_that_fits_runs_as_if_nothing_had_been_there(cluster: Cluster, folder: Path) -> None:
    ran = submit(cluster, folder, "small.sh", "one", "two words")
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(rb"Submitted batch job \d+\n", ran.out)
    assert cluster.wait(folder / "small.sh.txt") == (
        "python train.py --output_dir out --per_device_train_batch_size 1 --gradient_accumulation_steps 1\n"
        f"small.sh {folder} one two words\ndone\n"
    )


def test_sbatchs_output_and_exit_status_are_passed_on(cluster: Cluster, folder: Path) -> None:
    (folder / "fails.sh").write_text("#!/bin/sh\n#SBATCH --output=/dev/null\nexit 3\n")
    ran = submit(cluster, folder, "--parsable", "--wait", "fails.sh")
    assert (ran.code, ran.err) == (3, "")
    assert re.fullmatch(rb"\d+\n", ran.out)
    gone = submit(cluster, folder, "nothing.sh")
    assert (gone.code, gone.out, gone.err) == (1, b"", "sbatch: error: Unable to open file nothing.sh\n")


def test_a_job_that_will_be_killed_is_stopped(cluster: Cluster, folder: Path) -> None:
    before = cluster.jobs().keys()
    ran = submit(cluster, folder, "large.sh")
    assert (ran.code, ran.out) == (1, b"")
    assert re.search(r"error\[(gpu-memory-exceeded|logits-exceed-gpu)\]", ran.err)
    assert "the job is stopped" in ran.err
    assert cluster.jobs().keys() == before


def test_what_the_command_line_says_counts(cluster: Cluster, folder: Path) -> None:
    script = HEAD + 'python train.py --output_dir out --per_device_train_batch_size "$1"\necho done\n'
    (folder / "given.sh").write_text(script)
    stopped = submit(cluster, folder, "given.sh", "64")
    assert (stopped.code, stopped.out) == (1, b"")
    assert "sbatch command line:1:" in stopped.err
    assert submit(cluster, folder, "given.sh", "1").code == 0
    assert "batch_size 1\n" in cluster.wait(folder / "given.sh.txt")


def test_what_the_user_wants_is_submitted(cluster: Cluster, folder: Path) -> None:
    for words, variables in (
        (["--preflight-exit-zero"], {}),
        ([], {"PREFLIGHT_SBATCH": "warn"}),
        ([], {"PREFLIGHT_SBATCH": "off"}),
    ):
        ran = submit(cluster, folder, *words, "--output=all.txt", "large.sh", **variables)
        assert ran.code == 0
        assert ("exceed" in ran.err) == (variables.get("PREFLIGHT_SBATCH") != "off")
        assert "batch_size 64" in cluster.wait(folder / "all.txt")
        (folder / "all.txt").unlink()


def test_a_fixed_job_runs_under_its_name_and_the_file_stays(cluster: Cluster, folder: Path) -> None:
    before = (folder / "large.sh").read_bytes()
    ran = submit(cluster, folder, "--preflight-fix", "--comment=mine", "--parsable", "large.sh", "one")
    assert ran.code == 0, ran.err
    assert "+python train.py --output_dir out --per_device_train_batch_size 8" in ran.err
    out = cluster.wait(folder / "large.sh.txt")
    assert "--per_device_train_batch_size 8 --gradient_accumulation_steps 8\n" in out
    assert f"large.sh {folder} one\n" in out
    assert (folder / "large.sh").read_bytes() == before
    job = cluster.jobs()[ran.out.decode().strip()]
    assert (job["JobName"], job["WorkDir"], job["Comment"]) == ("large.sh", str(folder), "mine")
    left = [path for path in Path("/tmp").glob("preflight-*") if (path / "large.sh").exists()]
    assert not left


def test_a_directive_that_sbatch_refuses_is_left_to_it_and_can_be_fixed(cluster: Cluster, folder: Path) -> None:
    script = "#!/bin/sh\n#SBATCH --mem=1.5G\n#SBATCH --output=mem.txt\npython -V\necho $SLURM_MEM_PER_NODE\necho done\n"
    (folder / "mem.sh").write_text(script)
    refused = submit(cluster, folder, "mem.sh")
    plain = cluster.run(["sbatch", "mem.sh"], folder)
    assert (refused.code, refused.out) == (plain.code, b"")
    assert refused.err.endswith(plain.err)
    assert "sbatch: error: Invalid --mem specification" in refused.err
    assert "error[slurm-memory-invalid]" in refused.err
    assert submit(cluster, folder, "--preflight-fix", "mem.sh").code == 0
    assert cluster.wait(folder / "mem.txt") == "python -V\n1536\ndone\n"
    assert (folder / "mem.sh").read_text() == script


def test_a_script_on_standard_input(cluster: Cluster, folder: Path) -> None:
    ran = submit(cluster, folder, "--output=stdin.txt", text=SMALL)
    assert (ran.code, ran.err) == (0, "")
    assert "batch_size 1 " in cluster.wait(folder / "stdin.txt")
    stopped = submit(cluster, folder, text=LARGE)
    assert (stopped.code, stopped.out) == (1, b"")
    assert "<stdin>:4:" in stopped.err
    fixed = submit(cluster, folder, "--preflight-fix", "--output=fixed.txt", text=LARGE)
    assert fixed.code == 0
    assert "batch_size 8 " in cluster.wait(folder / "fixed.txt")


def test_a_wrapped_command(cluster: Cluster, folder: Path) -> None:
    options = ("--gres=gpu:rtx_4090:1", "--output=wrap.txt")
    assert submit(cluster, folder, *options, "--wrap", LAUNCH.format(64).strip()).code == 1
    assert submit(cluster, folder, *options, f"--wrap={LAUNCH.format(1).strip()}; echo done").code == 0
    assert "batch_size 1 " in cluster.wait(folder / "wrap.txt")


def test_arrays_and_heterogeneous_jobs(cluster: Cluster, folder: Path) -> None:
    assert submit(cluster, folder, "--array=1-2", "--output=a%a.txt", "small.sh").code == 0
    assert all("batch_size 1 " in cluster.wait(folder / f"a{index}.txt") for index in (1, 2))
    parts = ("--hold", "-n1", "--mem=4G", ":", "--hold", "-n2", "--mem=5G")
    ran = submit(cluster, folder, *parts, "small.sh")
    assert (ran.code, ran.err) == (0, "")
    leader = ran.out.decode().split()[-1]
    het = [job for job in cluster.jobs().values() if job.get("HetJobId") == leader]
    assert [(job["NumTasks"], job["MinMemoryNode"]) for job in het] == [("1", "4G"), ("2", "5G")]
    assert submit(cluster, folder, "-n1", ":", "-n1", ":", "nothing.sh").code == 1


def test_the_jobs_environment_is_the_one_sbatch_gives(cluster: Cluster, folder: Path) -> None:
    (folder / "env.sh").write_text("#!/bin/sh\n#SBATCH --output=%x.txt\nenv | sort\necho done\n")
    variables = {"LC_ALL": "", "LANG": "", "MINE": "a b", "PATH": f"{folder}/bin:/usr/bin:/bin"}
    del variables["LC_ALL"], variables["LANG"]  # a C locale, which Python changes for itself
    found = []
    for number, words in enumerate((["/usr/bin/env", "sbatch"], [*PREFLIGHT, PATIENT])):
        name = f"env{number}"
        ran = cluster.run([*words, f"--job-name={name}", "env.sh"], folder, **variables)
        assert ran.code == 0
        lines = cluster.wait(folder / f"{name}.txt").splitlines()
        found.append([line for line in lines if not re.match(r"(SLURM_\w+|TMPDIR|_)=", line)])
    assert found[0] == found[1]


def test_the_wrapper_as_sbatch_in_front_of_the_path(cluster: Cluster, folder: Path) -> None:
    printed = cluster.run([*PREFLIGHT, "--preflight-print=wrapper"], folder)
    wrapper = printed.out.replace(b"\noptions=\n", f"\noptions={PATIENT}\n".encode())
    assert wrapper != printed.out
    (folder / "bin" / "sbatch").write_bytes(wrapper)
    (folder / "bin" / "sbatch").chmod(0o755)
    environment = {"PATH": f"{folder}/bin:{cluster.controller.environment['PATH']}"}
    assert cluster.run(["sbatch", "large.sh"], folder, **environment).code == 1
    ran = cluster.run(["sbatch", "small.sh"], folder, **environment)
    assert (ran.code, ran.err) == (0, "")
    assert "batch_size 1 " in cluster.wait(folder / "small.sh.txt")
    again = cluster.run([*PREFLIGHT, PATIENT, "--output=again.txt", "small.sh"], folder, **environment)
    assert (again.code, again.err) == (0, "")
    assert "batch_size 1 " in cluster.wait(folder / "again.txt")


def test_the_cluster_as_its_administrators_describe_it(cluster: Cluster, folder: Path) -> None:
    machine = folder / "cluster.toml"
    imported = cluster.run([*PREFLIGHT[:-1], "machine", "import", "slurm", "-o", str(machine)], folder)
    assert imported.code == 0, imported.err
    (folder / "untyped.sh").write_text(LARGE.replace("gpu:rtx_4090:1", "gpu:1"))
    assert submit(cluster, folder, "--hold", "untyped.sh").code == 0  # nobody says which GPU it will be
    stopped = submit(cluster, folder, "untyped.sh", PREFLIGHT_MACHINE=str(machine))
    assert (stopped.code, stopped.out) == (1, b""), stopped.err
    assert "logits-exceed-gpu" in stopped.err
    assert "23.52 GiB" in stopped.err
    refused = submit(cluster, folder, "--mem=70G", "small.sh", PREFLIGHT_MACHINE=str(machine))
    plain = cluster.run(["sbatch", "--mem=70G", "small.sh"], folder)
    assert "error[slurm-request-impossible]" in refused.err
    assert refused.err.endswith(plain.err)
    assert (refused.code, refused.out) == (plain.code, b"")


def test_memory_that_the_cluster_does_not_confine_stops_nothing(cluster: Cluster, folder: Path) -> None:
    (folder / "tight.sh").write_text(SMALL.replace("--mem=8G", "--mem=500M"))
    ran = submit(cluster, folder, "tight.sh")
    assert ran.code == 0
    assert "error[slurm-memory-too-low]" in ran.err
    assert "batch_size 1 " in cluster.wait(folder / "tight.sh.txt")


def with_filter(cluster: Cluster, folder: Path) -> Mapping[str, str]:
    """The environment of a user whose sbatch has our cli_filter; that of the cluster stays without one."""
    conf = folder / "conf"
    conf.mkdir()
    text = cluster.controller.conf.read_text() + "CliFilterPlugins=lua\n"
    (conf / "slurm.conf").write_text(text)
    shutil.copy(cluster.controller.directory / "gres.conf", conf)
    printed = cluster.run([*PREFLIGHT, "--preflight-print=cli-filter"], folder)
    (conf / "cli_filter.lua").write_bytes(printed.out.replace(b'extra = ""', f'extra = " {PATIENT}"'.encode()))
    return {"SLURM_CONF": str(conf / "slurm.conf"), "PATH": f"{folder}/bin:{cluster.controller.environment['PATH']}"}


def test_the_cli_filter_in_a_plain_sbatch(cluster: Cluster, folder: Path) -> None:
    environment = with_filter(cluster, folder)
    stopped = cluster.run(["sbatch", "large.sh"], folder, **environment)
    assert (stopped.code, stopped.out) == (1, b"")
    assert re.search(r"error\[(gpu-memory-exceeded|logits-exceed-gpu)\]", stopped.err)
    assert "sbatch: error: cli_filter plugin terminated with error" in stopped.err
    ran = cluster.run(["sbatch", "small.sh", "it's", "two words"], folder, **environment)
    assert (ran.code, ran.err) == (0, "")
    assert "it's two words\n" in cluster.wait(folder / "small.sh.txt")
    off = cluster.run(["sbatch", "--output=off.txt", "large.sh"], folder, **environment, PREFLIGHT_SBATCH="off")
    assert (off.code, off.err) == (0, "")
    broken = folder / "conf" / "cli_filter.lua"
    broken.write_text(broken.read_text().replace("from preflight.slurm.sbatch", "from preflight.nothing"))
    assert cluster.run(["sbatch", "--output=broken.txt", "large.sh"], folder, **environment).code == 0
