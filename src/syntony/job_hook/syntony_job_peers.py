"""Records what `torch.distributed` does outside of calls of its collectives: sends and receives,
functional collectives (DTensor, compiled graphs), and how ranks find each other; see
`syntony_job_hook`."""

import functools
import os
import re
import threading
import time
import weakref
from typing import Any

from syntony_job_page import BEGIN, WAIT  # type: ignore[import-not-found]

BETWEEN = (("send", "dst"), ("isend", "dst"), ("recv", "src"), ("irecv", "src"))
"""Functions between two ranks, and the argument that names the other one."""
FUNCTIONAL = (
    ("all_reduce", "all_reduce"), ("all_reduce_", "all_reduce"),
    ("all_reduce_coalesced", "all_reduce"), ("all_reduce_coalesced_", "all_reduce"),
    ("all_gather_into_tensor", "all_gather"), ("all_gather_into_tensor_out", "all_gather"),
    ("all_gather_into_tensor_coalesced", "all_gather"),
    ("reduce_scatter_tensor", "reduce_scatter"), ("reduce_scatter_tensor_out", "reduce_scatter"),
    ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
    ("all_to_all_single", "all_to_all"), ("broadcast", "broadcast"), ("broadcast_", "broadcast"),
)  # fmt: skip
"""Functions of `torch.ops._c10d_functional`, and their operations."""
TRACED = ("FakeTensor", "FunctionalTensor")
"""Tensors of a graph that is being compiled."""
MOST_UNWAITED = 256
"""Maximum functional collectives whose end is waited for, and transfers that may be waited for."""
MOST_PAIRS = 32
"""Maximum directions between two ranks that are recorded: half of all communicators, so that
collectives have room however many ranks send to each other."""
_MEETING = re.compile(r"[!-~]{1,43}")


class Pairs:
    """Sends and receives. Those from one rank to another are the operations of a communicator of
    two, which both count: they match in the order in which they are called."""

    def __init__(self, hook):
        self._hook = hook
        self._pairs: Any = {}
        self._directions = 0
        """Those between two ranks so far."""
        self._works: Any = {}
        """Transfers that were begun and not waited for, by the number of torch's object."""
        self._thread = threading.local()
        """`within`: the operations of this thread's batch; False: another function of these is
        recorded, which calls this one."""

    def wrap(self, module, number):
        """Args: `number` gives an operation's."""
        for name, way in BETWEEN:
            found = getattr(module, name, None)
            if found is not None:
                setattr(module, name, self._wrapped(found, number(name), way))
        if hasattr(module, "batch_isend_irecv"):
            module.batch_isend_irecv = self._batched(module.batch_isend_irecv)
        if hasattr(module, "Work"):
            module.Work.wait = self._waited(module.Work.wait)

    def _waited(self, function):
        """A rank that has begun a transfer may compute meanwhile: it says when it waits."""
        works = self._works

        @functools.wraps(function)
        def wait(work, *args, **kwargs):
            page = self._hook.page
            found = works.pop(id(work), None) if works else None
            if page is None or found is None or found[0]() is not work:
                return function(work, *args, **kwargs)
            for comm, operation, seq, _ in found[1]:
                page.put(WAIT, operation, comm, seq, 0, time.monotonic_ns(), 0, 0)
            result = function(work, *args, **kwargs)
            for comm, operation, seq, on_gpu in found[1]:
                if not on_gpu:  # there only the stream waits
                    page.end(comm, operation, seq)
            return result

        return wait

    def _returned(self, opened, work):
        if not hasattr(work, "is_completed"):
            self._hook._returned(opened, work)
        else:
            comm, operation, seq, on_gpu = opened
            ended = work.is_completed if on_gpu else functools.partial(_over, weakref.ref(work))
            self._hook.page.watch(comm, operation, seq, ended)
            known = self._works.get(id(work))
            if known is not None and known[0]() is work:
                known[1].append(opened)
                return
            while len(self._works) >= MOST_UNWAITED:
                self._works.pop(next(iter(self._works)), None)
            self._works[id(work)] = weakref.ref(work), [opened]

    def _wrapped(self, function, operation, way):
        of_thread = self._thread

        @functools.wraps(function)
        def between(tensor, *args, **kwargs):
            within = getattr(of_thread, "within", None)
            if within is False:
                return function(tensor, *args, **kwargs)
            opened, began_ns = None, time.monotonic_ns()
            try:
                opened = self._begin(operation, way, tensor, self._where(way, args, kwargs))
            except Exception:  # the program's own errors are the program's
                pass
            if within is None:
                of_thread.within = False
            try:
                result = function(tensor, *args, **kwargs)
            finally:
                of_thread.within = within
            try:
                if within is not None:
                    within.append(opened)
                elif opened is not None:
                    self._returned(opened, result)
                elif way == "src":
                    self._from_any(operation, tensor, self._where(way, args, kwargs), began_ns,
                                   result)  # fmt: skip
            except Exception:
                pass
            return result

        return between

    @staticmethod
    def _where(way, args, kwargs):
        """The other rank in the job, in the group, and the group; None: not given."""
        peer = args[0] if args else kwargs.get(way)
        group = args[1] if len(args) > 1 else kwargs.get("group")
        return peer, args[3] if len(args) > 3 else kwargs.get("group_" + way), group

    def _batched(self, function):
        @functools.wraps(function)
        def batch(*args, **kwargs):
            opened: Any = []
            self._thread.within = opened
            try:
                works = function(*args, **kwargs)
            finally:
                self._thread.within = None
            try:
                for place, each in enumerate(opened):
                    if each is not None:  # NCCL has one end for all
                        work = works[min(place, len(works) - 1)] if works else None
                        self._returned(each, work)
            except Exception:
                pass
            return works

        return batch

    def _begin(self, operation, way, tensor, where):
        on_gpu = self._hook._on_gpu(tensor)
        comm, seq = self._next(way, *where) if on_gpu is not None else (None, 0)
        if comm is None:
            return None
        self._hook.page.put(BEGIN, operation, comm, seq, _size(tensor), time.monotonic_ns(), 0, 0)
        return comm, operation, seq, on_gpu

    def _next(self, way, peer, place, group):
        """The communicator, and the number of its next operation; None: it is not recorded."""
        hook = self._hook
        if group is None:
            group = hook._default_group()
        key = id(group), way, peer, place
        known = self._pairs.get(key)
        if known is None:
            if peer is None:
                if place is None:
                    return None, 0  # from any rank
                peer = hook._c10d.get_global_rank(group, place)
            known = self._pair(key, group, way, peer)
        return known[1], next(known[2])

    def _pair(self, key, group, way, peer):
        hook = self._hook
        page = hook._ready()
        if page is None or hook._c10d.get_rank(group) < 0:
            return None, None, iter(int, 1)
        rank = hook._c10d.get_rank()
        ends = (rank, peer) if way == "dst" else (peer, rank)
        with hook._lock:
            plain = id(group), ends
            known = self._pairs.get(plain)
            if known is None:
                text = "{}.p2p {}>{}".format(getattr(group, "group_name", ""), *ends)
                comm = None
                if ends[0] != ends[1]:
                    self._directions += 1
                    room = self._directions <= MOST_PAIRS
                    comm = hook._named(page, text, 2) if room else page.lose()
                known = self._pairs[plain] = group, comm, iter(range(1 << 62))
            self._pairs[key] = known
        return known

    def _from_any(self, operation, tensor, where, began_ns, rank):
        """A receive from any rank, of which only the end says from which."""
        if where[:2] != (None, None):
            return
        if type(rank) is int and rank >= 0:
            comm, seq = self._next("src", rank, None, where[2])
            if comm is not None:
                self._hook.page.put(BEGIN, operation, comm, seq, _size(tensor), began_ns, 0, 0)
                self._hook.page.end(comm, operation, seq)
        elif self._hook.page is not None:
            self._hook.page.lose()


class Functional:
    """Collectives that are called as operators, by DTensor and by compiled graphs. Such an
    operation ends for its rank when it has waited for the result."""

    def __init__(self, hook):
        self._hook = hook
        self._unwaited: Any = {}
        """Address of a result → the operation."""
        self._thread = threading.local()

    def wrap(self, operators, number):
        """Args: `operators` is `torch.ops._c10d_functional`; `number` gives an operation's."""
        for name, operation in FUNCTIONAL:
            self._replace(operators, name, functools.partial(self._called, number(operation)))
        self._replace(operators, "wait_tensor", self._waited)

    @staticmethod
    def _replace(operators, name, around):
        """Calls of an operator come through its packet, those of graphs through its overload."""
        packet = getattr(operators, name, None)
        if packet is not None:
            for each in (packet, packet.default):
                each._op = Called(each._op, around)

    def _called(self, operation, function, args, kwargs):
        opened = None
        outermost = not getattr(self._thread, "inside", False)
        if outermost:  # a dispatch mode calls it again
            try:
                opened = self._begin(operation, args, kwargs)
            except Exception:
                pass
        self._thread.inside = True
        try:
            result = function(*args, **kwargs)
        finally:
            if outermost:
                self._thread.inside = False
        if opened is not None:
            try:
                self._keep(opened, result)
            except Exception:
                self._returned(opened)
        return result

    def _begin(self, operation, args, kwargs):
        what = args[0]
        first = what[0] if isinstance(what, (list, tuple)) else what
        if type(first).__name__ in TRACED or first.device.type == "meta":
            return None
        name = kwargs.get("group_name") or args[-1]
        group = self._hook._resolve(name)
        return self._hook._begin(operation, what, group)

    def _keep(self, opened, result):
        last = result[-1] if isinstance(result, (list, tuple)) else result
        address = last.data_ptr()
        self._end(address)
        if len(self._unwaited) >= MOST_UNWAITED:
            self._end(next(iter(self._unwaited)))
        forgotten = functools.partial(self._forgotten, address)
        self._unwaited[address] = opened, weakref.ref(last, forgotten)

    def _forgotten(self, address, reference):
        """Nobody waited for it."""
        found = self._unwaited.get(address)
        if found is not None and found[1] is reference:
            self._end(address)

    def _waited(self, function, args, kwargs):
        result = function(*args, **kwargs)
        try:
            if self._unwaited:
                self._end(args[0].data_ptr())
        except Exception:  # it has no address while a graph is compiled
            pass
        return result

    def _end(self, address):
        found = self._unwaited.pop(address, None)
        if found is not None:
            self._returned(found[0])

    def _returned(self, opened):
        try:
            self._hook._returned(opened, None)
        except Exception:  # in a forked child, or the GPU failed
            pass


class Called:
    """An operator's function, with ours around it. For tables of operators it is the same."""

    def __init__(self, function, around):
        self._function, self._around = function, around

    def __call__(self, *args, **kwargs):
        return self._around(self._function, args, kwargs)

    def __hash__(self):
        return hash(self._function)

    def __eq__(self, other):
        return self._function == getattr(other, "_function", other)

    def __getattr__(self, name):
        return getattr(self._function, name)


class Meeting:
    """How a process finds the others: it comes to the store (`rendezvous`), and forms the first
    group with those that came (`init_process_group`)."""

    def __init__(self, hook, number):
        self._hook, self._numbers = hook, (number("rendezvous"), number("init_process_group"))
        self._comms: Any = {}
        self._seq = 0
        self._open: Any = None

    def wrap(self, module):
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
            except Exception:
                self._open = None
            result = function(*args, **kwargs)
            try:
                self._end()
                self._hook._placed()
            except Exception:
                pass
            return result

        return init_process_group

    def _met(self, function):
        @functools.wraps(function)
        def rendezvous(*args, **kwargs):
            for each in function(*args, **kwargs):
                try:
                    self._come()
                except Exception:
                    pass
                yield each

        return rendezvous

    def _begin(self, given):
        method = given.get("init_method") or "env://"
        asked = dict(re.findall(r"[?&](rank|world_size)=(\d+)", method))
        rank, ranks = (
            _first(given.get(name), asked.get(name), os.environ.get(variable))
            for name, variable in (("rank", "RANK"), ("world_size", "WORLD_SIZE"))
        )
        page = self._hook._ready((rank, ranks)) if 0 <= rank < ranks else None
        self._open = None
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
        page = self._hook.page
        page.put(BEGIN, self._open[1], comm, self._open[2], 0, time.monotonic_ns(), 0, 0)

    def _come(self):
        if self._open is not None and self._open[1] == self._numbers[0]:
            comm = self._open[0]
            self._end()
            self._put(comm, 1)

    def _end(self):
        if self._open is not None:
            self._hook.page.end(*self._open)
            self._open = None


def _over(kept):
    """Whether a transfer has ended, or the program has let go of it: gloo does not say that one has
    ended that nobody waits for, and its data are not to be kept in memory."""
    work = kept()
    return work is None or work.is_completed()


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


def spelled(ranks):
    """A communicator's ranks, if they are evenly spaced; empty: they are not."""
    apart = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    even = apart > 0 and list(ranks) == list(range(ranks[0], ranks[-1] + 1, apart))
    return "{}-{}:{}".format(ranks[0], ranks[-1], apart) if even else ""


def _size(tensor):
    return tensor.numel() * tensor.element_size()
