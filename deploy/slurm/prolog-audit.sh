#!/bin/sh
# Prolog (and Epilog): a node with a failure is drained and the job requeued, by the exit status.
# slurm.conf:  Prolog=/etc/slurm/prolog.d/syntony-audit.sh   PrologFlags=Alloc
#
# Quick, passive checks only, well below Slurm's MessageTimeout. A GPU that is lost and a driver that
# hangs are failures. Anything else that is unknown (exit status 3) is logged and does not drain;
# with SYNTONY_DRAIN_UNKNOWN=1 it does. An audit that cannot run (a bad package, a bad spec) drains
# nobody.
verdict=$(syntony audit run --local --exit-style slurm --deadline 8s \
    ${SYNTONY_SPEC:+--spec "$SYNTONY_SPEC"} \
    --check node.gpu-count --check node.gpu-recovery --check node.xid \
    --check node.nvlink --check mem.gpu-ecc --check pcie.present --check pcie.link \
    --check be.init --check be.act.state --check be.act.rate --check fe.route --check sw.env)
code=$?
echo "$verdict"
case $code in
    0) exit 0 ;;
    1) exit 1 ;;
    3) echo "syntony audit: not everything could be measured: $verdict" >&2
       exit "${SYNTONY_DRAIN_UNKNOWN:-0}" ;;
    *) echo "syntony audit could not run; the job starts unaudited" >&2; exit 0 ;;
esac
