/* One controller is obeyed (controller/leadership.py, state/, agent/fence.py).
 *
 * Two controllers share control state that one of them holds at a time. Either may be paused at any
 * step, lose the lease to the other and go on later; AGENTS agents are attached to one of them and
 * change sides at will. Operators change the stop switch; each change has a version.
 *
 * Safe: no agent ever obeys a version older than one that it has obeyed, and no accepted change is
 * written over by a controller that did not know of it. Variants, each with a counterexample:
 *   NO_FENCE     agents obey whoever they are attached to
 *   NO_LEASE     control state takes what a controller writes that has lost it
 *   SAME_EPOCH   a controller that takes over does not raise the epoch
 *   STALE_READ   a controller that takes over goes by what it read before
 *
 * PROMOTION: once, a replica of control state takes its place, which lacks the newest changes. What
 * it lacks is lost, so versions are not compared; safe: no epoch is obeyed of two controllers.
 *   REUSE        … and whoever raises the epoch first after the promotion leaves none out
 */
#ifndef AGENTS
#define AGENTS 2
#endif
#define CHANGES 3      /* of the switch */
#define TAKEOVERS 3
#define NOBODY 9
#ifdef REUSE
#define PROMOTION
#define LOST 0
#else
#define LOST TAKEOVERS /* epochs left out after a promotion */
#endif

byte holder = NOBODY;      /* of control state */
byte epoch, version;       /* in control state */
byte takeovers, changes;
byte its_epoch[2], its_version[2];      /* what each controller goes by; epoch 0: not started */
byte side[AGENTS] = NOBODY;             /* whom an agent is attached to */
byte highest[AGENTS], obeyed[AGENTS];   /* epoch and version at an agent, kept on disk */
chan orders[AGENTS] = [2] of { byte, byte };
#ifdef PROMOTION
byte kept;                              /* the epoch that the replica has */
bool promoted, left_out;                /* the replica is the server; … and epochs were left out */
byte obeyed_of[2 * TAKEOVERS + 3] = NOBODY;     /* whose an epoch is, at agents */
#define COMPARE(a)
#define KNOWS(c)
#else
#define COMPARE(a) assert(of_version >= obeyed[a])
#define KNOWS(c) assert(its_version[c] == version)
#endif

inline raise_epoch() {
	epoch++;
#ifdef PROMOTION
	if :: promoted && !left_out -> epoch = epoch + LOST; left_out = true :: else fi
#endif
}

inline leave(a) {
	side[a] = NOBODY;
	do :: orders[a] ? _, _ :: empty(orders[a]) -> break od
}

proctype controller(byte me) {
	byte a;
	do
	:: atomic { takeovers < TAKEOVERS && holder != me ->      /* starts, or returns as a new one */
		takeovers++; holder = me;
#ifdef SAME_EPOCH
		if :: epoch == 0 -> epoch = 1 :: else fi;
#else
		raise_epoch();
#endif
		its_epoch[me] = epoch;
#ifdef STALE_READ
		skip
#else
		its_version[me] = version
#endif
	   }
	:: atomic { its_epoch[me] != 0 && changes < CHANGES ->    /* an operator's order comes */
		if
#ifndef NO_LEASE
		:: holder != me -> its_epoch[me] = 0              /* refused by control state: ends */
#endif
		:: else ->
			KNOWS(me);                                /* it changes what it knows of */
			changes++; version++; its_version[me] = version
		fi }
	:: atomic { its_epoch[me] != 0 ->                         /* reports to an agent of its own */
		select(a : 0 .. AGENTS - 1);
		if
		:: side[a] == me ->
			if :: nfull(orders[a]) -> orders[a] ! its_epoch[me], its_version[me]
			   :: full(orders[a]) -> skip
			fi
		:: else
		fi;
		a = 0 }
#ifdef PROMOTION
	:: atomic { promoted && holder == NOBODY && its_epoch[me] != 0 && its_epoch[me] == epoch ->
		holder = me; raise_epoch(); its_epoch[me] = epoch } /* goes on at the new server */
	:: atomic { promoted && its_epoch[me] != 0 && its_epoch[me] != epoch ->
		its_epoch[me] = 0 }                               /* finds another epoch there: ends */
#endif
	od
}

#ifdef PROMOTION
proctype replica() {
	do
	:: atomic { !promoted -> kept = epoch }
	:: atomic { !promoted -> promoted = true; epoch = kept; holder = NOBODY }
	od
}
#endif

proctype agent(byte me) {
	byte of_epoch, of_version, to;
	do
	:: atomic { select(to : 0 .. 1);
		if
		:: its_epoch[to] != 0 && side[me] != to ->
			leave(me);
#ifndef NO_FENCE
			if :: highest[me] > its_epoch[to] -> skip     /* its hello is refused */
			   :: else -> side[me] = to
			fi
#else
			side[me] = to
#endif
		:: else
		fi;
		to = 0 }
	:: atomic { orders[me] ? of_epoch, of_version ->
#ifndef NO_FENCE
		if :: of_epoch < highest[me] -> leave(me)             /* refused; the stream ends */
		   :: else ->
#endif
			highest[me] = of_epoch;
			COMPARE(me);
#ifdef PROMOTION
			assert(obeyed_of[of_epoch] == NOBODY || obeyed_of[of_epoch] == side[me]);
			obeyed_of[of_epoch] = side[me];
#endif
			obeyed[me] = of_version
#ifndef NO_FENCE
		fi
#endif
		; of_epoch = 0; of_version = 0 }
#ifdef REACHABLE
	:: obeyed[me] == CHANGES && takeovers == TAKEOVERS -> assert(false)
#endif
	od
}

init {
	byte a;
	atomic {
		run controller(0); run controller(1);
#ifdef PROMOTION
		run replica();
#endif
		for (a : 0 .. AGENTS - 1) { run agent(a) }
	}
}
