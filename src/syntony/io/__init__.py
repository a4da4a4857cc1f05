"""The only impure layer below the daemons: probe engine, clocks, timestamps, sockets, kernel
interfaces. It loads the native library; decisions are made in the pure rooms."""
