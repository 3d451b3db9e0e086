"""HoldTrue's gate: says whether a new test fails without its fix, and why, for any pytest project."""
