"""Loaded by every Python of a job that `syntony run` starts; see `syntony_job_hook`.

Whatever `sitecustomize` would have been loaded without us is loaded too.
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


if os.environ.get("SYNTONY_JOB") and os.environ.get("SYNTONY_AGENT"):
    try:
        import syntony_job_hook  # type: ignore[import-not-found]

        syntony_job_hook.install()
    except Exception:  # a job runs without us
        pass
_load_next()
