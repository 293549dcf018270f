"""`preflight sbatch` in front of a stand-in that writes down how it was called."""

from __future__ import annotations

import json
import os
import string
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import HANGS

STAND_IN = """\
#!/bin/sh
here=${0%/*}
cat /proc/$$/cmdline > "$here/words"
cat /proc/$$/environ > "$here/environment"
cat > "$here/input"
echo "Submitted batch job 7"
exit 5
"""
TRAIN = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
(args,) = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("gpt2")
trainer = Trainer(model=model, args=args, train_dataset=data)
trainer.train()
"""
HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:rtx_4090:1 --mem=8G\n"
LARGE = HEAD + "python train.py --output_dir out --per_device_train_batch_size 64 --gradient_accumulation_steps 1\n"
SMALL = LARGE.replace("64", "1")

COMMAND = (sys.executable, "-c", "import sys; from preflight.slurm.sbatch.gate import guarded; guarded(sys.argv[1:])")

MODULE = (sys.executable, "-m", "preflight", "sbatch")
PATIENT = "--preflight-timeout=200"
"""What is tested is not how fast a machine is that has other work."""


@dataclass(frozen=True)
class Ran:
    """What a submission did; `words`, `environment` and `input` as the stand-in saw them, None: it was not called."""

    code: int
    out: bytes
    err: str
    words: list[bytes] | None
    environment: bytes
    input: bytes


@dataclass(frozen=True)
class Room:
    """A project, and a directory with the stand-in."""

    folder: Path
    bin: Path

    def run(
        self,
        *words: str | bytes,
        text: bytes | None = None,
        command: Sequence[str] = COMMAND,
        variables: Mapping[bytes, bytes] | None = None,
        **more: str,
    ) -> Ran:
        seen = [self.bin / name for name in ("words", "environment", "input")]
        for path in seen:
            path.unlink(missing_ok=True)
        path_of = {b"PATH": os.fsencode(f"{self.bin}:/usr/bin:/bin")}
        given = {**(variables or {}), **{os.fsencode(k): os.fsencode(v) for k, v in more.items()}}
        done = subprocess.run(
            [*command, *([PATIENT] if command is COMMAND else []), *words],
            cwd=self.folder,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            env={**path_of, **given},
            timeout=HANGS,
            check=False,
        )
        if not seen[0].exists():
            return Ran(done.returncode, done.stdout, done.stderr.decode(), None, b"", b"")
        read = [path.read_bytes() for path in seen]
        return Ran(done.returncode, done.stdout, done.stderr.decode(), read[0].split(b"\0")[2:-1], read[1], read[2])


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    folder, bin = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("bin")
    texts = {"train.py": TRAIN, "preflight.toml": "[set]\ntrain.seq_len = 1024\n", "large.sh": LARGE, "small.sh": SMALL}
    for name, text in texts.items():
        (folder / name).write_text(text)
    (bin / "sbatch").write_text(STAND_IN)
    (bin / "sbatch").chmod(0o755)
    return Room(folder, bin)


WORD = st.binary(max_size=8).filter(lambda word: b"\0" not in word)
OPTION = st.sampled_from(
    [b"--parsable", b"-H", b"--mem=1G", b"-n2", b"--array=0-3", b":", b"--wrap=hostname", b"--odd"]
)
NAME = st.text(string.ascii_letters, min_size=1, max_size=6).map(lambda name: f"V{name}".encode())


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    options=st.lists(OPTION, max_size=4),
    rest=st.lists(WORD, max_size=4),
    own=st.booleans(),
    text=st.binary(max_size=200),
    variables=st.dictionaries(NAME, WORD, max_size=3),
    mode=st.sampled_from(["off", "on", "strict"]),
)
def test_sbatch_gets_what_it_would_have_got(
    room: Room,
    options: list[bytes],
    rest: list[bytes],
    own: bool,
    text: bytes,
    variables: dict[bytes, bytes],
    mode: str,
) -> None:
    ours = [b"--preflight-verbose"] if own else []
    script = [b"nothing.sh"] if rest else []
    words = [*options, *script, *rest]
    ran = room.run(*ours, *words, text=text, variables=variables, PREFLIGHT_SBATCH=mode)
    plain = room.run(*words, text=text, variables=variables, command=[str(room.bin / "sbatch")], PREFLIGHT_SBATCH=mode)
    assert ran.words == words
    assert ran.input == text
    assert sorted(ran.environment.split(b"\0")) == sorted(plain.environment.split(b"\0"))
    assert (ran.code, ran.out) == (5, b"Submitted batch job 7\n")


def test_a_job_that_fits_goes_through_in_silence(room: Room) -> None:
    ran = room.run("-J", "mine", "small.sh", "a", "--preflight-fix")
    assert (ran.code, ran.out, ran.err) == (5, b"Submitted batch job 7\n", "")
    assert ran.words == [b"-J", b"mine", b"small.sh", b"a", b"--preflight-fix"]


def test_a_job_that_will_be_killed_does_not(room: Room, tmp_path: Path) -> None:
    log = tmp_path / "log"
    ran = room.run(f"--preflight-log={log}", "large.sh", command=[*MODULE, PATIENT])
    assert (ran.code, ran.out, ran.words) == (1, b"", None)
    assert "error[logits-exceed-gpu]" in ran.err
    assert "--preflight-fix submits it with the fixes" in ran.err
    entry = json.loads(log.read_text())
    assert (entry["outcome"], entry["uid"]) == ("stopped", os.getuid())
    assert "logits-exceed-gpu" in entry["rules"]


@pytest.mark.slow
def test_only_reports_and_submits_nothing(room: Room) -> None:
    ran = room.run("--preflight-only", "large.sh")
    assert (ran.code, ran.err, ran.words) == (1, "", None)
    assert b"the job would be stopped" in ran.out
    assert room.run("--preflight-only", "small.sh", PATH="/nowhere").code == 0


def test_warn_shows_and_submits(room: Room) -> None:
    ran = room.run("large.sh", PREFLIGHT_SBATCH="warn")
    assert (ran.code, ran.words) == (5, [b"large.sh"])
    assert "the job is submitted nevertheless" in ran.err
    assert room.run("--preflight-default=off", "large.sh").err == ""
    assert room.run("--preflight-default=off", "large.sh", PREFLIGHT_SBATCH="on").code == 1


def test_fixed_text_is_submitted_through_standard_input(room: Room) -> None:
    ran = room.run("--preflight-fix", "-N1", text=LARGE.encode())
    assert (ran.code, ran.words) == (5, [b"-N1"])
    assert b"--per_device_train_batch_size 8 --gradient_accumulation_steps 8" in ran.input


@pytest.mark.slow
def test_a_script_from_a_command(room: Room) -> None:
    """bash gives its output a name of its own."""
    code = COMMAND[2].replace("'", '"')
    for text, words in ((SMALL, b"batch_size 1 "), (LARGE, None)):
        (room.folder / "text").write_text(text)
        (room.bin / "shown").unlink(missing_ok=True)
        (room.bin / "sbatch").write_text(STAND_IN.replace("echo", 'cat "$1" > "$here/shown"; echo'))
        line = f"{sys.executable} -c '{code}' <(cat text)"
        ran = room.run(command=["bash", "-c", line])
        (room.bin / "sbatch").write_text(STAND_IN)
        assert (ran.code, ran.words is None) == ((5, False) if words else (1, True))
        assert words is None or words in (room.bin / "shown").read_bytes()


@pytest.mark.slow
def test_the_gpu_of_the_settings_stops_nothing(room: Room, tmp_path: Path) -> None:
    """The desk's GPU is not the cluster's."""
    other = Room(tmp_path, room.bin)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "preflight.toml").write_text('gpu = "RTX 4080"\n[set]\ntrain.seq_len = 1024\n')
    (tmp_path / "job.sh").write_text(LARGE.replace("gpu:rtx_4090:1", "gpu:1"))
    ran = other.run("job.sh")
    assert (ran.code, ran.words) == (5, [b"job.sh"])
    assert "error[logits-exceed-gpu]" in ran.err
    assert other.run("--preflight-mode=strict", "job.sh").code == 1


@pytest.mark.parametrize(
    ("words", "files", "says"),
    [
        (["--preflight-timeout=0.01", "large.sh"], {}, "the check took more than 0.01 s"),
        (["large.sh"], {"preflight.toml": "gpu = 3\n"}, "preflight.toml.gpu"),
        (["--preflight-machine=none", "large.sh"], {}, "no machine 'none'"),
        (["latin.sh"], {"latin.sh": "#!/bin/sh\n# \xe9\npython train.py\n"}, "the script is not UTF-8 text"),
        (["--unheard", "of", "large.sh"], {}, "sbatch does not list the option unheard"),
    ],
)
def test_what_is_wrong_with_us_stops_nothing(
    words: list[str], files: dict[str, str], says: str, room: Room, tmp_path: Path
) -> None:
    for name, text in {"train.py": TRAIN, "large.sh": LARGE, **files}.items():
        (tmp_path / name).write_text(text, encoding="latin-1")
    ran = Room(tmp_path, room.bin).run(*words)
    assert ran.code == 5
    assert ran.words == [word.encode() for word in words if not word.startswith("--preflight-")]
    assert ran.err.startswith("preflight: this job was not checked: ")
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_jobs_that_cannot_train_are_not_made_to_wait(room: Room, tmp_path: Path) -> None:
    """Broken settings show whether they were read."""
    (tmp_path / "preflight.toml").write_text("gpu = 3\n")
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --mem=1G\nmodule load mpi\nsrun ./simulate input\n")
    other = Room(tmp_path, room.bin)
    assert other.run("job.sh").err == ""
    assert "not checked" in other.run("--gres=gpu:1", "job.sh").err
    assert "not checked" in other.run("job.sh", SBATCH_GPUS="1").err
    assert "not checked" in other.run("--preflight-verbose", "job.sh").err


@pytest.mark.slow
def test_the_wrapper_finds_the_real_one_and_never_itself(room: Room, tmp_path: Path) -> None:
    front = tmp_path / "front"
    front.mkdir()
    printed = room.run("--preflight-print=wrapper").out.decode().replace("\noptions=\n", f"\noptions={PATIENT}\n")
    (front / "sbatch").write_text(printed)
    (front / "sbatch").chmod(0o755)
    wrapper = str(front / "sbatch")
    path = f"{front}:{room.bin}:/usr/bin:/bin"
    assert room.run("large.sh", command=[wrapper], PATH=path).code == 1
    assert room.run("small.sh", command=[wrapper], PATH=path).words == [b"small.sh"]
    assert room.run("small.sh", PATH=path).words == [b"small.sh"]
    broken = printed.replace("preflight.slurm.sbatch.gate", "preflight.nothing")
    (front / "sbatch").write_text(broken)
    ran = room.run("--preflight-fix", "large.sh", command=[wrapper], PATH=path)
    assert (ran.code, ran.words) == (5, [b"large.sh"])
    assert "this job was not checked: it cannot be loaded" in ran.err
    (front / "sbatch").write_text(printed.replace(sys.executable, "/nowhere/python"))
    gone = room.run("--preflight-fix", "large.sh", "a b", command=[wrapper], PATH=path)
    assert (gone.words, gone.err.count("not checked")) == ([b"large.sh", b"a b"], 1)


@pytest.mark.slow
def test_a_wrapper_that_cannot_be_told_from_the_real_one_ends_too(room: Room, tmp_path: Path) -> None:
    front = tmp_path / "front"
    front.mkdir()
    (front / "hidden").write_text(f'#!/bin/sh\nexec {sys.executable} -m preflight sbatch "$@"\n')
    (front / "sbatch").write_text(f'#!/bin/sh\nexec {front}/hidden "$@"\n')
    for name in ("hidden", "sbatch"):
        (front / name).chmod(0o755)
    ran = room.run("small.sh", command=[str(front / "sbatch")], PATH=f"{front}:{room.bin}:/usr/bin:/bin")
    assert (ran.code, ran.words, ran.err) == (5, [b"small.sh"], "")
    alone = room.run("small.sh", command=[str(front / "sbatch")], PATH=str(front))
    assert (alone.code, alone.words) == (2, None)
    assert "no sbatch in PATH" in alone.err
    named = room.run("small.sh", command=[str(front / "sbatch")], PREFLIGHT_REAL_SBATCH=str(front / "sbatch"))
    assert named.words == [b"small.sh"]


def test_nothing_of_the_engine_is_imported_before_the_hand_over() -> None:
    code = "import sys; import preflight.slurm.sbatch.gate; print(sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name in ("pydantic", "yaml", "click", "preflight.engine.check", "tree_sitter"):
        assert f"'{name}'" not in found
