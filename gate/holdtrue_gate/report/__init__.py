"""Reports: one module a format, each a pure function of the JSON document `holdtrue.gate/1`."""
