#!/bin/sh
# HealthCheckProgram: slurmd only runs it; draining is its own work, and it is killed after 60 s.
# slurm.conf:  HealthCheckProgram=/etc/slurm/syntony-healthcheck.sh
#              HealthCheckInterval=300   HealthCheckNodeState=CYCLE
# CYCLE spreads the nodes over the interval, so that a fleet is not audited in one burst.
set -u
node=$(hostname -s)
verdict=$(syntony audit run --local --exit-style slurm --deadline 40s \
    ${SYNTONY_SPEC:+--spec "$SYNTONY_SPEC"})
code=$?
if [ "$code" -eq 1 ]; then
    state=$(sinfo -h -N -n "$node" -o %T 2>/dev/null | head -n 1)
    case "$state" in
        drain*) ;;  # somebody, or we, did already: keep the first reason
        *) scontrol update "nodename=$node" state=DRAIN "reason=syntony: $verdict" ;;
    esac
elif [ "$code" -eq 3 ]; then
    echo "syntony audit: not everything could be measured: $verdict" >&2
elif [ "$code" -ne 0 ]; then
    # Neither verdict: the audit itself could not run. Say so, drain nobody.
    echo "syntony audit could not run (exit status $code): $verdict" >&2
fi
exit 0
