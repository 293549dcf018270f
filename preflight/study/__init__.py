"""Makes studies from readings: the files of one launch together give one study."""
