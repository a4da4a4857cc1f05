"""Records what `torch.distributed` does outside of calls of its collectives: sends and receives,
and functional collectives (DTensor, compiled graphs); see `syntony_job_hook`."""

import functools
import sys
import threading
import time
import weakref
from typing import Any

from syntony_job_page import BEGIN, WAIT, swallow  # type: ignore[import-not-found]

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


class Pairs:
    """Sends and receives. Those from one rank to another are the operations of a communicator of
    two, which both count: they match in the order in which they are called."""

    def __init__(self, hook):
        self._hook = hook
        self.known: Any = {}
        """Group and other rank as called → group, communicator, numbers of its operations."""
        self._recv = 0
        self._works: Any = {}
        """Transfers that were begun and not waited for, by the number of torch's object."""
        self._thread = threading.local()
        """`within`: the operations of this thread's batch; False: another function of these is
        recorded, which calls this one."""

    def wrap(self, module, number):
        """Args: `number` gives an operation's."""
        self._recv = number("recv")
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
            found: Any = works.pop(id(work), None) if works else None
            if page is None or found is None or found[0]() is not work:
                return function(work, *args, **kwargs)
            began_ns = time.monotonic_ns()
            for comm, operation, seq, _ in found[1]:
                page.put(WAIT, operation, comm, seq, 0, began_ns, 0, 0)
            result = function(work, *args, **kwargs)
            for comm, operation, seq, on_gpu in found[1]:
                if not on_gpu:  # there only the stream waits
                    page.end(comm, operation, seq)
            if found[2] is not None:
                try:
                    size, group = found[2]
                    self._came(size, group, began_ns, None, work._source_rank())
                except Exception as error:
                    swallow(error)
            return result

        return wait

    def _returned(self, opened, work, of_any=None):
        """Args: `of_any`: what is known of a receive from any rank, for `_came`."""
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
            let_go = functools.partial(_let_go, self._works, id(work))
            self._works[id(work)] = weakref.ref(work, let_go), [opened], of_any

    def _wrapped(self, function, operation, way):
        of_thread = self._thread

        @functools.wraps(function)
        def between(tensor, *args, **kwargs):
            within = getattr(of_thread, "within", None)
            if within is False:
                return function(tensor, *args, **kwargs)
            where: Any = None
            opened, began_ns = None, time.monotonic_ns()
            try:
                where = self._where(way, args, kwargs)
                opened = self._begin(operation, way, tensor, where)
            except Exception as error:  # the program's own errors are the program's
                swallow(error)
            if within is None:
                of_thread.within = False
            try:
                result = function(tensor, *args, **kwargs)
            except BaseException:
                self._hook.failed(opened)
                raise
            finally:
                of_thread.within = within
            if within is not None:
                within.append(opened)
            elif opened is not None:
                try:
                    self._ended(opened, result, tensor, where, began_ns)
                except Exception as error:
                    swallow(error)
            return result

        return between

    def _ended(self, opened, result, tensor, where, began_ns):
        if where[:2] != (None, None):
            self._returned(opened, result)
        elif type(result) is int:
            self._hook.page.end(*opened[:3])
            self._came(weigh(tensor)[1], where[2], began_ns, result)
        else:
            self._returned(opened, result, (weigh(tensor)[1], where[2]))

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
            except BaseException:
                self._hook.failed(*opened)
                raise
            finally:
                self._thread.within = None
            try:
                for place, each in enumerate(opened):
                    if each is not None:  # NCCL has one end for all
                        work = works[min(place, len(works) - 1)] if works else None
                        self._returned(each, work)
            except Exception as error:
                swallow(error)
            return works

        return batch

    def _begin(self, operation, way, tensor, where):
        on_gpu, size = weigh(tensor)
        comm, seq = self._next(way, *where) if on_gpu is not None else (None, 0)
        if comm is None:
            return None
        self._hook.page.begin(comm, operation, seq, size)
        return comm, operation, seq, on_gpu

    def _next(self, way, peer, place, group):
        """The communicator, and the number of its next operation; None: it is not recorded."""
        hook = self._hook
        if group is None:
            group = hook._default_group()
        key = id(group), way, peer, place
        known = self.known.get(key)
        if known is None:
            if peer is None and place is not None:
                peer = hook._c10d.get_global_rank(group, place)
            known = self._pair(key, group, way, peer)
        return known[1], next(known[2])

    def _pair(self, key, group, way, peer):
        """`peer` is None: a receive from any rank."""
        hook = self._hook
        page = hook._ready()
        if page is None or hook._c10d.get_rank(group) < 0:
            return None, None, iter(int, 1)
        rank = hook._c10d.get_rank()
        other = "*" if peer is None else peer
        ends = (rank, other) if way == "dst" else (other, rank)
        with hook._lock:
            plain = id(group), ends
            known = self.known.get(plain)
            if known is None:
                text = "{}.p2p {}>{}".format(getattr(group, "group_name", ""), *ends)
                comm = None
                if ends[0] != ends[1]:
                    used = {each[1] for each in self.known.values()} - {None}
                    room = len(used) < MOST_PAIRS
                    ranks = 2 if peer is not None else hook._c10d.get_world_size(group)
                    comm = hook._named(page, text, ranks) if room else page.lose()
                known = self.known[plain] = group, comm, iter(range(1 << 62))
            self.known[key] = known
        return known

    def _came(self, size, group, began_ns, peer, place=None):
        """The rank from which a receive from any rank came: it is the next one of that direction.
        Their order is known only then."""
        comm, seq = self._next("src", peer, place, group)
        if comm is not None:
            self._hook.page.put(BEGIN, self._recv, comm, seq, size, began_ns, 0, 0)
            self._hook.page.end(comm, self._recv, seq)


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
            except Exception as error:
                swallow(error)
        self._thread.inside = True
        try:
            result = function(*args, **kwargs)
        except BaseException:
            self._hook.failed(opened)
            raise
        finally:
            if outermost:
                self._thread.inside = False
        if opened is not None:
            try:
                self._keep(opened, result)
            except Exception as error:
                self._returned(opened)
                swallow(error)
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
        except Exception as error:  # it has no address while a graph is compiled
            swallow(error)
        return result

    def _end(self, address):
        found = self._unwaited.pop(address, None)
        if found is not None:
            self._returned(found[0])

    def _returned(self, opened):
        try:
            self._hook._returned(opened, None)
        except Exception as error:  # in a forked child, or the GPU failed
            swallow(error)


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


def _over(kept):
    """Whether a transfer has ended, or the program has let go of it: gloo does not say that one has
    ended that nobody waits for, and its data are not to be kept in memory."""
    work = kept()
    return work is None or work.is_completed()


def _let_go(works, key, reference):
    """Nobody waited for a transfer; what is known of it keeps its group."""
    if works.get(key, (None,))[0] is reference:
        works.pop(key, None)


def weigh(what):
    """Whether a tensor, or a list of them, is on a GPU, and its bytes; None: a graph is captured,
    and the operation runs when it is replayed."""
    if isinstance(what, (list, tuple)):
        weights = [weigh(each) for each in what]
        return weights[0][0] if weights else False, sum(size for _, size in weights)
    on_gpu = getattr(what, "is_cuda", False)
    if on_gpu and sys.modules["torch"].cuda.is_current_stream_capturing():
        return None, 0
    size = getattr(what, "nbytes", None)  # torch 2.1
    if size is None:
        size = 0 if what is None else what.numel() * what.element_size()
    return on_gpu, size
