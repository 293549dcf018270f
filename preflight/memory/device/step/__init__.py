"""One training step: replay through the allocator, phases, effects beside the tape."""
