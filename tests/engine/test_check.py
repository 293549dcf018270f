"""The engine: what is read again for a proof, which machine counts, how rules are found and set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from command_line import GIB, PROGRAM, SWEEP, TooLarge, fake_engine

from preflight.engine import registry
from preflight.engine.check import Analysis, CheckOptions, CheckSetup, again, analyse, check, setup
from preflight.engine.files import batches, walk
from preflight.engine.registry import RuleError, enabled
from preflight.engine.settings import parse
from preflight.engine.target import Wanted, choose, placed
from preflight.machines.clusters import parse_machine
from preflight.machines.gpus import find_gpu
from preflight.vocabulary.errors import SettingsError, UsageError
from preflight.vocabulary.findings import Finding
from preflight.vocabulary.project import Project
from preflight.vocabulary.rule import Case, Rule
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Study

Write = Callable[[dict[str, str]], Path]


def opened(root: Path, *paths: str, **options: object) -> tuple[Project, CheckSetup]:
    [batch] = batches(paths or (".",), root, from_hook=False)
    return setup(batch, CheckOptions(**options), root)  # type: ignore[arg-type]


# --- reading again --------------------------------------------------------------------------------------------------


def three(project: Write, monkeypatch: pytest.MonkeyPatch) -> tuple[Project, CheckSetup, Analysis]:
    fake_engine(monkeypatch)
    files = {"sweep.yaml": SWEEP, "train.py": PROGRAM}
    root = project({f"{name}/{path}": text for name in "abc" for path, text in files.items()})
    opened_project, asked = opened(root, gpu="RTX 4090")
    return opened_project, asked, analyse(opened_project, asked)


def test_only_the_study_of_an_edited_file_is_made_anew(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_project, asked, found = three(project, monkeypatch)
    changed = opened_project.with_overlay({"b/sweep.yaml": SWEEP.replace("64", "8")})
    after = again(found, changed, asked)
    assert [old is new for old, new in zip(found.studies, after.studies, strict=True)] == [True, False, True]
    assert [finding.study for finding in after.findings] == [0, 2]


def test_reading_again_gives_what_reading_all_gives(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_project, asked, found = three(project, monkeypatch)
    for text in (SWEEP.replace("64", "8"), SWEEP.replace("train.py", "none.py"), "x: 1\n", "parameters: ["):
        changed = opened_project.with_overlay({"b/sweep.yaml": text})
        some, everything = again(found, changed, asked), analyse(changed, asked)
        assert [result.study for result in some.studies] == [result.study for result in everything.studies]
        assert sorted(map(repr, some.findings)) == sorted(map(repr, everything.findings))


def test_program_of_two_sweeps_concerns_both(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine(monkeypatch)
    root = project({"one.yaml": SWEEP, "two.yaml": SWEEP, "train.py": PROGRAM})
    opened_project, asked = opened(root, gpu="RTX 4090")
    found = analyse(opened_project, asked)
    after = again(found, opened_project.with_overlay({"train.py": PROGRAM.replace("gpt2", "gpt2-xl")}), asked)
    assert [result.space.worst.job.model.name for result in after.studies] == ["gpt2-xl", "gpt2-xl"]


def test_equal_findings_of_one_place_are_reported_once(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    class SaysSo(Rule):
        """It speaks of the program."""

        name = "says-so"
        summary = "x"

        def check(self, case: Case) -> Iterator[Finding]:
            from preflight.vocabulary.findings import Confidence, Severity
            from preflight.vocabulary.values import Origin, Span

            yield Finding("says-so", Severity.info, Confidence.high, "m", Origin("train.py", Span(0, 6)))

    fake_engine(monkeypatch, SaysSo)
    root = project({"one.yaml": SWEEP, "two.yaml": SWEEP, "train.py": PROGRAM})
    report = check(*opened(root))
    assert len(report.studies) == 2
    assert [finding.rule for finding in report.findings] == ["says-so"]


# --- where it runs --------------------------------------------------------------------------------------------------

JOB = "#!/bin/bash\n#SBATCH --partition=gpu\n#SBATCH --gres=gpu:1\n#SBATCH --mem=64G\npython train.py --batch_size 8\n"
CLUSTER = parse_machine(
    'name = "c"\n[node.big]\nmemory = "500GB"\ncpus = 64\ngpus = 4\ngpu = "A100 80GB"\n'
    '[node.small]\nmemory = "100GB"\ncpus = 8\ngpus = 1\ngpu = "T4"\n'
    '[partition.gpu]\nnodes = ["big"]\n[partition.other]\nnodes = ["small"]\ndefault = true\n',
    "c.toml",
    "c",
)


@pytest.fixture
def study(project: Write) -> Callable[[str], Study]:
    from preflight.study.build import build

    def made(text: str) -> Study:
        name = "job.sbatch" if text.startswith("#!") else "sweep.yaml"
        root = project({name: text, "train.py": PROGRAM})
        [found], _ = build([name], Project(root, Settings()))
        return found

    return made


TYPED = JOB.replace("gpu:1", "gpu:v100:1")


@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [
        (SWEEP, Wanted(), None),
        (SWEEP, Wanted(default_gpu=find_gpu("T4")), "T4"),
        (SWEEP, Wanted(gpu=find_gpu("L4"), default_gpu=find_gpu("T4")), "L4"),
        (JOB, Wanted(default_machine=CLUSTER), "A100 80GB"),
        (JOB, Wanted(default_machine=CLUSTER, gpu=find_gpu("L4")), "L4"),
        (JOB, Wanted(machine=CLUSTER, gpu=find_gpu("L4")), "A100 80GB"),
        (JOB, Wanted(default_machine=CLUSTER, default_gpu=find_gpu("L4")), "A100 80GB"),
        (JOB, Wanted(default_gpu=find_gpu("L4")), "L4"),
        (SWEEP, Wanted(machine=CLUSTER), "T4"),
    ],
)
def test_machine_beats_gpu_beats_script_beats_settings(
    study: Callable[[str], Study], text: str, said: Wanted, expected: str | None
) -> None:
    gpu = choose(study(text), said).gpu
    assert (gpu.name if gpu is not None else None) == (None if expected is None else find_gpu(expected).name)


def test_type_that_a_script_names_beats_the_settings(study: Callable[[str], Study]) -> None:
    gpu = choose(study(TYPED), Wanted(default_gpu=find_gpu("T4"))).gpu
    assert gpu is not None
    assert gpu.name.startswith("V100")


def test_node_fills_what_the_files_leave_open(study: Callable[[str], Study]) -> None:
    found = study(JOB)
    fields = placed(found, choose(found, Wanted(default_machine=CLUSTER))).boxes[0].fields
    values = {name: fields[f"machine.{name}"].expr.value for name in ("node_memory", "memory_limit", "gpu")}
    assert values == {
        "node_memory": CLUSTER.nodes[0].memory,
        "memory_limit": 64 * GIB,
        "gpu": find_gpu("A100 80GB").name,
    }
    assert fields["machine.memory_limit"].origin is not None  # the script's own line, not the cluster's


# --- rules ----------------------------------------------------------------------------------------------------------


def test_every_installed_rule_has_a_name_a_line_and_a_page() -> None:
    from preflight.reports.rule_page import page

    for name, rule in registry.rules().items():
        assert name == rule.name == name.lower()
        assert rule.summary
        assert "\n" not in rule.summary
        assert len(page(rule)) > 200, name


def test_same_name_twice_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (
        "from preflight.vocabulary.rule import Rule\n"
        "class R(Rule):\n    name = 'twice'\n    summary = 's'\nRULES = (R,)\n"
    )
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(text)
    registry.rules.cache_clear()
    with pytest.raises(RuleError, match="two rules are called twice"):
        registry.rules((str(tmp_path / "one.py"), str(tmp_path / "two.py")))


def test_rules_of_a_file_come_only_with_trust(tmp_path: Path) -> None:
    path = tmp_path / "house.py"
    path.write_text(
        "from preflight.vocabulary.rule import Rule\n"
        "class R(Rule):\n    name = 'house'\n    summary = 's'\nRULES = (R,)\n"
    )
    assert "house" in registry.rules((str(path),))
    assert "house" not in registry.rules()


def test_module_without_rules_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("RULES = [1]\n")
    with pytest.raises(RuleError, match="no tuple RULES"):
        registry.rules((str(tmp_path / "empty.py"),))


class Preview(TooLarge):
    """In preview."""

    name = "preview-rule"
    preview = True


@pytest.mark.parametrize(
    ("settings", "select", "ignore", "expected"),
    [
        ("", (), (), {"too-large", "own"}),
        ("", ("preview-rule",), (), {"preview-rule"}),
        ("", (), ("too-large",), {"own"}),
        ('select = ["preview-rule"]', (), (), {"preview-rule"}),
        ('ignore = ["too-large"]', ("too-large",), (), {"too-large"}),
        ('select = ["preview-rule"]', ("too-large",), (), {"too-large"}),
    ],
)
def test_selection(settings: str, select: tuple[str, ...], ignore: tuple[str, ...], expected: set[str]) -> None:
    known = {"too-large": TooLarge, "preview-rule": Preview}
    found = enabled(parse(settings), select, ignore, known)
    assert {name if name in known else "own" for name in found} == expected


@pytest.mark.parametrize(
    "text", ['ignore = ["nope"]', '[rules.nope]\nfix = "safe"', '[per-file-ignores]\n"*" = ["nope"]']
)
def test_settings_that_name_no_rule_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="there is no rule nope"):
        enabled(parse(text), (), (), {"too-large": TooLarge})


def test_options_of_a_rule_are_checked() -> None:
    with pytest.raises(SettingsError, match=r"rules\.too-large\.limit"):
        registry.options_of(TooLarge, parse("[rules.too-large]\nlimit = 3\n"))


# --- files ----------------------------------------------------------------------------------------------------------


def test_walk_leaves_out_what_is_not_the_project(project: Write) -> None:
    kept = ["a.yaml", "conf/b.yml", "job.sbatch", "src/train.py", "wandb/sweep.yaml"]
    dropped = [".git/c.yaml", ".cache/x.yaml", "node_modules/d.yaml", "my-env/e.py", ".venv/f.py", "g.md",
               "__pycache__/h.py", "wandb/run-20250101_101010-abc123/files/config.yaml", "outputs/a.yaml"]  # fmt: skip
    root = project({**dict.fromkeys([*kept, *dropped], ""), "my-env/pyvenv.cfg": ""})
    assert [path.relative_to(root).as_posix() for path in walk(root, [])] == sorted(kept)


def test_link_to_a_directory_is_not_followed(project: Write) -> None:
    root = project({"a/x.yaml": ""})
    (root / "a" / "loop").symlink_to(root / "a")
    assert [path.name for path in walk(root, [])] == ["x.yaml"]


@pytest.mark.parametrize(
    ("markers", "path", "root"),
    [
        ([], "a/b/x.yaml", "."),
        (["a/.git/HEAD"], "a/b/x.yaml", "a"),
        (["a/b/preflight.toml", "a/.git/HEAD"], "a/b/x.yaml", "a/b"),
        (["a/pyproject.toml"], "a/b/x.yaml", "a"),
    ],
)
def test_root(project: Write, markers: list[str], path: str, root: str) -> None:
    home = project({**dict.fromkeys(markers, ""), path: ""})
    [batch] = batches([path], home, from_hook=False)
    assert batch.root == (home / root).resolve()
    assert (batch.root / batch.named[0]).name == "x.yaml"


def test_project_reached_through_a_link_keeps_its_names(project: Write) -> None:
    home = project({"real/.git/HEAD": "", "real/conf/x.yaml": ""})
    (home / "link").symlink_to(home / "real")
    [batch] = batches(["x.yaml"], home / "link" / "conf", from_hook=False)
    assert (batch.root, batch.named) == ((home / "real").resolve(), ("conf/x.yaml",))
    [batch] = batches(["link"], home, from_hook=False)
    assert (batch.root, batch.walked) == ((home / "real").resolve(), ("conf/x.yaml",))


def test_missing_path_is_refused(project: Write) -> None:
    home = project({})
    with pytest.raises(UsageError, match="there is no such file"):
        batches(["x.yaml"], home, from_hook=True)


# --- trust ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trusted", "used"), [((), False), (("venv/bin/python",), True), (("elsewhere",), False)])
def test_interpreter_of_the_project_needs_trust(project: Write, trusted: tuple[str, ...], used: bool) -> None:
    root = project({"sweep.yaml": SWEEP, "venv/bin/python": "", "preflight.toml": 'interpreter = "venv/bin/python"\n'})
    _, asked = opened(root, "sweep.yaml", trust=trusted)
    assert (asked.tracing.allowed, asked.tracing.interpreter is not None) == (used, used)
    assert bool(asked.said.notes) is not used


def test_tracing_can_be_switched_off(project: Write) -> None:
    _, asked = opened(project({"sweep.yaml": SWEEP, "preflight.toml": "trace = false\n"}), "sweep.yaml")
    assert asked.tracing.allowed is False


def test_both_sides_are_told_what_may_be_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    from preflight.engine.estimator import Estimator
    from preflight.memory import device
    from preflight.memory.host import estimate as host
    from preflight.vocabulary.job import Job
    from preflight.vocabulary.tracing import Tracing
    from preflight.vocabulary.values import Unknown

    told: list[object] = []
    monkeypatch.setattr(device, "estimate", lambda job, gpu, tracing, **_: told.append(tracing) or Unknown(""))
    monkeypatch.setattr(device, "bound", lambda job, gpu, tracing: told.append(tracing))
    monkeypatch.setattr(host, "weights_of", lambda job, parameters, tracing: told.append(tracing))
    for tracing in (Tracing(False), Tracing(True, "/usr/bin/python3")):
        Estimator(None, tracing).full(Job())
        Estimator(None, tracing).device_bound(Job())
        Estimator(None, tracing).host_bound(Job())
        assert set(told) == {tracing}
        assert len(told) == 4
        told.clear()


def test_a_rule_that_fails_on_all_studies_together_is_reported_and_the_others_go_on(
    project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails(Rule):
        """It fails."""

        name = "fails"
        summary = "x"

        def check_run(self, cases: Sequence[Case]) -> Iterator[Finding]:
            raise ZeroDivisionError("a bug of ours")

    fake_engine(monkeypatch, Fails, TooLarge)
    root = project({"one.yaml": SWEEP, "train.py": PROGRAM})
    report = check(*opened(root, gpu="RTX 4090"))
    assert sorted(finding.rule for finding in report.findings) == ["internal-error", "too-large"]


def test_what_is_said_of_all_studies_sees_all_of_them_once(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts(Rule):
        """It counts."""

        name = "counts"
        summary = "x"

        def check_run(self, cases: Sequence[Case]) -> Iterator[Finding]:
            from preflight.vocabulary.findings import Confidence, Severity

            message = f"{len(cases)} studies"
            yield Finding("counts", Severity.info, Confidence.high, message, cases[1].origin("model.name"), study=1)

    fake_engine(monkeypatch, Counts, TooLarge)  # the proofs of its fix read some studies again
    root = project({"one.yaml": SWEEP, "two.yaml": SWEEP, "train.py": PROGRAM})
    report = check(*opened(root, gpu="RTX 4090"))
    [found] = [finding for finding in report.findings if finding.rule == "counts"]
    assert (found.message, found.study) == ("2 studies", 1)
