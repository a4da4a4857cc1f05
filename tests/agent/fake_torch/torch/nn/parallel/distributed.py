import time
from types import SimpleNamespace

from torch.distributed.distributed_c10d import _get_default_group

TOOK_NS = 5_000_000


class Logger:
    def __init__(self) -> None:
        self.ints_map: dict[str, int] = {"total_parameter_size_bytes": 4_000}

    def _get_ddp_logging_data(self) -> SimpleNamespace:
        return SimpleNamespace(ints_map=dict(self.ints_map))


class DistributedDataParallel:
    def __init__(self, device_type: str) -> None:
        self.device_type = device_type
        self.process_group = _get_default_group()
        self.logger = Logger()
        self.rate = 100

    def _set_ddp_runtime_logging_sample_rate(self, rate: int) -> None:
        self.rate = rate

    def passes(self, number: int, timed: bool, took_ns: int = TOOK_NS) -> None:
        """A backward pass: the logger's newest."""
        time.sleep(took_ns / 1e9)
        end_ns = time.time_ns()  # noqa: TID251 - as DDP does
        self.logger.ints_map |= {"iteration": number}
        if timed:
            self.logger.ints_map |= {
                "backward_comm_time_start": end_ns - took_ns, "backward_comm_time_end": end_ns,
            }  # fmt: skip
        else:
            self.logger.ints_map["backward_comm_time_start"] = 0
