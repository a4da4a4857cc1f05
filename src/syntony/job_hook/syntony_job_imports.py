"""Wraps modules of a job's process when they are imported; see `syntony_job_hook`."""

import importlib.util
import threading


class Finder:
    """Wraps modules as they are imported; never finds one itself."""

    def __init__(self, wraps):
        self._wraps = wraps
        self._busy = threading.local()

    def find_spec(self, name, _path=None, _target=None):
        wrap = self._wraps.get(name)
        if wrap is None or getattr(self._busy, "name", None) == name:
            return None
        self._busy.name = name
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy.name = None
        loader = getattr(spec, "loader", None)
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module):
            execute(module)
            try:
                wrap(module)
            except Exception:  # an unknown version of torch: it is left unchanged
                pass

        loader.exec_module = exec_module
        return spec
