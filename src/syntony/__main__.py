"""The program `syntony`, also as ``python -m syntony``."""

import os
import sys


def main() -> None:
    """Runs the command line. Ctrl-C while it is loaded, which takes seconds on a busy machine, is
    one line and exit status 130 as well."""
    try:
        from syntony.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        os.write(2, b"\nsyntony: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
