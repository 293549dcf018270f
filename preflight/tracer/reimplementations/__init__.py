"""Models of other libraries, written again in plain torch: they are traced where the library is not installed."""
