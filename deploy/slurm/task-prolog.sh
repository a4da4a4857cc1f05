#!/bin/sh
# TaskProlog: every task's TCP connections can take several paths, and the agent knows them as the
# job slurm-ID; as if it were started by `syntony run`, without a change to the job.
# slurm.conf:  TaskProlog=/usr/share/syntony/slurm/task-prolog.sh
PATH=$PATH:/opt/syntony/bin:/usr/local/bin
syntony run --dry-run 2>/dev/null | sed 's/^/export /'
exit 0 # a host without Syntony runs jobs as before
