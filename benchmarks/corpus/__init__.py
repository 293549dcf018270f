"""What strangers would see: preflight on public repositories, each at one commit. No file of them is kept here."""
