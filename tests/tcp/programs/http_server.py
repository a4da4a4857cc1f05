"""python -m http.server's own classes, with threads: prints its port, serves until killed."""

from __future__ import annotations

import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

with ThreadingHTTPServer((sys.argv[1], 0), SimpleHTTPRequestHandler) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
