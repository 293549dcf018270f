"""Fixes: proposals planned as edits, proved on a copy in memory, written whole or not at all."""
