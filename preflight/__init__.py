"""Static pre-flight checker for machine-learning jobs."""

FALLBACK = "0.1.0"
"""The version of a tree that has neither tags nor a version that a build wrote. pyproject.toml has it as well."""

try:
    from preflight._version import version
except ImportError:
    __version__ = FALLBACK
else:
    __version__ = str(version)

RELEASE = FALLBACK if "dev" in __version__ or "+" in __version__ else __version__
"""The release that files of a project name: no tag and no package has the version of a working tree."""

REPOSITORY = "https://github.com/OWNER/preflight"
"""The project's address. Its owner replaces OWNER here, and in the copies that tests compare: README.md, docs/,
mkdocs.yml, pyproject.toml and Containerfile. Every other address is made of this one."""

RULE_PAGES = f"{REPOSITORY}/blob/main/docs/rules"
"""The address of the pages of preflight's own rules."""


def load_ipython_extension(shell: object) -> None:
    """`%load_ext preflight` in a notebook: IPython calls it with its shell."""
    from importlib import import_module

    import_module(f"{__name__}.editor.notebook").load(shell)
