"""gRPC with the fleet's settings; every module takes `grpc` from here.

gRPC for Python has no setting for the lowest TLS version. Its list of cipher suites concerns TLS
1.2 only, as in BoringSSL. A list of nothing but a pre-shared-key suite, for which no key is ever
given, leaves TLS 1.2 without a usable suite: every handshake, in either direction, is TLS 1.3 or
fails (docs/decisions/0174-enrol-with-join-tokens.md).
"""

from __future__ import annotations

import os

os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-CHACHA20-POLY1305"
# The core library writes every failed handshake to stderr by itself.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc

__all__ = ["grpc"]
