import time


class _BaseDataLoaderIter:
    def __next__(self) -> int:
        time.sleep(0.02)
        return 1
