"""Records how ranks find each other and form groups; see `syntony_job_hook`."""

import functools
import itertools
import os
import re
from typing import Any

from syntony_job_page import spelled, swallow  # type: ignore[import-not-found]

_MEETING = re.compile(r"[!-~]{1,43}")


class Meeting:
    """How a process finds the others: it comes to the store (`rendezvous`), and forms the first
    group with those that came (`init_process_group`)."""

    def __init__(self, hook, number):
        self._hook, self._numbers = hook, (number("rendezvous"), number("init_process_group"))
        self._comms: Any = {}
        self._seq = 0
        self._open: Any = None
        self._new = number("new_group")
        self.groups: Any = {}
        """Ranks of a group → the default group, the communicator in which they form it, numbers."""

    def wrap(self, module):
        if hasattr(module, "new_group"):
            module.new_group = self._grouped(module.new_group)
        if hasattr(module, "init_process_group"):
            module.init_process_group = self._formed(module.init_process_group)
        if hasattr(module, "rendezvous"):
            module.rendezvous = self._met(module.rendezvous)

    def _formed(self, function):
        names = "backend", "init_method", "timeout", "world_size", "rank", "store"

        @functools.wraps(function)
        def init_process_group(*args, **kwargs):
            try:
                self._begin({**dict(zip(names, args)), **kwargs})  # noqa: B905 - Python 3.8
            except Exception as error:
                self._open = None
                swallow(error)
            try:
                result = function(*args, **kwargs)
            except BaseException:
                self._hook.failed(self._open)
                raise
            try:
                self._end()
                self._hook._placed()
            except Exception as error:
                swallow(error)
            return result

        return init_process_group

    def _met(self, function):
        @functools.wraps(function)
        def rendezvous(*args, **kwargs):
            for each in function(*args, **kwargs):
                try:
                    self._come()
                except Exception as error:
                    swallow(error)
                yield each

        return rendezvous

    def _grouped(self, function):
        """With gloo the ranks of the group wait for each other there; others have no part in it."""

        @functools.wraps(function)
        def new_group(*args, **kwargs):
            opened = None
            try:
                opened = self._begin_group(args[0] if args else kwargs.get("ranks"))
            except Exception as error:  # the program's own errors are the program's
                swallow(error)
            try:
                group = function(*args, **kwargs)
            except BaseException:
                self._hook.failed(opened)
                raise
            if opened is not None:
                self._hook.page.end(*opened)
            return group

        return new_group

    def _begin_group(self, ranks):
        hook = self._hook
        page, world = hook._ready(), hook._default_group()
        if page is None or hasattr(ranks, "__next__"):  # an iterator can be read only once
            return None
        members = range(hook._c10d.get_world_size()) if ranks is None else sorted(map(int, ranks))
        if hook._c10d.get_rank() not in members:
            return None
        with hook._lock:
            known = self.groups.get(tuple(members))
            if known is None:
                comm = hook._named(page, "new_group." + spelled(members), len(members))
                known = self.groups[tuple(members)] = world, comm, itertools.count()
        if known[1] is None:
            return None
        opened = known[1], self._new, next(known[2])
        page.begin(*opened, 0)
        return opened

    def _begin(self, given):
        method = given.get("init_method") or "env://"
        asked = dict(re.findall(r"[?&](rank|world_size)=(\d+)", method))
        rank, ranks = (
            _first(given.get(name), asked.get(name), os.environ.get(variable))
            for name, variable in (("rank", "RANK"), ("world_size", "WORLD_SIZE"))
        )
        page = self._hook._ready((rank, ranks)) if 0 <= rank < ranks else None
        self._open = None
        self._seq += self._seq % 2  # the attempt before ended before the store had answered
        if page is None:
            return
        store = given.get("store") is not None
        name = "rendezvous " + ("of the program" if store else _address(method))
        if name not in self._comms:
            with self._hook._lock:
                self._comms[name] = self._hook._named(page, name, ranks)
        if self._comms[name] is not None:
            self._put(self._comms[name], 0)
            if store:
                self._come()

    def _put(self, comm, part):
        self._open = comm, self._numbers[part], self._seq
        self._seq += 1
        self._hook.page.begin(*self._open, 0)

    def _come(self):
        if self._open is not None and self._open[1] == self._numbers[0]:
            comm = self._open[0]
            self._end()
            self._put(comm, 1)

    def _end(self):
        if self._open is not None:
            self._hook.page.end(*self._open)
            self._open = None


def _first(*values):
    """The first that is a number from 0 on; -1: none is."""
    known = (int(each) for each in values if each is not None and str(each).isdigit())
    return next(known, -1)


def _address(method):
    """Where the ranks of a job meet, as a name."""
    if method.startswith("env:"):
        found = "{}:{}".format(os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT"))
    else:
        found = method.split("://", 1)[-1].split("?")[0]
    found = re.sub(r"[^!-~]", "?", found)
    return found if _MEETING.fullmatch(found) else found[-43:]
