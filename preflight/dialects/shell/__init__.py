"""Commands of a shell: variables, wrappers, launchers, containers."""
