"""Python interfaces of other programs, as thin wrappers of spbench's functions."""
