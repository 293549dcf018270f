"""Files that a job script writes itself: the launch reads what was written, never an older file of the same name."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Unknown, evaluate

TRAIN = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model=model, args=args).train()
"""
HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:4\n"
LAUNCH = "deepspeed train.py --deepspeed {name} --output_dir out --per_device_train_batch_size 4\n"
STALE = '{"zero_optimization": {"stage": 3}}\n'
STAGE_2 = '{"zero_optimization": {"stage": 2}}\n'


def _strategy(tmp_path: Path, lines: str, name: str = "ds.json") -> tuple[object, str, str]:
    files = {"train.py": TRAIN, "ds.json": STALE, "conf/ds.json": STALE, "other.json": STAGE_2}
    files["job.sh"] = HEAD + lines + LAUNCH.format(name=name)
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    (study,), _ = build(["job.sh"], Project(tmp_path, Settings()))
    bound = study.boxes[0].fields["parallel.strategy"]
    assert bound.origin is not None
    text = files[bound.origin.path][bound.origin.span.start : bound.origin.span.end]
    return evaluate(bound.expr), bound.origin.path, text


@pytest.mark.parametrize(
    "lines",
    [
        "cat > ds.json <<EOF\n{\"zero_optimization\": {\"stage\": $STAGE}}\nEOF\n",
        "python make_config.py > ds.json\n",
        "sed -i 's/3/2/' ds.json\n",
        "cp other.json ds.json && sed -i 's/2/1/' ds.json\n",
        "if [ -n \"$FULL\" ]; then\ncp other.json ds.json\nfi\n",
        "envsubst < other.json > ds.json\n",
        "jq '.x = 1' other.json | tee ds.json\n",
        "curl -o ds.json https://example.org/ds.json\n",
        "echo '{}' >> ds.json\n",
        "cat > ds.json <<'EOF'\n" + STAGE_2 + "EOF\nsed -i 's/2/1/' ds.json\n",
    ],
)  # fmt: skip
def test_a_text_that_is_not_known_hides_the_older_file(tmp_path: Path, lines: str) -> None:
    value, _, _ = _strategy(tmp_path, lines)
    assert isinstance(value, Unknown)


def test_a_file_elsewhere_hides_those_that_its_name_may_mean(tmp_path: Path) -> None:
    lines = "cat > $SCRATCH/conf/ds.json <<'EOF'\n" + STAGE_2 + "EOF\n"
    assert isinstance(_strategy(tmp_path, lines, "$SCRATCH/conf/ds.json")[0], Unknown)
    lines = "python make_config.py > /work/conf/ds.json\n"
    assert isinstance(_strategy(tmp_path, lines, "/work/conf/ds.json")[0], Unknown)


@pytest.mark.parametrize(
    ("lines", "name", "place"),
    [
        ("cat > ds.json <<'EOF'\n" + STAGE_2 + "EOF\n", "ds.json", "2"),
        ("STAGE=2\ncat > ds.json <<EOF\n{\"zero_optimization\": {\"stage\": $STAGE}}\nEOF\n", "ds.json", "2"),
        ("echo '{\"zero_optimization\": {\"stage\": 2}}' > ds.json\n", "ds.json", "2"),
        ("mkdir -p gen\ncat > gen/ds.json <<'EOF'\n" + STAGE_2 + "EOF\n", "gen/ds.json", "2"),
        ("cat > /work/conf/ds.json <<'EOF'\n" + STAGE_2 + "EOF\n", "/work/conf/ds.json", "2"),
        ("tee ds.json <<'EOF'\n" + STAGE_2 + "EOF\n", "ds.json", "2"),
    ],
)  # fmt: skip
def test_a_stated_text_is_read_with_its_place_in_the_script(tmp_path: Path, lines: str, name: str, place: str) -> None:
    assert _strategy(tmp_path, lines, name) == ("zero2", "job.sh", place)


def test_a_copy_is_read_at_the_place_of_its_original(tmp_path: Path) -> None:
    assert _strategy(tmp_path, "cp other.json ds.json\n") == ("zero2", "other.json", "2")


def test_another_file_that_is_written_changes_nothing(tmp_path: Path) -> None:
    assert _strategy(tmp_path, "echo hello > log.json\nls > files.txt\n") == ("zero3", "ds.json", "3")
