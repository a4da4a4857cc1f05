#!/bin/sh
# Prolog (and Epilog): a node with a failure is drained and the job requeued, by the exit status.
# slurm.conf:  Prolog=/etc/slurm/prolog.d/syntony-audit.sh   PrologFlags=Alloc
#
# Quick, passive checks only, well below Slurm's MessageTimeout. What is unknown does not drain: a
# check that cannot be made today was no reason yesterday either; `audit run` by hand shows it.
# Nor does an audit that cannot run: a bad package or spec must not drain a fleet.
syntony audit run --local --exit-style slurm --deadline 8s \
    ${SYNTONY_SPEC:+--spec "$SYNTONY_SPEC"} \
    --check node.gpu-count --check node.xid --check node.nvlink --check mem.gpu-ecc \
    --check pcie.link --check be.init --check be.act.state --check be.act.rate --check sw.env
case $? in
    0) exit 0 ;;
    1) exit 1 ;;
    *) echo "syntony audit could not run; the job starts unaudited" >&2; exit 0 ;;
esac
