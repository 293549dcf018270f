from __future__ import annotations

import pytest

from preflight.slurm.sbatch.arguments import OPTIONS, Own, parse, plugin_options, usage
from preflight.vocabulary.errors import UsageError


@pytest.mark.parametrize(
    ("words", "options", "script", "arguments"),
    [
        ("job.sh", "", "job.sh", ""),
        ("job.sh --mem=1G a", "", "job.sh", "--mem=1G a"),
        ("--mem 1G -N2 -c 4 job.sh 5", "--mem 1G -N2 -c 4", "job.sh", "5"),
        ("--partit gpu job.sh", "--partit gpu", "job.sh", ""),
        ("--exclusive user", "--exclusive", "user", ""),
        ("-Hn 4 job.sh", "-Hn 4", "job.sh", ""),
        ("-n1 : -n2 job.sh : x", "-n1 : -n2", "job.sh", ": x"),
        ("--mem=1G -- -odd.sh -x", "--mem=1G", "-odd.sh", "-x"),
        ("-", "", "-", ""),
        ("--wrap hostname", "--wrap hostname", None, ""),
        ("", "", None, ""),
        ("--", "", None, ""),
    ],
)
def test_sbatchs_words(words: str, options: str, script: str | None, arguments: str) -> None:
    line = parse(words.split())
    assert (line.words, line.options) == (tuple(words.split()), tuple(options.split()))
    assert (line.script, line.arguments) == (script, tuple(arguments.split()))
    assert (line.own, line.strange) == (Own(), ())


def test_our_options_are_taken_out_before_the_script_alone() -> None:
    given = ["--preflight-fix", "--comment", "--preflight-only", "--preflight-mode=strict", "job.sh", "--preflight-x"]
    line = parse(given)
    assert line.words == ("--comment", "--preflight-only", "job.sh", "--preflight-x")
    assert line.own == Own(mode="strict", fix=True)
    assert (line.script, line.arguments) == ("job.sh", ("--preflight-x",))


def test_what_is_asked_of_sbatch() -> None:
    assert parse(["--wrap=a b"]).wrap == "a b"
    assert [parse([word]).answers for word in ("--help", "-h", "-V", "--usage", "-v")] == [
        True,
        True,
        True,
        True,
        False,
    ]
    assert parse(["-Q"]).quiet
    assert parse(["-M", "other", "job.sh"]).values["clusters"] == "other"


def test_options_of_plugins_are_found_in_sbatchs_help() -> None:
    told = "Options by plugins:\n      --image=path      container\n      --quick           soon\n  -N, --nodes=N  n\n"
    plugins = plugin_options(told)
    assert plugins == {"image": True, "quick": False, "nodes": True}
    words = ["--image", "a.sif", "--quick", "job.sh", "x"]
    assert parse(words).strange == ("image",)
    line = parse(words, plugins)
    assert (line.words, line.script, line.options, line.strange) == (tuple(words), "job.sh", (), ())


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("--preflight-fux", "did you mean"),
        ("--preflight-mode=of", "off, warn, on, strict"),
        ("--preflight-mode", "write --preflight-mode=MODE"),
        ("--preflight-fix=1", "write --preflight-fix"),
        ("--preflight-timeout=soon", "seconds"),
        ("--preflight-print=all", "wrapper, cli-filter"),
    ],
)
def test_our_options_are_checked(word: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse([word, "job.sh"])


def test_the_help_lists_every_option() -> None:
    assert all(f"--preflight-{name}" in usage() for name in OPTIONS)
