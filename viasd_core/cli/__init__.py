"""The command line: every module here that defines `add_parser` is one command of `python -m viasd_core`."""
