#!/bin/sh
# Prolog (and Epilog): a node with a failure is drained with the reason, and the job requeued.
# slurm.conf:  Prolog=/usr/share/syntony/slurm/prolog-audit.sh   PrologFlags=Alloc
#
# Quick, passive checks only, well below Slurm's MessageTimeout. A GPU that is lost and a driver that
# hangs are failures. Anything else that is unknown (exit status 3) is logged and does not drain;
# with SYNTONY_DRAIN_UNKNOWN=1 it does. An audit that cannot run (a bad package, a bad spec) drains
# nobody.
# shellcheck source=deploy/slurm/node.sh
. "$(dirname "$0")/node.sh"
verdict=$(audit 8s \
    --check node.gpu-count --check node.gpu-recovery --check node.xid \
    --check node.nvlink --check mem.gpu-ecc --check pcie.present --check pcie.link \
    --check be.init --check be.act.state --check be.act.rate --check fe.route --check fe.iface \
    --check sw.env)
code=$?
echo "$verdict"
case $code in
    0) exit 0 ;;
    1) drain "$verdict" # else Slurm's own reason is "Prolog error"
       exit 1 ;;
    3) echo "syntony audit: not everything could be measured: $verdict" >&2
       [ "${SYNTONY_DRAIN_UNKNOWN:-0}" = 0 ] || exit 1
       exit 0 ;;
    *) echo "syntony audit could not run; the job starts unaudited" >&2; exit 0 ;;
esac
