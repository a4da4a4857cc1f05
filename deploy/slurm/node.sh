# shellcheck shell=sh
# What prolog, epilog and health check share: sourced from beside them.
# Slurm gives its programs no environment but a few names of its own: settings are in a file.
PATH=$PATH:/opt/syntony/bin:/usr/local/bin:/usr/sbin:/sbin
: "${SYNTONY_SLURM_ENV:=/etc/syntony/slurm.env}"
# shellcheck disable=SC1090 # SYNTONY_SPEC, SYNTONY_DRAIN_UNKNOWN
if [ -r "$SYNTONY_SLURM_ENV" ]; then # a shell ends at a wrong file, and the prolog would drain the node
    if sh -n "$SYNTONY_SLURM_ENV"; then . "$SYNTONY_SLURM_ENV"; fi
fi
node=${SLURMD_NODENAME:-$(hostname -s)}
OURS="syntony audit:"

audit() { # audit DEADLINE OPTION…: one line, exit status 0, 1 failure, 3 unknown, else no audit
    deadline=$1
    shift
    syntony audit run --local --exit-style slurm --deadline "$deadline" \
        ${SYNTONY_SPEC:+--spec "$SYNTONY_SPEC"} "$@"
}

state() { sinfo -h -N -n "$node" -o '%T %E' 2>/dev/null | head -n 1; }

drain() { # drain REASON: the first reason stays, whoever gave it; so does a state that takes no jobs
    case $(state) in
        drain* | down* | fail* | err* | unk* | boot* | reboot* | pow*) ;;
        "") echo "syntony audit: the state of $node cannot be read; not drained: $1" >&2 ;;
        *) scontrol update "nodename=$node" state=DRAIN "reason=$OURS $1" ;;
    esac
}

resume() { # only what we have drained; UNDRAIN leaves a node down that is down as well
    case $(state) in
        drain*" $OURS "*) scontrol update "nodename=$node" state=UNDRAIN ;;
    esac
}
