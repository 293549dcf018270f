"""Results of checks that are kept: an unchanged check is answered from them without being made."""
