"""The language server: what an editor shows beside the text. Nothing of the user's is run, and no file is written."""
