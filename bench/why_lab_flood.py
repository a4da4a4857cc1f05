"""why_lab_flood.py LOCAL REMOTE BPS PORT…: UDP from these ports in turns, for a minute at most."""

from __future__ import annotations

import socket
import sys
import time

SIZE, HEADERS = 1400, 42
DPORT = 9
BURST = 8
END_S = 60.0
local, remote, bps = sys.argv[1], sys.argv[2], int(sys.argv[3])
sockets = []
for port in sys.argv[4:]:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.bind((local, int(port)))
    sender.setblocking(False)
    sockets.append(sender)
pause_s = BURST * (SIZE + HEADERS) * 8 / bps
payload, due_s = bytes(SIZE), time.monotonic()
end_s = due_s + END_S
while due_s < end_s:
    for turn in range(BURST):
        try:
            sockets[turn % len(sockets)].sendto(payload, (remote, DPORT))
        except OSError:  # its queue is full, or nobody listens
            continue
    sockets.append(sockets.pop(0))
    due_s = max(due_s + pause_s, time.monotonic() - 0.05)
    time.sleep(max(0.0, due_s - time.monotonic()))
