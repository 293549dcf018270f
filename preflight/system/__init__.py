"""Access to the operating system: files, directories of the user, programs to start, the import path."""
