"""From the commands of a job script to links: the program behind srun, containers, launchers and command strings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from preflight.dialects.shell import docker_run, repeated, submit
from preflight.dialects.shell.console_scripts import stub_of
from preflight.dialects.shell.interpreter import Shell, StartedCommand
from preflight.dialects.shell.outputs import plain_name
from preflight.dialects.shell.places import (
    directories_of,
    in_project,
    module_in_folder,
    place_of,
    started_in,
    target_of,
)
from preflight.dialects.shell.values import word_text
from preflight.dialects.shell.written import files_written
from preflight.frameworks import commands
from preflight.frameworks.launchers import LaunchCommand, as_the_environment_says, asks_the_machine, take_apart
from preflight.vocabulary.caches import regex
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import HET_GROUP, Launch, Link, LinkKind, Request, Submitted, Word
from preflight.vocabulary.values import Cause, Const, Expr, Op, Span, Unknown, evaluate, unknown

MAX_PEELED = 12
"""Nested launchers; scripts written by people have less than five."""
MOST_GPUS = 64
"""Of a node."""

STEP = "SLURM_STEP_ID"
"""A variable that only the processes of srun have: srun starts one process per task."""

STEP_CPUS = "SRUN_CPUS_PER_TASK"
"""The variable that srun reads instead of -c."""
PER_TASK = "SLURM_GPUS_PER_TASK"
"""The variable that srun reads instead of --gpus-per-task."""

_SRUN_FLAGS = frozenset(
    re.findall(
        r"\S+",
        "--pty --label -l --unbuffered -u --exclusive --overlap --exact --kill-on-bad-exit -K --no-kill -k --verbose "
        "-v -vv --quiet -Q --overcommit -O --preserve-env -E --multi-prog --wait-for-children --contiguous --hold -H "
        "--container-writable --container-readonly --container-mount-home --no-container-mount-home "
        "--container-remap-root --no-container-remap-root --no-container-entrypoint --container-entrypoint --unbuffer "
        "--disable-status -X --reboot --spread-job --use-min-nodes --test-only --debugger-test --propagate --x11 "
        "--oversubscribe -s --nice --immediate -I --interactive --mpi-combine --resv-ports",
    )
)
"""Options of srun(1) and pyxis that take no value. The value of any other option may be the next word."""

_APPTAINER_FLAGS = frozenset(
    re.findall(
        r"\S+",
        "--nv --rocm --nvccli --rocmccl --cleanenv -e --contain -c --containall -C --writable -w --writable-tmpfs -i "
        "--ipc --no-home --pid -p --userns -u --fakeroot -f --no-init --net -n --uts --disable-cache --no-privs "
        "--allow-setuid --compat --no-https --nohttps --vm --underlay --no-umask --no-eval --keep-privs --unsquash",
    )
)
"""Switches of `apptainer exec` (1.3) and of singularity before it."""

_PROFILERS = frozenset({"nsys", "ncu", "py-spy", "strace", "valgrind", "scalene", "memray", "dcgmi", "perf"})
_STARTERS = regex(r"python[\d.]*|torchrun|accelerate|deepspeed|bash|sh")
_ELSEWHERE = frozenset({"docker", "podman", "nerdctl", "kubectl", "oc"})
"""Commands whose `exec` starts a program in a container that runs already."""
_TRAINERS = frozenset({"torchrun", "accelerate", "deepspeed", "wandb-agent"})


class Launched(Struct, frozen=True):
    """One program that a script starts. `link` is None if its file is not in the project."""

    link: Link | None
    trains: bool
    """It is started by a distributed launcher or by the agent of a sweep, so it trains."""
    missing: Const | None = None
    """The name of a Python file that is not in the project."""


def launched(run: StartedCommand, shell: Shell, project: Project, request: Request | None) -> Iterator[Launched]:
    """The programs that a command starts; a command string may start several."""
    beside = str(PurePosixPath(shell.source.path).parent)
    written = files_written(run.made, lambda directory: directories_of(directory, beside, project), project)
    launch, project = Launch(environment=dict(run.environment), written=written), project.with_written(written)
    words: tuple[Word, ...] = run.words
    for _ in range(MAX_PEELED):
        command = take_apart(words)
        own = as_the_environment_says(command.launch, launch.environment)
        launch = _within(launch, _all_gpus(own, words, request), request)
        name = PurePosixPath(command.name or "").name
        if command.kind == "none":
            inner = repeated.repeated(name, command.words)
            if inner is not None:
                for one, turns in inner:
                    started = replace(run, words=one, origin=replace(run.origin, via=(*run.origin.via, *turns)))
                    yield from _under(launch, started, shell, project, request)
                return
            if run.given is not None and _is_shell(words):
                yield from _string(Word("", run.given, run.origin), run, shell, project, request, launch)
                return
            peeled = _peel(name, command.words, launch)
            if peeled is None:
                found = _special(name, command, launch, run, shell, project)
                found = found or _tool(name, command.words, launch, run, project, request)
                found = found or _console_script(name, command, launch, run, beside, project)
                if found is not None:
                    yield found
                return
            words, launch = peeled
            continue
        command, text = replace(command, words=(*command.ranks, *command.words)), command.target
        if command.kind == "script" and text is not None and target_of(text, run, shell, project) is None:
            yield from _string(text, run, shell, project, request, launch)
            return
        known = _tool_module(command, launch, run, project, request)
        found = known or _found(command, launch, run, shell, project, request)
        if found is not None:
            yield found
        return


def without_launchers(words: Sequence[Word]) -> tuple[LaunchCommand, Launch]:
    """The program of a command that is given as words, and its launch; no project is searched for it."""
    launch, rest = Launch(), tuple(words)
    for _ in range(MAX_PEELED):
        command = take_apart(rest)
        launch = _within(launch, command.launch, None)
        peeled = (
            _peel(PurePosixPath(command.name or "").name, command.words, launch) if command.kind == "none" else None
        )
        if peeled is None:
            return command, launch
        rest, launch = peeled
    return command, launch


def _under(
    outer: Launch, run: StartedCommand, shell: Shell, project: Project, request: Request | None
) -> Iterator[Launched]:
    """The programs of a command that another command starts."""
    for found in launched(run, shell, project, request):
        link = found.link
        if link is None or outer == Launch():
            yield found
        else:
            yield replace(found, link=replace(link, launch=_within(outer, link.launch, request)))


def _is_shell(words: tuple[Word, ...]) -> bool:
    """Whether a command is a shell that reads its commands from its standard input."""
    texts = [word_text(word) or "" for word in words if word_text(word) != "-s"]
    return len(texts) >= 1 and PurePosixPath(texts[-1]).name in ("bash", "sh")


def _string(
    word: Word, run: StartedCommand, shell: Shell, project: Project, request: Request | None, launch: Launch
) -> Iterator[Launched]:
    """The programs of `bash -c "..."`, with the variables of the script."""
    string = _rejoined(word)
    if " " not in _shown(string):
        return
    inner = replace(
        shell, runs=[], variables=dict(shell.variables), group=run.group, nested=shell.nested + 1, turns=run.origin.via
    )
    inner.follow_text(string)
    shell.cut = shell.cut or inner.cut
    for one in inner.runs:
        for found in launched(replace(one, group=run.group), inner, project, request):
            if found.link is None:
                yield found
                continue
            yield Launched(replace(found.link, launch=_within(launch, found.link.launch, request)), found.trains)


def _rejoined(word: Word) -> Expr:
    """A whole string again, after `literal_word` split it at its first `=`."""
    value = word.value
    if value is None or not word.prefix:
        return value if value is not None else Const(word.prefix, word.origin)
    place = value.origin
    if place is not None:
        start = max(0, place.span.start - len(word.prefix))
        place = replace(place, span=Span(start, place.span.start), route=None)
    return Op("concat", (Const(word.prefix, place), value), word.origin)


def _shown(expr: Expr) -> str:
    if isinstance(expr, Const):
        return "" if isinstance(expr.value, Unknown) else str(expr.value)
    return "".join(_shown(operand) for operand in expr.operands) if isinstance(expr, Op) else ""


def _peel(name: str, words: tuple[Word, ...], launch: Launch) -> tuple[tuple[Word, ...], Launch] | None:
    """The command behind a launcher that `take_apart` does not know, and the launch. None if it is no launcher."""
    rest = list(words)
    if name == "srun":
        return _srun(rest, launch)
    if (detached := repeated.in_a_terminal(name, words)) is not None:
        return detached, launch
    if name in ("apptainer", "singularity"):
        rest = _after_options(rest[1:], _APPTAINER_FLAGS)
        return tuple(rest[1:]), launch
    if name == "enroot" and rest and word_text(rest[0]) == "start":  # [options] NAME [command]: enroot, cmd/start.md
        rest = _after_options(rest[1:], frozenset({"--root", "-r", "--rw", "-w"}))
        return tuple(rest[1:]), launch
    if docker_run.is_run(name, rest):
        return docker_run.peel(rest, launch)
    if name in ("mpirun", "mpiexec", "horovodrun", "composer"):
        return _counted(rest, launch)
    if name == "ssh":
        rest = _after_options(rest, frozenset({"-t", "-T", "-n", "-f", "-q", "-x", "-X", "-A"}))[1:]
        string = rest[:1] and (word_text(rest[0]) is None or " " in (word_text(rest[0]) or ""))
        return (Word("", Const("bash")), Word("-c"), *rest) if string else tuple(rest), launch
    if name == "preflight" and rest and word_text(rest[0]) == "run":
        end = next((index for index, word in enumerate(rest) if word_text(word) == "--"), len(rest))
        return tuple(rest[end + 1 :]), launch
    of_site = bool(rest) and word_text(rest[0]) == "exec" and name not in _ELSEWHERE
    if name in _PROFILERS or of_site:  # `apptainer_wrapper exec torchrun ...`: a site's own command
        for index, word in enumerate(rest):
            if _STARTERS.fullmatch(PurePosixPath(word_text(word) or "").name):
                return tuple(rest[index:]), launch
    return None


def _after_options(words: list[Word], flags: frozenset[str]) -> list[Word]:
    while words and words[0].prefix.startswith("-"):
        option = words[0].prefix
        words = words[1:] if option in flags or option.endswith("=") or words[0].value is not None else words[2:]
        if option == "--":
            break
    return words


def _options(words: list[Word], flags: frozenset[str]) -> tuple[dict[str, Expr], list[Word]]:
    """The options at the start with their values, and the words behind them."""
    found: dict[str, Expr] = {}
    while words and words[0].prefix.startswith("-"):
        word, words = words[0], words[1:]
        name = word.prefix.rstrip("=")
        short = re.fullmatch(r"(-[a-zA-Z])(.+)", name) if not name.startswith(("--", "-np")) else None
        if name == "--":
            break
        if word.value is not None:
            found[name] = word.value
        elif short is not None and name not in flags:
            found[short[1]] = Const(short[2], word.origin)
        elif name not in flags and words:
            value, words = words[0], words[1:]
            found[name] = value.value if value.value is not None else Const(value.prefix)
    return found, words


def _number(options: dict[str, Expr], *names: str) -> Expr | None:
    for name in names:
        if name in options:
            return Op("int", (options[name],), options[name].origin)
    return None


def _srun(words: list[Word], launch: Launch) -> tuple[tuple[Word, ...], Launch]:
    """The program of a step. Of `srun ... python train.py : ... hostname` (heterogeneous jobs) the first one."""
    options, rest = _options(words, _SRUN_FLAGS)
    rest = rest[: next((at for at, word in enumerate(rest) if word_text(word) == ":"), len(rest))]
    nodes, tasks = _number(options, "--nodes", "-N"), _number(options, "--ntasks", "-n")
    per_node = _number(options, "--ntasks-per-node", "--tasks-per-node")
    step: dict[str, Expr] = {
        STEP: unknown("srun sets it in every step", words[0].origin if words else None, Cause.run_time)
    }
    group = _number(options, "--het-group", "--pack-group")
    if group is not None:
        step[HET_GROUP] = group
    cpus = _number(options, "--cpus-per-task", "-c")
    if cpus is not None:
        step[STEP_CPUS] = cpus
    # sbatch hands its own option to each step (srun(1), INPUT ENVIRONMENT VARIABLES)
    inherited = launch.environment.get(PER_TASK, Const(None))
    gpus = evaluate(_number(options, "--gpus-per-task") or Op("int", (inherited,)))
    if isinstance(gpus, int) and 0 < gpus <= MOST_GPUS:  # srun binds each task to GPUs of its own (--gpu-bind=per_task)
        step["CUDA_VISIBLE_DEVICES"] = Const(",".join(map(str, range(gpus))))
    inner = Launch("srun", nodes, per_node, tasks if per_node is None else None, environment=step)
    return tuple(rest), _within(launch, inner, None)


def _counted(words: list[Word], launch: Launch) -> tuple[tuple[Word, ...], Launch]:
    switches = frozenset({"--allow-run-as-root", "--oversubscribe", "-v", "--verbose", "--bind-to-core"})
    options, rest = _options(words, switches)
    total = _number(options, "-np", "-n", "--np", "--n", "--nproc")
    return tuple(rest), _within(launch, Launch("srun", None, None, total), None)


def _within(outer: Launch, inner: Launch, request: Request | None) -> Launch:
    """A launch inside another launch. The inner one decides about processes; each process of the outer one runs it."""
    ranks = inner.ranks_per_node
    if outer.launcher == "srun" and inner.launcher in ("torchrun", "deepspeed"):
        tasks = outer.ranks_per_node
        if tasks is None and request is not None and isinstance(request.tasks_per_node, int):
            tasks = Const(request.tasks_per_node, request.origins.get("tasks_per_node"))
        several = tasks is not None and evaluate(tasks) != 1
        if several and tasks is not None and ranks is not None:
            ranks = Op("*", (tasks, ranks), ranks.origin)
    python = inner.launcher == "python"
    return Launch(
        outer.launcher if python else inner.launcher,
        inner.nodes if inner.nodes is not None else outer.nodes,
        ranks if ranks is not None else outer.ranks_per_node,
        inner.total_ranks if inner.total_ranks is not None else outer.total_ranks if python else None,
        inner.trials_per_gpu or outer.trials_per_gpu,
        {**outer.environment, **inner.environment},
        outer.multirun or inner.multirun,
        {**outer.written, **inner.written},
    )


def _all_gpus(launch: Launch, words: tuple[Word, ...], request: Request | None) -> Launch:
    """deepspeed starts a process on every GPU of every node in its hostfile, unless its options select some of them.
    accelerate starts one on every GPU of its node."""
    asks = asks_the_machine(launch.launcher, launch.environment) and (
        launch.launcher == "deepspeed" or not launch.nodes
    )
    if not asks or request is None or launch.total_ranks is not None:
        return launch
    named = {word.prefix.rstrip("=") for word in words}
    if named & {"--include", "-i", "--exclude", "-e"}:
        return launch
    ranks, nodes = launch.ranks_per_node, launch.nodes
    if ranks is None and isinstance(request.gpus_per_node, int):
        ranks = Const(request.gpus_per_node, request.origins.get("gpus_per_node"))
    if nodes is None and named & {"--hostfile", "-H"} and isinstance(request.nodes, int):
        nodes = Const(request.nodes, request.origins.get("nodes"))
    return replace(launch, ranks_per_node=ranks, nodes=nodes)


def _special(
    name: str, command: LaunchCommand, launch: Launch, run: StartedCommand, shell: Shell, project: Project
) -> Launched | None:
    words = command.words
    texts = [word_text(word) for word in words]
    if name == "wandb" and texts[:1] == ["agent"]:
        return Launched(None, True)
    if name == "wandb" and texts[:1] == ["sweep"]:
        for word, text in zip(words[1:], texts[1:], strict=True):
            path = in_project(text, run, project) if text and text.endswith((".yaml", ".yml")) else None
            if path is not None:
                agent = replace(launch, launcher="wandb-agent")
                return Launched(Link("sweep", path, (), {}, agent, place_of(word, run), run.group), True)
    if name == "sbatch":
        return _submitted(submit.taken_apart(words, run.given), launch, run, shell, project)
    return None


def _submitted(
    job: submit.Submission, launch: Launch, run: StartedCommand, shell: Shell, project: Project
) -> Launched | None:
    """The job that `sbatch` submits: a file of the project, or a text of the script."""
    outer = Launch(environment=submit.exported(job.options, {**run.environment, **launch.environment}))
    options = (*submit.from_environment({**run.environment, **launch.environment}), *job.options)
    text = job.text
    if job.script is not None:
        name = word_text(job.script)
        path = None if name is None else in_project(name, run, project)
        if path is not None:
            link = Link("script", path, job.words, {}, outer, place_of(job.script, run), run.group)
            return Launched(replace(link, submitted=Submitted(options)), False)
        text = None if name is None else shell.outputs.written.get(plain_name(name))
    if text is None:
        return None
    link = Link("job", run.origin.path, job.words, {}, outer, run.origin, run.group, run.directory)
    return Launched(replace(link, submitted=Submitted(options, text)), False)


def _tool_module(
    command: LaunchCommand, launch: Launch, run: StartedCommand, project: Project, request: Request | None
) -> Launched | None:
    """A known tool: `accelerate launch -m axolotl.cli.train x.yaml`, a path of a tool outside the project, or a copied
    script of diffusers."""
    name = command.name or ""
    path = in_project(name, run, project) if command.kind == "program" else None
    source = project.source(path).text if path is not None else ""
    own = path is not None and not commands.copied(name, source)
    named = command.kind == "module" or (command.kind == "program" and not own)
    known = commands.module(name, commands.effective(command.words, source)) if named else None
    if known is None:
        return None
    script = command.kind == "program" and known[0] == "llamafactory-cli"
    started = commands.one_process(launch) if script else commands.alone(known[0], launch)
    return None if started is None else _tool(*known, started, run, project, request)


def _tool(
    name: str, words: tuple[Word, ...], launch: Launch, run: StartedCommand, project: Project, request: Request | None
) -> Launched | None:
    """A trainer that reads a settings file or a command line, without a program of the project."""
    found = commands.started(name, words, launch, request)
    if found is None:
        return None
    value = found.file.value if found.file is not None else None
    said = evaluate(value) if value is not None else None
    file = said if isinstance(said, str) else None
    path = in_project(file, run, project)
    if path is not None and found.file is not None:
        return Launched(
            Link("program", path, found.words, {}, found.launch, place_of(found.file, run), run.group), True
        )
    why = unknown(f"{file or 'the file of settings'} was not found", run.origin, Cause.file_not_found)
    unread = [] if found.file is None else [Word("", why, found.file.origin)]
    settings = (Word("", Const(found.kind)), *unread, *found.words)
    return Launched(Link("command", run.origin.path, settings, {}, found.launch, run.origin, run.group), True)


def _console_script(
    name: str, command: LaunchCommand, launch: Launch, run: StartedCommand, beside: str, project: Project
) -> Launched | None:
    """A command of the project's own package."""
    found = stub_of(name, beside, project)
    if found is None:
        return None
    path, text = found
    launch = replace(launch, written={**launch.written, path: text})
    return Launched(Link("program", path, command.words, {}, launch, run.origin, run.group), False)


def _found(
    command: LaunchCommand, launch: Launch, run: StartedCommand, shell: Shell, project: Project, request: Request | None
) -> Launched | None:
    if command.target is None or command.kind == "none":
        return None
    trains = launch.launcher in _TRAINERS
    origin = place_of(command.target, run)
    if any(word_text(word) in ("-m", "--multirun") for word in command.words):
        launch = replace(launch, multirun=True)
    if command.kind == "module":
        name = command.name
        link = None
        if name is not None:
            path, directory = module_in_folder(name, run, shell, project)
            kind: LinkKind = "module" if path is None else "program"
            link = Link(kind, path or name, command.words, {}, launch, origin, run.group, directory)
        return Launched(link, trains)
    path = target_of(command.target, run, shell, project)
    if path is None:
        name = word_text(command.target) or ""
        return Launched(None, trains, Const(name, origin) if name.endswith(".py") else None)
    directory = started_in(word_text(command.target), path, run, shell, project)
    known = commands.started_by(project.source(path).text, command.words)  # a clone of a tool's repository
    if known is not None:
        one = commands.one_process(launch)
        return _tool(*known, one, replace(run, directory=directory), project, request) if one else Launched(None, True)
    return Launched(Link(command.kind, path, command.words, {}, launch, origin, run.group, directory), trains)
