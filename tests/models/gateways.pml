/* A batch is stored once (controller/ingest.py, controller/gateway.py, agent/delivery.py).
 *
 * Two gateways share a store. An agent delivers BATCHES batches of one stream to one of them and
 * has WINDOW unacknowledged ones under way; it leaves one that is silent (it stands still, or is
 * cut off), and sends what was not acknowledged to the same or the other one once what that one
 * was given is older than UNCHECKED_NS. A gateway stops at any step for any time, learns late
 * that an agent has gone, dies; inserts fail, done or not.
 *
 * Safe: no batch is stored twice, and what is acknowledged is stored. Variants, each with a
 * counterexample:
 *   NO_HELLO     the first batches after a hello are not looked up in the store
 *   NO_SILENCE   nor what comes after a silence
 *   NO_WAITED    nor what has waited for long
 *   NO_RETRY     nor what is tried again
 *   EARLY_ACK    what is queued is acknowledged
 *   TWO_STEPS    another gateway may insert between a look-up and its insert: the window that
 *                docs/reference/protocol.md admits
 *   QUICK        an agent sends elsewhere sooner than UNCHECKED_NS, which only one that was killed
 *                does; the docs admit it
 */
#ifndef BATCHES
#define BATCHES 3
#endif
#ifndef WINDOW
#define WINDOW 2
#endif
#ifndef MOVES
#define MOVES 3        /* of the agent */
#endif
#define DEATHS 1       /* of gateways */
#define FAILURES 1     /* of inserts */
#define NOBODY 2
#define BIT(n) (1 << (n))

byte stored;                            /* bits */
byte side = NOBODY, acked, sent;        /* the agent's */
byte moves, deaths, failures;
byte accepted[2], unchecked[2];         /* by number; batches that are still looked up */
bool quiet[2], waited[2];               /* more than UNCHECKED_NS since it was given anything */
bool gone[2];                           /* the agent's end waits to be noticed */
chan wire[2] = [WINDOW] of { byte };    /* sent, not taken yet */
chan queue[2] = [WINDOW] of { byte, bool };   /* accepted; whether to look it up */

inline drop(c) {
	do :: wire[c] ? _ :: empty(wire[c]) -> break od
}
inline forget(c) {
	do :: queue[c] ? _, _ :: empty(queue[c]) -> break od
}

proctype gateway(byte me) {
	byte n, current;
	bool check, tried, known;
end:
	do
	:: atomic { wire[me] ? n ->                                  /* takes a batch */
		if
		:: n <= accepted[me] -> skip                         /* a repetition */
		:: else ->
			accepted[me] = n;
#ifndef NO_SILENCE
			if :: quiet[me] -> unchecked[me] = WINDOW :: else fi;
#endif
			quiet[me] = false;
#ifdef EARLY_ACK
			if :: side == me && n > acked -> acked = n :: else fi;
#endif
			if
			:: nfull(queue[me]) -> queue[me] ! n, (unchecked[me] > 0)
			:: full(queue[me]) -> accepted[me] = n - 1   /* does not read on in truth */
			fi;
			if :: unchecked[me] > 0 -> unchecked[me]-- :: else fi
		fi;
		n = 0 }
	:: atomic { current == 0 && nempty(queue[me]) -> queue[me] ? current, check; tried = false }
	:: atomic { current != 0 ->                                  /* inserts it, or tries to */
		known = false;
		if
#ifdef NO_WAITED
		:: check || tried -> known = (stored & BIT(current)) != 0
#else
		:: check || tried || waited[me] -> known = (stored & BIT(current)) != 0
#endif
		:: else
		fi;
#ifdef TWO_STEPS
		}
	   atomic { current != 0 ->
#endif
		if
		:: failures < FAILURES -> failures++;                /* fails, done or not */
#ifndef NO_RETRY
			tried = true;
#endif
			if :: !known -> assert(!(stored & BIT(current))); stored = stored | BIT(current)
			   :: skip
			fi
		:: true ->
			if :: !known -> assert(!(stored & BIT(current))); stored = stored | BIT(current)
			   :: else
			fi;
			if :: empty(queue[me]) -> waited[me] = false :: nempty(queue[me]) fi;
			if :: side == me && current > acked -> acked = current :: else fi;
			current = 0; tried = false; check = false
		fi;
		known = false }
	:: atomic { gone[me] ->                                      /* learns that the agent left */
		gone[me] = false;
		drop(me);
		if
		:: nempty(queue[me]) -> queue[me] ? <n, known>; accepted[me] = n - 1; forget(me)
		:: empty(queue[me])
		fi;
		n = 0; known = false }
	:: atomic { deaths < DEATHS ->                               /* dies, and starts again */
		deaths++;
		drop(me); forget(me);
		accepted[me] = 0; unchecked[me] = 0; quiet[me] = false; waited[me] = false;
		gone[me] = false; current = 0; tried = false; check = false;
		if :: side == me -> side = NOBODY :: else fi }
#ifdef REACHABLE
	:: acked == BATCHES && moves == MOVES && deaths == DEATHS && failures == FAILURES ->
		assert(false)
#endif
	od
}

proctype agent() {
	byte to;
end:
	do
	:: atomic { side == NOBODY && moves < MOVES ->               /* dials */
		moves++;
		select(to : 0 .. 1);
		drop(to);                                            /* its stream before ends here */
		gone[to] = false;
		side = to; sent = acked;
#ifndef NO_HELLO
		unchecked[to] = WINDOW;
#endif
		to = 0 }
	:: atomic { side != NOBODY && sent < BATCHES && sent - acked < WINDOW && nfull(wire[side]) ->
		sent++;
		wire[side] ! sent }
	:: atomic { side != NOBODY ->                                /* leaves one that is silent */
		gone[side] = true;
#ifndef QUICK
		quiet[side] = true; waited[side] = true;
#endif
		side = NOBODY }
	:: atomic { acked > 0 && !(stored & BIT(acked)) -> assert(false) }
	od
}

init {
	atomic { run gateway(0); run gateway(1); run agent() }
}
