"""Budgets: how much of an input is read and followed. All of them stand here, each with its reason.

A file is anyone's: it may nest, double and repeat until a reader has no memory or no time left. Past a budget the
value is unknown (`Budget.over`) or the file is refused with its name and place, and everything else is checked.

Work is counted in steps, so that the same input has the same result on every machine. The clock of CPU time
(`ReadingTime`) is for what no step counts. The time on the wall decides nothing.

A limit that belongs to what a tool does (SLURM's numbers of nodes, the rounds of a search) stands where that is
described.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from preflight.system.files import MAX_BYTES as FILE_BYTES
from preflight.vocabulary.progress import QUIET, Progress

__all__ = [
    "FILE_BYTES",
    "Budget",
    "OverBudget",
    "ProofTime",
    "ReadingTime",
    "TraceTime",
    "cpu_is_over",
    "keep_time",
]


class Budget(int):
    """The most of something that is read or followed; `of` says in words what is counted."""

    of: str

    def __new__(cls, most: int, of: str) -> Budget:
        made = super().__new__(cls, most)
        made.of = of
        return made

    @property
    def over(self) -> str:
        """Why a value is unknown, or a file is refused, that needs more: words that follow "it is"."""
        return f"over the budget of {int(self):,} {self.of}"


# --- CPU time --------------------------------------------------------------------------------------------------------

_end: ContextVar[float | None] = ContextVar("when the CPU time of a file ends", default=None)
_run: ContextVar[Progress] = ContextVar("the run whose file is read", default=QUIET)


class OverBudget(Exception):
    """A budget ended the reading of a file: what comes behind may set anything, so what came before is no answer.

    Caught where the reading was started: the file is unread, with the budget as the cause.
    """

    def __init__(self, budget: Budget) -> None:
        super().__init__(f"it is {budget.over}")
        self.budget = budget


READING_SECONDS = Budget(30, "seconds of CPU time for the files of a check")
"""What all files together may use, beside LEAST_SECONDS for each. A copy of a library inside a project has a hundred
scripts that each take as long as a file may. The words name this budget, not what it left for the file, which depends
on the machine and its load: one cause has one remark."""
SHARE_OF_A_FILE = 4
"""A file may use this part of what is left: a quarter. The slowest public file takes five seconds."""
LEAST_SECONDS = 0.1
"""What a file may use when nothing is left. Most programs of people take less."""


class ReadingTime:
    """The CPU time that the files of one check have used. The time limit of the run is asked with it."""

    def __init__(self, progress: Progress = QUIET) -> None:
        self._progress = progress
        self._used = 0.0
        self._since: float | None = None

    @contextmanager
    def of_a_file(self) -> Iterator[None]:
        """Starts the clock of a file. What it spends does not count for the file that is read around it."""
        around, start = _end.get(), time.process_time()
        outermost = self._since is None
        self._since = start if self._since is None else self._since
        left = READING_SECONDS - self._used - (start - self._since)
        reset = _end.set(start + max(left / SHARE_OF_A_FILE, LEAST_SECONDS))
        run = _run.set(self._progress)
        try:
            yield
        finally:
            _end.reset(reset)
            _run.reset(run)
            now = time.process_time()
            if around is not None:
                _end.set(around + now - start)
            if outermost:
                self._used += now - start
                self._since = None


def cpu_is_over() -> bool:
    """Whether the current file has used its CPU time; asked between steps, never within one. Raises TimeOver when the
    time limit of the run is over."""
    _run.get().check()
    end = _end.get()
    return end is not None and time.process_time() > end


def keep_time() -> None:
    """Raises OverBudget where the current file has used its CPU time, or TimeOver."""
    if cpu_is_over():
        raise OverBudget(READING_SECONDS)


PROOFS = Budget(64, "proofs of fixes for a file")
"""A proof reads and judges again all that reads the file, and its result is kept. Files of people need a few."""
PROOF_SECONDS = Budget(5, "seconds of CPU time for proofs of fixes")
"""Of one check, with all rounds of `--fix`. Projects of people need less than a second."""
PROOF_SECONDS_OF_A_FILE = 0.01
"""What each further file that is checked adds: a tree of 5,000 files may prove for 55 seconds, on all processors."""


class ProofTime:
    """The CPU time that the proofs of one run have used, and the rounds of fixes that follow from them."""

    def __init__(self) -> None:
        self.files = 0
        """The files that are checked."""
        self._used = 0.0
        self._since: float | None = None

    def over(self) -> bool:
        """Whether the time is used up; asked between proofs, never within one."""
        running = 0.0 if self._since is None else time.process_time() - self._since
        return self._used + running > PROOF_SECONDS + PROOF_SECONDS_OF_A_FILE * self.files

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Counts what is done inside, once."""
        if self._since is not None:
            yield
            return
        self._since = time.process_time()
        try:
            yield
        finally:
            self._used += time.process_time() - self._since
            self._since = None


TRACES_SECONDS = Budget(40, "seconds of CPU time for traces of a check")
"""A repository of twenty trainers names twenty models. A law takes some seconds, and is kept for the next run; one that
is compiled and in 8 bits takes thirty, and reading a large repository as much: together a minute."""
REMARKS_SECONDS = Budget(10, "seconds of CPU time for traces of a check, of which remarks are made")
"""A remark tells the need at usual values of what no file states. Nobody waits for it as for a verdict."""


class TraceTime:
    """The CPU time that the traces of one check have used."""

    def __init__(self) -> None:
        self.used = 0.0
        self._for_remarks = False

    @property
    def limit(self) -> Budget:
        return REMARKS_SECONDS if self._for_remarks else TRACES_SECONDS

    def over(self) -> bool:
        """Whether the time is used up; asked before a law is traced, never within one."""
        return self.used > self.limit

    @contextmanager
    def for_remarks(self) -> Iterator[None]:
        """What is traced within is asked for remarks alone: it stops once traces have taken so much."""
        self._for_remarks = True
        try:
            yield
        finally:
            self._for_remarks = False


# --- texts: scripts, YAML, JSON, Python -------------------------------------------------------------------------------

SCRIPT_CHARACTERS = Budget(4 * 2**20, "characters of a script")
"""sbatch refuses larger scripts (max_script_size in slurm.conf(5))."""
SCRIPT_STATEMENTS = Budget(100_000, "statements of a script")
"""Each takes some 50 microseconds. Generated scripts of job arrays have some 10,000."""
PARSING_SECONDS = Budget(5, "seconds of CPU time for the syntax of a script")
"""The grammar's own work cannot be counted. Real scripts of a thousand lines take a tenth of a second."""
SCRIPT_PIPES = Budget(5_000, "pipes of a script")
"""The time of the grammar grows with the square of a pipeline's length. This many pipes take about a second."""
SHELL_DEPTH = Budget(60, "expansions within expansions")
"""Scripts written by people stay below ten."""
TREE_DEPTH = Budget(200, "levels of a YAML or JSON file")
"""Real configurations stay below 20; Python allows 1,000 frames."""
TOML_DOTS = Budget(1_000, "dots in a line of a TOML file")
"""The parser's time grows with the square of a key's parts."""
TREE_NODES = Budget(200_000, "values of a YAML or JSON file")
"""The worst file that is accepted is read in about a second."""
EXPANDED_NODES = Budget(500_000, "values of a YAML file with its aliases followed")
"""Nested aliases grow without limit; real files at most double."""
SYNTAX_DEPTH = Budget(250, "levels of a syntax tree")
"""Whoever walks the tree recursively stays below the 1,000 frames that Python allows."""
ROUND_TRIP_CHARACTERS = Budget(128 * 1024, "characters of a YAML file that a fix is proved on")
"""ruamel.yaml reads 60 to 100 KB in a second; real configurations are far smaller."""

# --- values -----------------------------------------------------------------------------------------------------------

VALUE_LENGTH = Budget(2**20, "items or characters of a value")
"""`"x" * 10**12` must not be built."""
JOINED_NODES = Budget(2_000, "parts of an expression")
"""A hostile configuration can double a value in each line."""
JOINED_DEPTH = Budget(100, "levels of an expression")
"""Half of what `values.evaluate` allows."""

# --- Python programs --------------------------------------------------------------------------------------------------

PROGRAM_CHARACTERS = Budget(2**19, "characters of a Python file")
"""A syntax tree takes a thousand bytes for each name. Training programs have some 50,000 characters."""
PROGRAM_STEPS = Budget(150_000, "steps of a program")
"""A training script of 600 lines takes some 3,000."""
EXPRESSION_NODES = Budget(300, "parts of an expression of a program")
"""A value that is doubled in a loop grows without limit."""
FIELD_NODES = Budget(5_000, "parts of the value of a Job field")
"""Each call that sets a field under a condition adds the values before it, in two places where both may hold."""
PROGRAM_DEPTH = Budget(150, "nested statements, expressions and calls")
"""Each takes some 5 frames of the 1,000 that Python allows."""
NESTED_CALLS = Budget(40, "functions that call each other")
"""A function that calls itself is followed twice. Training programs have some ten calls inside each other."""
PROGRAM_MODULES = Budget(80, "modules of a program")
"""Only what a program imports directly says how it trains; large projects import all of themselves."""
LOADED_NODES = Budget(20_000, "values of a file that a program loads")
"""Nested aliases grow without end."""
LOADED_DEPTH = Budget(60, "levels of a file that a program loads")
"""Configurations written by people stay below 20."""
LOADED_CHARACTERS = Budget(2**20, "characters of a file that a program loads")
"""Configurations written by people are far smaller; data sets are not read."""
CALLED_OBJECTS = Budget(64, "objects that a call may mean")
"""Each is followed. A table of models that a flag chooses from has a dozen."""
MADE_ITEMS = Budget(4096, "items of a list that an operation makes")
"""A longer one is open: it may have items that are not known."""
MODEL_PARTS = Budget(1500, "operations of a count of parameters")
"""Those of a model whose sizes are settings stay far below."""
CHOOSING = Budget(8, "conditions that choose one object")
"""People write one or two. Each doubles the objects that are looked at."""
PROGRAM_ROUNDS = Budget(3, "evaluations of a program with what its flags choose")
"""What a flag looks up may look up more; in programs of people it does so once."""
KEPT_OBJECTS = Budget(10_000, "objects that a data set and a program keep")
"""Those of a training script are some hundred. What a data set keeps is not known beyond."""
SEARCHED_FILES = Budget(400, "files that are searched for layers")
"""Those of a large project that imports all of itself."""
STUDY_RUNS = Budget(48, "interpretations of an Optuna program")
"""Each takes about 10 ms. If more are needed, the branches stay joined."""

# --- shell ------------------------------------------------------------------------------------------------------------

SCRIPT_RUNS = Budget(500, "commands that a script starts")
"""Scripts that submit a sweep in loops start some hundred."""
SCRIPT_STEPS = Budget(20_000, "steps of a script with its loops unrolled")
"""Scripts written by people take less than a thousand."""
LOOP_ROUNDS = Budget(64, "rounds of a loop")
"""A longer loop is followed once, with an unknown variable."""
SHELL_NESTED = Budget(8, "nested functions, sourced files and command strings")
"""Scripts written by people have one or two."""
WORD_CHARACTERS = Budget(2**17, "characters of a word")
"""The kernel takes no longer word (MAX_ARG_STRLEN)."""

# --- Hydra ------------------------------------------------------------------------------------------------------------

INTERPOLATED_CHARACTERS = Budget(8 * 1024, "characters of a text with interpolations")
"""ANTLR reads about 100 KB of them in a second."""
INTERPOLATED_DEPTH = Budget(20, "brackets inside brackets")
"""ANTLR's parser is recursive."""
TREE_FILES = Budget(20_000, "files of all compositions of a project")
"""Each file of a tree is composed as it may be used: a chain of 1,200 groups is 1,200 chains."""
COMPOSED_FILES = Budget(2000, "files of one composition")
"""A defaults list that doubles at every level would never end."""
RESOLVED_CHARACTERS = Budget(64 * 1024, "characters of a resolved text")
"""Hostile files double a text in every line."""
RESOLVED_DEPTH = Budget(60, "interpolations that refer to each other")
"""Real chains have two or three of them."""
ARITHMETIC_CHARACTERS = Budget(1000, "characters of an arithmetic expression")
"""`ast` itself recurses on hostile ones."""
SEARCHED_PROGRAMS = Budget(400, "Python files that are searched for `@hydra.main`")
"""A folder of programs has a few; data sets of source code have thousands."""
COMPOSITIONS = Budget(24, "combinations of group options")
"""Each is a box of the search space, and takes some 50 ms."""
SWEPT_COMPOSITIONS = Budget(400, "combinations of group options in all files")
"""Each option of a group that a sweep selects is a file that is composed with that sweep again."""
CHOICES = Budget(10_000, "values of an enumerated sweep")
"""`range(0, 10**9)` in a list of floats."""
NESTED_CLASSES = Budget(12, "nested classes of a configuration")
"""A class that contains itself ends here."""
NESTED_TABLES = Budget(12, "nested tables with a `_target_`")
"""Configurations written by people have less than eight."""
MANIFEST_OBJECTS = Budget(100, "objects of a manifest, or starts of a template")
"""Manifests written by people have a few."""
TEMPLATE_DEPTH = Budget(8, "templates of a workflow that start each other")
"""People nest two or three; a template may start itself."""

# --- projects and search spaces ---------------------------------------------------------------------------------------

WALKED_FILES = Budget(100_000, "files of a walk")
"""A walk that finds more was started in the wrong place."""
IGNORED_DIRECTIVES = Budget(100, "lines of a script that look like directives and have no effect")
"""People write a few. A script that was joined from many others has thousands, each with a fix to be proved."""
LAUNCHER_FILES = Budget(2_000, "files of a folder that are searched for what starts another")
"""Beside those that are checked, which are searched in any case. Folders of generated scripts have thousands."""
LAUNCHER_CHARACTERS = Budget(200_000, "characters that are searched for names")
"""Files that launch programs are small."""
RECIPES = Budget(5_000, "recipes of one file")
"""Makefiles that people write have some hundred."""
RECIPE_DEPTH = Budget(20, "variables of a file of recipes inside each other")
"""People nest two or three."""
LAUNCHED = Budget(200, "launches of one file")
"""A script may hold a loop that was unrolled."""
CELLS = Budget(1024, "combinations of unordered axes")
"""Models, precisions, switches: each is judged by itself, and the rest is unknown."""
BOUNDS = Budget(700, "evaluations of the bound for counting a study")
"""A third of a second, at half a millisecond each."""
SAFE_BOUNDS = Budget(250, "evaluations of the bound for the safe sub-space")
"""Further ones, after the study was counted."""
FULL_ESTIMATES = Budget(24, "full estimates of a box that has no bound from above")
"""Each takes some 50 ms."""
CLOSE_ESTIMATES = Budget(32, "full estimates of a search space whose bounds are near to the capacity")
"""Each takes some 50 ms."""
SUBSETS = Budget(4096, "subsets of cells that are tried one by one")
"""Beyond, the value that fits worst is dropped until all fit."""

# --- clusters, laws, logs, traces -------------------------------------------------------------------------------------

HOST_NAMES = Budget(100_000, "names of a host list")
"""The largest clusters have some 10,000 nodes, and SLURM refuses ranges of more than 65,536."""
HOST_CHARACTERS = Budget(2**23, "characters of all names of a host list")
"""A long text before a range is repeated for each of its names."""
INCLUDES = Budget(20, "levels of Include lines")
"""A file that includes itself never ends."""
CLUSTER_BYTES = Budget(2**26, "bytes of a cluster's configuration")
"""The output of `scontrol show` for 10,000 nodes has some 10 MB."""
CLUSTER_HOSTS = Budget(20_000, "nodes of a cluster")
"""The largest machines of the TOP500 have fewer."""
MODEL_LAYERS = Budget(1_000, "layers of a model")
"""A step has events for each layer: to replay so many takes two seconds. The deepest known model has 1,000."""
LAW_BYTES = Budget(2**26, "bytes of a file of laws")
"""Packed or not; the largest that is shipped takes a twelfth."""
PIECES_OF_EVIDENCE = Budget(2_000, "pieces of evidence of one kind")
"""A program that catches the error and retries can fail for ever."""
TASK_ROWS = Budget(4096, "rows of a task table")
"""The kernel lists every process of the node."""
TRACEBACK_FRAMES = Budget(200, "frames of a traceback")
"""Python itself allows 1,000, and repeats them."""
LOG_STREAMS = Budget(4096, "ranks that take turns in a log")
"""The largest jobs in the logs that were seen had 1,024."""
TRACE_SECONDS = 120.0
"""Seconds of one trace, by the clock: another process does the work. A model of 8 B parameters takes two."""
TRACE_MEMORY = Budget(16 * 2**30, "bytes of memory for a trace")
"""Tensors of a trace have no data; importing torch and tracing a model of 70 B parameters takes some 2 GiB."""
