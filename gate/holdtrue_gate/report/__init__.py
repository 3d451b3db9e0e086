"""Reports: one module a format, each a pure function of a finished check."""
