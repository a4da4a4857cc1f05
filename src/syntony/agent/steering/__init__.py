"""Path control of one host: hears the machine, asks `syntony.traffic`, acts within milliseconds."""
