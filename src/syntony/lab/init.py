"""First process of a lab's world: reaps orphans, and ends when the supervisor does.

The kernel kills every other process of the world when this one ends.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Forks before anything heavy is imported: this process stays small."""
    supervisor = os.fork()
    if supervisor == 0:
        from syntony.lab.supervisor import run

        sys.exit(run(sys.argv[1], detach="--detach" in sys.argv[2:]))
    while True:
        pid, status = os.wait()
        if pid == supervisor:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()
