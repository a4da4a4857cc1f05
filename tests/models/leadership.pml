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
 */
#ifndef AGENTS
#define AGENTS 2
#endif
#define CHANGES 3      /* of the switch */
#define TAKEOVERS 3
#define NOBODY 9

byte holder = NOBODY;      /* of control state */
byte epoch, version;       /* in control state */
byte takeovers, changes;
byte its_epoch[2], its_version[2];      /* what each controller goes by; epoch 0: not started */
byte side[AGENTS] = NOBODY;             /* whom an agent is attached to */
byte highest[AGENTS], obeyed[AGENTS];   /* epoch and version at an agent, kept on disk */
chan orders[AGENTS] = [2] of { byte, byte };

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
		epoch++;
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
			assert(its_version[me] == version);       /* it changes what it knows of */
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
	od
}

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
			assert(of_version >= obeyed[me]);
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
		for (a : 0 .. AGENTS - 1) { run agent(a) }
	}
}
