"""Path control of one host: receives events of the host, lets `syntony.traffic` decide, acts within
milliseconds."""
