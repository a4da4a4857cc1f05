#!/bin/sh
# HealthCheckProgram: slurmd only runs it; draining is its own work, and it is killed after 60 s.
# slurm.conf:  HealthCheckProgram=/usr/share/syntony/slurm/healthcheck.sh
#              HealthCheckInterval=300   HealthCheckNodeState=CYCLE,ANY
# CYCLE spreads the nodes over the interval, so that a fleet is not audited in one burst. A node
# that we drained is resumed when nothing fails any more; others' drains stay. Options, from a
# script that calls this one, are those of `syntony audit run`: --check fe, for example.
set -u
# shellcheck source=deploy/slurm/node.sh
. "$(dirname "$0")/node.sh"
verdict=$(audit 40s "$@")
code=$?
case $code in
    0) resume ;;
    1) drain "$verdict" ;;
    3) # A pass needs evidence: of what the node was drained for.
       check=$(state | sed -n "s/.* $OURS [^ ]* \([a-z.-]*\): .*/\1/p")
       [ -z "$check" ] || ! audit 15s --check "$check" >/dev/null || resume
       echo "syntony audit: not everything could be measured: $verdict" >&2 ;;
    # Neither verdict: the audit itself could not run. Say so, drain nobody.
    *) echo "syntony audit could not run (exit status $code): $verdict" >&2 ;;
esac
exit 0
