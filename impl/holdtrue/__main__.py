"""`python -m holdtrue`: the same command line as `holdtrue`."""

from __future__ import annotations

from holdtrue.cli import main

if __name__ == "__main__":
    main()
