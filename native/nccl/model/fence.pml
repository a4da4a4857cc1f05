/* The fence-and-replay protocol of the NCCL net plug-in (docs/reference/nccl-net.md), for spin.
 *
 * A sender writes MESSAGES messages of CHUNKS chunks over two rails into a receiver's buffers.
 * FAULTS times, at any moment, a rail fails at either end, or a notice asks either end to leave it.
 *
 * A rail's generation is one reliable queue pair: the receiver's NIC executes what was posted in
 * order, once. A late packet is an execution long after the post, also after the sender gave the
 * queue pair up. A lost packet is one that is never executed, a lost acknowledgement an execution
 * that the sender does not know of when it fences. A duplicate has a number below `executed` and no
 * effect. The control connection is TCP: in order, reliable, of any delay.
 *
 * Only the receiver's end of a queue pair is ever closed. The sender's may go on until then, whatever the
 * sender believes: a NIC that neither drains nor destroys it is no special case. With STUCK rail 0 does
 * not return either, once it is left, as its old queue pair stays.
 *
 * Checked: a message completes once, with all of its chunks, and nothing is written into its buffer
 * afterwards, for it may hold the next message by then (assertions); nothing is read from a buffer that the
 * sender has given back (an assertion); every message completes at both ends (invalid end states); a notice
 * alone does not take the last living rail (an assertion). Each of these variants breaks that, which spin
 * has to find:
 *   NO_FENCE       the receiver goes on accepting what arrives over the rail that was left
 *   NO_DRAIN       it reports what it has without looking through its completions
 *   NO_REPORT      the sender replays what the receiver already has
 *   NO_WAIT        the sender replays without waiting for the receiver's fence
 *   DECREMENT      as NCCL 2.32: replay at once; the receiver counts arrivals
 *   NO_CTS_REPLAY  clear-to-sends that a failed rail carried are forgotten
 *   TAKE_LAST      a notice may take the last living rail
 */
#ifndef MESSAGES
#define MESSAGES 3
#endif
#ifndef CHUNKS
#define CHUNKS 1
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#define TOTAL (MESSAGES * CHUNKS)
#define EVERY_CHUNK ((1 << TOTAL) - 1)
#define EVERY_MESSAGE ((1 << MESSAGES) - 1)
#define CHUNKS_OF(m) (((1 << CHUNKS) - 1) << ((m) * CHUNKS))
#define LOWEST(set) ((set) & -(set))

/* A rail at one end. FENCED: no work of the old generation is left here; BOTH: nor at the peer.
 * The plug-in makes new queue pairs within BOTH, at the receiver until it accepts, and its sender's
 * PROBE is within WAIT_ACK. */
mtype = { UP, FENCED, BOTH, WAIT_ACK, PROBE };
mtype = { FENCE, LEAVE, REJOIN, ACCEPT };

mtype at_sender[2] = UP, at_receiver[2] = UP;
byte sender_generation[2], receiver_generation[2];

/* A rail's queue pair from sender to receiver: chunks as they were posted (a bit each). */
typedef Queue { byte chunk[TOTAL]; byte posted; byte executed; byte polled };
Queue queue[2];
bool open[2] = true; /* the receiver's queue pair accepts */

/* Sets of chunks: at the sender. */
byte todo = EVERY_CHUNK, done;
byte lost[2]; /* given up with the rail: to be sent again if the receiver lacks them */
/* Sets of messages: clear-to-sends. They are SENDs, so that a late or second one has no effect. */
byte cts_todo = EVERY_MESSAGE, cts_outstanding[2], cleared;
/* At the receiver: chunks written, chunks whose header was polled, messages that completed. */
byte written, received, completed;
byte arrivals[MESSAGES]; /* DECREMENT */
byte faults, failures;

chan to_receiver = [6] of { mtype, byte, byte };     /* rail, generation */
chan to_sender = [6] of { mtype, byte, byte, byte }; /* and what the receiver has */

#define OF_CLEARED(m) ((cleared & (1 << (m))) -> CHUNKS_OF(m) : 0)
#define READY (todo & ((OF_CLEARED(0)) | (OF_CLEARED(1)) | (OF_CLEARED(2))))

inline post(r)
{
    d_step {
        queue[r].chunk[queue[r].posted] = LOWEST(READY);
        todo = todo & ~queue[r].chunk[queue[r].posted];
        queue[r].posted++
    }
}

/* Drained: of what was executed, the acknowledgements of the first `i` arrived. */
inline fence_sender(r)
{
    i = 0;
    if
    :: at_sender[r] == UP ->
        do
        :: i < queue[r].executed -> done = done | queue[r].chunk[i]; i++
        :: break
        od;
        do
        :: i < queue[r].posted -> lost[r] = lost[r] | queue[r].chunk[i]; i++
        :: else -> break
        od
    :: else
    fi;
    i = 0;
    at_sender[r] = FENCED;
    sender_generation[r]++;
#if defined(DECREMENT) || defined(NO_WAIT)
    todo = todo | lost[r];
    lost[r] = 0;
#endif
#ifndef DECREMENT
    to_receiver!FENCE, r, sender_generation[r]
#endif
}

inline notice(r)
{
    if
    :: at_sender[r] == UP && at_sender[1 - r] == UP -> fence_sender(r)
#ifdef TAKE_LAST
    :: at_sender[r] == UP && at_sender[1 - r] != UP -> fence_sender(r)
#endif
    :: else
    fi;
    assert(failures || at_sender[0] == UP || at_sender[1] == UP)
}

inline replay(r, has)
{
#ifdef NO_REPORT
    todo = todo | lost[r];
#else
    todo = todo | (lost[r] & ~has);
    done = done | (lost[r] & has);
#endif
    lost[r] = 0;
    at_sender[r] = BOTH
}

/* Acknowledgements decide nothing but what a fence finds; at the end they all arrive. */
#define ACKNOWLEDGED(r) (at_sender[r] != UP || queue[r].executed == queue[r].posted)
#define ENDED (ended || (todo == 0 && lost[0] == 0 && lost[1] == 0 && ACKNOWLEDGED(0) && \
                         ACKNOWLEDGED(1) && completed == EVERY_MESSAGE))
bool ended;

active proctype sender()
{
    byte i, r, generation, has;
    do
    :: atomic { READY && at_sender[0] == UP -> post(0) }
    :: atomic { READY && at_sender[1] == UP -> post(1) }
    /* Completion error, port down, no answer to REJOIN or probe. */
    :: atomic { faults < FAULTS && at_sender[0] != FENCED && at_sender[0] != BOTH ->
        faults++; failures = 1; fence_sender(0) }
    :: atomic { faults < FAULTS && at_sender[1] != FENCED && at_sender[1] != BOTH ->
        faults++; failures = 1; fence_sender(1) }
    :: atomic { faults < FAULTS && at_sender[0] == UP -> faults++; notice(0) }
    :: atomic { faults < FAULTS && at_sender[1] == UP -> faults++; notice(1) }
    :: atomic { to_sender?LEAVE, r, _, _ -> notice(r); r = 0 }
    :: atomic { to_sender?FENCE, r, generation, has ->
        if
        :: generation > sender_generation[r] -> fence_sender(r)
        :: else
        fi;
        replay(r, has);
        r = 0; generation = 0; has = 0 }
#ifndef STUCK
    :: atomic { at_sender[0] == BOTH -> at_sender[0] = WAIT_ACK; to_receiver!REJOIN, 0, sender_generation[0] }
#endif
    :: atomic { at_sender[1] == BOTH -> at_sender[1] = WAIT_ACK; to_receiver!REJOIN, 1, sender_generation[1] }
    :: atomic { to_sender?ACCEPT, r, generation, _ ->
        if
        :: at_sender[r] == WAIT_ACK && generation == sender_generation[r] -> at_sender[r] = UP
        :: else
        fi;
        r = 0; generation = 0 }
    :: atomic { ENDED -> ended = true; break }
    od
}

/* The header of a chunk. */
inline poll(r)
{
#ifdef DECREMENT
    m = 0;
    do
    :: !(CHUNKS_OF(m) & queue[r].chunk[queue[r].polled]) -> m++
    :: else -> break
    od;
    arrivals[m]++;
#endif
    received = received | queue[r].chunk[queue[r].polled];
    queue[r].polled++;
    m = 0;
    do
    :: m < MESSAGES ->
        if
        :: !(completed & (1 << m)) &&
#ifdef DECREMENT
           arrivals[m] == CHUNKS ->
#else
           (received & CHUNKS_OF(m)) == CHUNKS_OF(m) ->
#endif
            completed = completed | (1 << m);
            assert((written & CHUNKS_OF(m)) == CHUNKS_OF(m))
        :: else
        fi;
        m++
    :: else -> break
    od;
    m = 0
}

inline fence_receiver(r, now)
{
#ifndef NO_FENCE
    open[r] = false;
#ifndef NO_DRAIN
    do
    :: queue[r].polled < queue[r].executed -> poll(r)
    :: else -> break
    od;
#endif
#endif
    at_receiver[r] = FENCED;
    receiver_generation[r] = now;
    to_sender!FENCE, r, now, received
}

/* A new queue pair. */
inline accept(r)
{
    do
    :: m < TOTAL -> queue[r].chunk[m] = 0; m++
    :: else -> break
    od;
    m = 0;
    queue[r].posted = 0;
    queue[r].executed = 0;
    queue[r].polled = 0;
    open[r] = true;
    at_receiver[r] = PROBE;
    to_sender!ACCEPT, r, generation, 0
}

inline send_cts(r)
{
    cts_outstanding[r] = cts_outstanding[r] | LOWEST(cts_todo);
    cts_todo = cts_todo & ~LOWEST(cts_todo)
}

active proctype receiver()
{
    byte m, r, generation;
    do
    :: atomic { cts_todo && at_receiver[0] == UP -> send_cts(0) }
    :: atomic { cts_todo && at_receiver[1] == UP -> send_cts(1) }
    :: atomic { queue[0].polled < queue[0].executed -> poll(0) }
    :: atomic { queue[1].polled < queue[1].executed -> poll(1) }
#ifndef DECREMENT
    :: atomic { faults < FAULTS && (at_receiver[0] == UP || at_receiver[0] == PROBE) ->
        faults++; failures = 1; fence_receiver(0, receiver_generation[0] + 1) }
    :: atomic { faults < FAULTS && (at_receiver[1] == UP || at_receiver[1] == PROBE) ->
        faults++; failures = 1; fence_receiver(1, receiver_generation[1] + 1) }
#endif
    /* A notice: the sender decides. */
    :: atomic { faults < FAULTS -> faults++; to_sender!LEAVE, 0, 0, 0 }
    :: atomic { faults < FAULTS -> faults++; to_sender!LEAVE, 1, 0, 0 }
    :: atomic { to_receiver?FENCE, r, generation ->
        if
        :: generation > receiver_generation[r] -> fence_receiver(r, generation)
        :: else
        fi;
        /* The sender's report says which it has. */
#ifndef NO_CTS_REPLAY
        cts_todo = cts_todo | cts_outstanding[r];
#endif
        cts_outstanding[r] = 0;
        at_receiver[r] = BOTH;
        r = 0; generation = 0 }
#ifndef NO_FENCE
    :: atomic { to_receiver?REJOIN, r, generation ->
        if
        :: at_receiver[r] == BOTH && generation == receiver_generation[r] -> accept(r)
        :: else
        fi;
        r = 0; generation = 0 }
#endif
    :: atomic { at_receiver[0] == PROBE && at_sender[0] == UP &&
        sender_generation[0] == receiver_generation[0] -> at_receiver[0] = UP }
    :: atomic { at_receiver[1] == PROBE && at_sender[1] == UP &&
        sender_generation[1] == receiver_generation[1] -> at_receiver[1] = UP }
    :: atomic { ENDED -> ended = true; break }
    od
}

inline execute(r)
{
    do
    :: !(CHUNKS_OF(m) & queue[r].chunk[queue[r].executed]) -> m++
    :: else -> break
    od;
#ifndef DECREMENT /* there the first message to complete without all of its chunks is wanted */
    assert((done & CHUNKS_OF(m)) != CHUNKS_OF(m));
#ifndef NO_WAIT /* and here the first that is read too late */
    assert(!(completed & (1 << m)));
#endif
#endif
    m = 0;
    written = written | queue[r].chunk[queue[r].executed];
    queue[r].executed++
}

#define SAME_QUEUE_PAIR(r) (at_sender[r] == UP && sender_generation[r] == receiver_generation[r])

inline deliver_cts(r)
{
    cleared = cleared | cts_outstanding[r];
    cts_outstanding[r] = 0
}

active proctype network()
{
    byte m;
end:
    do
    :: atomic { open[0] && queue[0].executed < queue[0].posted -> execute(0) }
    :: atomic { open[1] && queue[1].executed < queue[1].posted -> execute(1) }
    :: atomic { cts_outstanding[0] && SAME_QUEUE_PAIR(0) -> deliver_cts(0) }
    :: atomic { cts_outstanding[1] && SAME_QUEUE_PAIR(1) -> deliver_cts(1) }
    od
}
