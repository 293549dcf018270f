"""The machine around preflight: files read with care, programs started in isolation, the import path."""
