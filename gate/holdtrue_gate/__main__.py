"""`python -m holdtrue_gate`: the same as the command `gate`."""

from holdtrue_gate.cli import main

main()
