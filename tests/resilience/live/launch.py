"""launch.py WORLD RANKS PROGRAM…: starts some ranks of a job as srun does, and waits for them."""

import os
import subprocess
import sys

world, ranks, program = sys.argv[1], sys.argv[2].split(","), sys.argv[3:]
started = [
    subprocess.Popen(
        [sys.executable, *program],
        env=os.environ | {"SLURM_PROCID": rank, "SLURM_NTASKS": world, "WORLD_SIZE": world},
    )
    for rank in ranks
]
sys.exit(max(each.wait() for each in started))
