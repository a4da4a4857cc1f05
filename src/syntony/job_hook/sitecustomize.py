"""Imported by every Python process of a job that `syntony run` starts; see `syntony_job_hook`.

A `sitecustomize` that would otherwise have been imported is imported as well.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load_next():
    others = [each for each in sys.path if os.path.abspath(each or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")


def _keep():
    """Turn a rank of a job with spares into the keeper of its worker (`syntony.torch.keeper`)."""
    argv = list(getattr(sys, "orig_argv", ()))[1:]
    words = argv[argv.index("-m") + 1 :] if "-m" in argv[:8] else argv
    program = next((each for each in words if not each.startswith("-")), "")
    if not program or "-c" in argv[:8] or os.path.basename(program) in _LAUNCHERS:
        return
    if sys.version_info < (3, 11):
        sys.stderr.write("syntony: not protected: Python 3.11 or later is needed\n")
        del os.environ["SYNTONY_RESILIENCE"]
        return
    keeper = os.path.join(os.path.dirname(_HERE), "torch", "keeper.py")
    os.execv(sys.executable, [sys.executable, "-I", "-S", keeper, *argv])  # noqa: S606 - in its place


if (
    os.environ.get("SYNTONY_RESILIENCE")
    and not os.environ.get("SYNTONY_WORKER")
    and any(os.environ.get(each) for each in _RANKS)
):
    _keep()
if os.environ.get("SYNTONY_JOB") and os.environ.get("SYNTONY_AGENT"):
    try:
        import syntony_job_hook  # type: ignore[import-not-found]

        syntony_job_hook.install()
    except Exception:  # without it the job runs unprotected
        pass
_load_next()
