"""A fleet under faults, simulated from seeds. Exit status 1: something promised did not hold.

python -m bench.world                         # 50 seeds
python -m bench.world --first 7 --seeds 1 --echo
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.world.ledger import BrokenError
from tests.world.world import Settings, World


def main() -> int:
    """Run the seeds."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "bench.world", *sys.argv[1:]])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--echo", action="store_true")
    options = parser.parse_args()
    settings = Settings(echo=options.echo)
    for seed in range(options.first, options.first + options.seeds):
        with tempfile.TemporaryDirectory(prefix="world-", dir="/dev/shm") as folder:
            began = time.process_time()
            world = World(seed, Path(folder) / "w", settings)
            try:
                world.run()
            except BrokenError as error:
                print("\n".join(world.log.lines))
                print(f"seed {seed}: {error}")
                return 1
            cpu = time.process_time() - began
            print(
                seed,
                round(world.loop.time()),
                "s",
                f"{cpu:.1f} cpu",
                world.ledger.checks,
                world.pager.pages,
                "pages",
                len(world.store.batches),
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
