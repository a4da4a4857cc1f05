"""Reports collectives and steps of a PyTorch process, with their times, to the host's agent.

Standard library only, Python 3.8 and later: it runs in the job's own interpreter, which may not
have Syntony installed. Functions of `torch.distributed` are wrapped when a program imports it.
Their calls are written as fixed-size records into a ring in memory that the agent reads
(docs/reference/local-socket.md): nothing here waits for the agent, and no error here reaches the
program. A full ring loses its oldest records, which the agent counts.
"""

import collections
import functools
import itertools
import os
import sys
import threading
import time
import weakref
from typing import Any

from syntony_job_groups import Meeting  # type: ignore[import-not-found]
from syntony_job_page import (  # type: ignore[import-not-found]
    BEGIN,
    COMMS,
    END,
    SLOTS,
    STEP,
    Page,
    spelled,
    swallow,
)
from syntony_job_peers import (  # type: ignore[import-not-found]
    BETWEEN,
    Functional,
    Pairs,
    weigh,
)

OPERATIONS = (
    # Function, operation, place and name of the argument that it sends, place of the group.
    ("all_reduce", "all_reduce", 0, "tensor", 2),
    ("broadcast", "broadcast", 0, "tensor", 2),
    ("reduce", "reduce", 0, "tensor", 3),
    ("all_gather", "all_gather", 1, "tensor", 2),
    ("all_gather_into_tensor", "all_gather", 0, "output_tensor", 2),
    ("gather", "gather", 0, "tensor", 3),
    ("scatter", "scatter", 0, "tensor", 3),
    ("reduce_scatter", "reduce_scatter", 1, "input_list", 3),
    ("reduce_scatter_tensor", "reduce_scatter", 1, "input", 3),
    ("all_to_all", "all_to_all", 1, "input_tensor_list", 2),
    ("all_to_all_single", "all_to_all", 1, "input", 4),
    ("barrier", "barrier", -1, "", 0),
    ("monitored_barrier", "barrier", -1, "", 0),
)
RENAMED = {"all_gather_into_tensor": "all_gather_single",
           "reduce_scatter_tensor": "reduce_scatter_single"}  # fmt: skip
"""Since torch 2.13, in which functions of the old names call those of the new ones."""
NAMES = (*dict.fromkeys(row[1] for row in OPERATIONS), *(name for name, _ in BETWEEN),
         "rendezvous", "init_process_group", "new_group")  # fmt: skip
"""Operations by their number in records."""
ASK_NS = 50_000_000
"""Minimum interval of backward passes for which DDP is queried: a query takes 10 to 60 µs, more
than everything else that is done in a step."""
WARM_STEPS, MOST_PERIOD = 32, 64
"""Steps until the duration of one is known, and the maximum distance of queried passes."""
STEPPED_NS = 1_000_000
"""The system's clock was set if its offset changed by more between two steps."""
REPORTING = "SYNTONY_REPORTING"
"""Environment variable: number of the process that reports. One that it starts inherits it."""


class Hook:
    """State of this process. `page` is None until there is something to report, and in processes
    that a rank forked or started: groups that they form have the names of the rank's own."""

    def __init__(self, path):
        self._path = path
        self.page: Any = None
        self._lock = threading.RLock()
        """A signal handler may call what the program was just calling."""
        self._groups: Any = {}
        self._known: Any = ()
        """What knows groups, by any key: the first of each value."""
        self._names: Any = collections.Counter()
        self._models: Any = weakref.WeakKeyDictionary()
        """`DistributedDataParallel` → its communicator, newest backward pass and when that
        began."""
        self._reducing: Any = {}
        """Communicator → a weak reference to the `DistributedDataParallel` that has it."""
        self._period = 1
        """One in this many passes is queried."""
        self._warm_ns = 0
        self._ahead_ns = 0
        self._c10d: Any = None
        self._optimizer: Any = None
        self._others: Any = set()
        """Optimizers that have stepped once since that one did."""
        self._step = 0
        self._stepped_ns = 0
        self._data_ns = 0
        self._of_rank = os.environ.get(REPORTING, str(os.getpid())) != str(os.getpid())
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self):
        self._of_rank = self._of_rank or self.page is not None
        self.page = None
        self._lock = threading.RLock()  # another thread may have held it

    def _ready(self, place=None):
        """The page, made on first use. `place`: rank and ranks, where torch does not know them
        yet."""
        if self.page is None and not self._of_rank:
            with self._lock:
                if self.page is None:
                    page = Page(self._path)
                    page.place(*(place or (self._c10d.get_rank(), self._c10d.get_world_size())))
                    page.start()
                    os.environ[REPORTING] = str(os.getpid())
                    self.page = page
        return self.page

    def _placed(self):
        """The default group is there: it knows rank and ranks."""
        if self.page is not None:
            self.page.place(self._c10d.get_rank(), self._c10d.get_world_size())

    # --- torch.distributed ---

    def wrap_collectives(self, module):
        self._c10d = module
        for old, name, place, payload, group in OPERATIONS:
            function = RENAMED.get(old, old)
            function = function if hasattr(module, function) else old
            found = getattr(module, function, None)
            if found is not None:
                number = NAMES.index(name)
                setattr(module, function, self._wrapped(found, number, place, payload, group))
        pairs, meeting = Pairs(self), Meeting(self, NAMES.index)
        pairs.wrap(module, NAMES.index)
        meeting.wrap(module)
        self._known = self._groups, pairs.known, meeting.groups
        if hasattr(module, "destroy_process_group"):
            module.destroy_process_group = self._destroying(module.destroy_process_group)

    def wrap_functional(self, module):  # noqa: ARG002 - importing it declares them
        Functional(self).wrap(sys.modules["torch"].ops._c10d_functional, NAMES.index)

    def _destroying(self, function):
        """A group that is known here would keep its threads and connections."""

        @functools.wraps(function)
        def destroy_process_group(group=None, *args, **kwargs):
            try:
                whole = group is None or group is self._default_group()
            except Exception as error:  # there is none
                whole = True
                swallow(error)
            result = function(group, *args, **kwargs)
            try:
                self._forget(group, whole)
            except Exception as error:
                swallow(error)
            return result

        return destroy_process_group

    def _forget(self, group, whole):
        """Groups were destroyed, or models are gone: others may have their places in the page."""
        unused = set()
        for known in self._known:
            for key, each in list(known.items()):
                if whole or each[0] is group:
                    known.pop(key, None)
                    unused.add(each[1])
        for ddp in [each for each in self._models if whole or each.process_group is group]:
            del self._models[ddp]
        for comm, kept in list(self._reducing.items()):
            ddp = kept()
            if ddp is None or ddp not in self._models:
                self._reducing.pop(comm, None)
                unused.add(comm)
        self.page.free.extend(comm + COMMS for comm in sorted(unused - {None}))

    def _wrapped(self, function, operation, place, payload, group_place):
        @functools.wraps(function)
        def collective(*args, **kwargs):
            opened = None
            try:
                what = args[place] if len(args) > place >= 0 else kwargs.get(payload)
                group = args[group_place] if len(args) > group_place else kwargs.get("group")
                opened = self._begin(operation, what, group)
            except Exception as error:  # the program's own errors are the program's
                swallow(error)
            try:
                result = function(*args, **kwargs)
            except BaseException:
                self.failed(opened)
                raise
            if opened is not None:
                try:
                    self._returned(opened, result)
                except Exception as error:
                    swallow(error)
            return result

        return collective

    def failed(self, *opened):
        """Operations raised; None: one that is not recorded."""
        for each in opened if self.page is not None else ():
            if each is not None:
                self.page.fail(each)

    def _begin(self, operation, what, group):
        on_gpu, size = weigh(what)
        if on_gpu is None:
            return None
        if group is None:
            group = self._default_group()
        known = self._groups.get(id(group)) or self._group(group)
        if known is None:
            return None
        _, comm, seqs = known
        seq = next(seqs)
        self.page.begin(comm, operation, seq, size)
        return comm, operation, seq, on_gpu

    def _resolve(self, name):
        """The group of a name."""
        return self._c10d._resolve_process_group(name)

    def _default_group(self):
        """The default group, from where torch keeps it: torch's function calls four others, cold in
        each step."""
        group = getattr(getattr(self._c10d, "_world", None), "_default_pg", None)
        return self._c10d._get_default_group() if group is None else group

    def _group(self, group):
        """The communicator of a group that is not known yet."""
        page = self._ready()
        if page is None or self._c10d.get_rank(group) < 0:
            return None
        with self._lock:
            known = self._groups.get(id(group))
            comm = self._new_comm(page, group) if known is None else None
            if comm is not None:
                known = self._groups.setdefault(id(group), (group, comm, itertools.count()))
        return known

    def _new_comm(self, page, group, prefix=""):
        ranks = list(self._c10d.get_process_group_ranks(group))
        name = "{}{}.{}".format(prefix, getattr(group, "group_name", ""), spelled(ranks))
        return self._named(page, name, len(ranks))

    def _named(self, page, text, ranks):
        """The number of a new communicator; None: there is no room."""
        if not page.free:
            self._forget(None, whole=False)
        if not page.free:
            page.lose()
            return None
        self._names[text] += 1
        if self._names[text] > 1:  # made again after it was destroyed: it counts from 0
            text += "#{}".format(self._names[text])
        return page.name(text, ranks)

    def _returned(self, opened, result):
        comm, operation, seq, on_gpu = opened
        if result is not None and hasattr(result, "is_completed"):
            self.page.watch(comm, operation, seq, result.is_completed)
        elif on_gpu:
            event = sys.modules["torch"].cuda.Event()
            event.record()
            self.page.watch(comm, operation, seq, event.query)
        else:
            self.page.end(comm, operation, seq)

    # --- DistributedDataParallel ---

    def wrap_ddp(self, module):
        """Its reductions start in C++ and their begin and end are not visible. For CPUs it keeps
        the time of each backward pass's first and last. On GPUs it would wait for the device."""
        kind = module.DistributedDataParallel
        function = kind.__init__

        @functools.wraps(function)
        def init(ddp, *args, **kwargs):
            function(ddp, *args, **kwargs)
            try:
                if ddp.device_type == "cpu":
                    ddp._set_ddp_runtime_logging_sample_rate(self._period)
                    self._models[ddp] = None, 0, 0
            except Exception as error:  # an unknown version of torch
                swallow(error)

        kind.__init__ = init

    def _sample(self, now_ns):
        """Once steps are known to be short, query one pass in this many. Ranks that choose another
        number, because their steps are at the limit, are in a communicator with another name."""
        if self._step == WARM_STEPS // 2:
            self._warm_ns = now_ns
        if self._step != WARM_STEPS:
            return
        period, took_ns = 1, (now_ns - self._warm_ns) / (WARM_STEPS - WARM_STEPS // 2)
        while period < MOST_PERIOD and period * took_ns < ASK_NS:
            period *= 2
        if period > 1:
            self._period = period
            for ddp, (_, seq, begun_ns) in list(self._models.items()):
                ddp._set_ddp_runtime_logging_sample_rate(period)
                self._models[ddp] = None, seq, begun_ns

    def _reduced(self, page, now_ns):
        """Record backward passes that DDP has timed since the last call; it keeps the newest one,
        and reports it when the next timed one begins."""
        ahead_ns = _system_ahead_ns()
        steady = abs(ahead_ns - self._ahead_ns) < STEPPED_NS
        self._ahead_ns = ahead_ns
        for ddp, (known_comm, before, before_ns) in list(self._models.items()):
            reported = ddp.logger._get_ddp_logging_data().ints_map
            seq = reported.get("iteration", 0)
            if seq <= before:
                continue
            comm = known_comm
            if comm is None:
                prefix = "ddp." if self._period == 1 else "ddp.1in{}.".format(self._period)
                with self._lock:
                    comm = self._new_comm(page, ddp.process_group, prefix)
                if comm is not None:
                    self._reducing[comm] = weakref.ref(ddp)
            begin_ns, end_ns = (
                reported.get("backward_comm_time_" + edge, 0) for edge in ("start", "end")
            )
            self._models[ddp] = comm, seq, begin_ns
            if 0 < begin_ns == before_ns:
                continue  # the previous one again
            known = comm is not None and steady and 0 < begin_ns <= end_ns <= now_ns + ahead_ns
            for _ in range(min((seq - before) // self._period - known, SLOTS)):
                page.lose()
            if known:
                size = reported.get("total_parameter_size_bytes", 0)
                page.put(BEGIN, 0, comm, seq, size, begin_ns - ahead_ns, 0, 0)
                page.put(END, 0, comm, seq, 0, end_ns - ahead_ns, 0, 0)

    # --- GPUs ---

    def wrap_graphs(self, module):
        graph = module.CUDAGraph
        for name, change in (("capture_begin", 1), ("capture_end", -1)):
            setattr(graph, name, self._capturing(getattr(graph, name), change))

    def _capturing(self, function, change):
        @functools.wraps(function)
        def capture(*args, **kwargs):
            page = self.page
            if page is not None and change > 0:
                with page.asking:
                    page.captures += 1
            try:
                return function(*args, **kwargs)
            finally:
                if page is not None and change < 0:
                    page.captures = max(0, page.captures - 1)

        return capture

    # --- steps ---

    def wrap_optimizer(self, module):
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if register is not None:  # torch 2.0
            register(self._optimized)

    def _optimized(self, optimizer, _args, _kwargs):
        """Never raises, because it runs in the program's step."""
        try:
            known = self._optimizer == id(optimizer) and not self._others
            if not known and (self._c10d is None or not self._counts(id(optimizer))):
                return
            page = self.page or (self._c10d.is_initialized() and self._ready())
            if not page:
                return
            page.stepping = threading.get_ident()
            if page.failed:
                page.go_on()
            now_ns = time.monotonic_ns()
            if self._stepped_ns:
                page.put(STEP, 0, 0, self._step, 0, self._stepped_ns, now_ns, self._data_ns)
            self._step = step = self._step + 1
            self._stepped_ns, self._data_ns = now_ns, 0
            if step <= WARM_STEPS:
                self._sample(now_ns)
            if not step % self._period and self._models:
                self._reduced(page, now_ns)
        except Exception as error:
            swallow(error)

    def _counts(self, optimizer):
        """Whether its steps are those of the program: of several the first one's, until another
        steps twice without it."""
        if self._optimizer not in (None, optimizer) and optimizer not in self._others:
            self._others.add(optimizer)
            return False
        self._optimizer = optimizer
        self._others.clear()
        return True

    def wrap_loader(self, module):
        """Another thread may wait for data all the time, to have them ahead of the step."""
        iterator = module._BaseDataLoaderIter
        function = iterator.__next__

        @functools.wraps(function)
        def following(*args, **kwargs):
            begin_ns = time.monotonic_ns()
            try:
                return function(*args, **kwargs)
            finally:
                if self.page is not None and self.page.stepping == threading.get_ident():
                    self._data_ns += time.monotonic_ns() - begin_ns

        iterator.__next__ = following


def install():
    """Wrap torch as soon as it is imported."""
    from syntony_job_imports import Finder  # type: ignore[import-not-found]

    hook = Hook(os.environ["SYNTONY_AGENT"] + "-ops")
    sys.meta_path.insert(
        0,
        Finder(
            {
                "torch.distributed.distributed_c10d": hook.wrap_collectives,
                "torch.distributed._functional_collectives": hook.wrap_functional,
                "torch.nn.parallel.distributed": hook.wrap_ddp,
                "torch.cuda.graphs": hook.wrap_graphs,
                "torch.optim.optimizer": hook.wrap_optimizer,
                "torch.utils.data.dataloader": hook.wrap_loader,
            }
        ),
    )
    return hook


def _system_ahead_ns():
    """Offset from CLOCK_MONOTONIC, by the fastest of three readings."""
    readings = []
    for _ in range(3):
        before_ns = time.monotonic_ns()
        system_ns = time.time_ns()  # noqa: TID251 - DDP's instants are of that clock
        took_ns = time.monotonic_ns() - before_ns
        readings.append((took_ns, system_ns - before_ns - took_ns // 2))
    return min(readings)[1]
