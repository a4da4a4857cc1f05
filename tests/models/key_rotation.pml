/* Rotating probe keys in two phases (src/syntony/mesh/key_rotation.py, controller/probe_keys.py).
 *
 * One controller, HOSTS agents, one rotation. The controller may die between any two steps and
 * return with what it kept; agents lose and remake their sessions, restart without keys, and send
 * each other probes that arrive late. Phases: 0 steady with the old epoch, 1 spreading,
 * 2 switching, 3 draining, 4 steady with the new one.
 *
 * Safe: no probe that arrives is refused for its epoch. Variants, each with a counterexample:
 *   ONE_PHASE    send with the new epoch at once
 *   NO_CONFIRM   move on without hearing from every host
 *   NO_DRAIN     retire the old epoch while packets of it are under way
 *   FORGET_HOSTS a controller that returns knows no hosts until they attach, and waits for none
 */
#ifndef HOSTS
#define HOSTS 3
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef BREAKS
#define BREAKS 3
#endif
#define NOTHING 9
#define OLD 1
#define NEW 2
#define SENDS(phase) (phase <= 1 -> OLD : NEW)
#define TAKES(phase, epoch) ((epoch == OLD && phase <= 3) || (epoch == NEW && phase >= 1))
#define CARRIED_OUT(host, phase) (held[host] == phase)
#define EACH(h) for (h : 0 .. HOSTS - 1)

byte kept, told;              /* phase: on disk, and by which the controller goes */
byte held[HOSTS] = NOTHING;   /* what a host has confirmed in this session */
bool known[HOSTS];            /* hosts that a phase waits for */
bool attached[HOSTS];
byte holds[HOSTS] = NOTHING;  /* the phase whose keys an agent goes by */
byte flying[HOSTS * HOSTS];   /* epoch of the probe from one to another; 0: none */
byte deaths, breaks;
bool complete;
chan down[HOSTS] = [2] of { byte };
chan up[HOSTS] = [2] of { byte };

inline detach(host) {
	attached[host] = false; held[host] = NOTHING;
	do :: down[host] ? _ :: empty(down[host]) -> break od;
	do :: up[host] ? _ :: empty(up[host]) -> break od
}

inline tell_all(phase) {
	EACH(h) { if :: attached[h] -> down[h] ! phase :: else fi }
}

inline consider() {
	ready = true;
	EACH(h) {
#ifndef NO_CONFIRM
		if :: known[h] && !CARRIED_OUT(h, told) -> ready = false :: else fi;
#endif
		skip
	}
}

inline look_for_old() {
	ready = true;
#ifndef NO_DRAIN
	for (pair : 0 .. HOSTS * HOSTS - 1) {
		if :: flying[pair] == OLD -> ready = false :: else fi
	}
#endif
}

proctype controller() {
	byte h, pair; bool ready;
	do
	:: atomic { kept == told && told == 0 ->      /* an order to rotate is kept, then told */
#ifdef ONE_PHASE
		kept = 2
#else
		kept = 1
#endif
	   }
	:: atomic { kept == told && (told == 1 || told == 2) ->
		consider();
		if :: ready -> kept = told + 1 :: else fi; ready = false }
	:: atomic { kept == told && told == 3 ->
		look_for_old();
		if :: ready -> kept = 4 :: else fi; ready = false; pair = 0 }
	:: atomic { kept != told && nfull(down[0]) && nfull(down[1]) && nfull(down[HOSTS - 1]) ->
		told = kept;
		if :: told != 3 -> tell_all(told)
		   :: else -> skip      /* draining changes nothing at hosts */
		fi;
		if :: told == 4 -> complete = true :: else fi }
	:: atomic { deaths < DEATHS -> deaths++;      /* dies; returns with what it kept */
		told = kept;
		EACH(h) {
			detach(h);
#ifdef FORGET_HOSTS
			known[h] = false;
#endif
		} }
	od
}

proctype agent(byte me) {
	byte other;
	do
	:: atomic { !attached[me] -> attached[me] = true; known[me] = true; held[me] = NOTHING;
		down[me] ! told }
	:: atomic { down[me] ? [_] && nfull(up[me]) -> down[me] ? holds[me]; up[me] ! holds[me] }
	:: atomic { up[me] ? [_] -> up[me] ? held[me] }
	:: atomic { attached[me] && breaks < BREAKS -> breaks++; detach(me) }
	:: atomic { holds[me] != NOTHING && breaks < BREAKS -> breaks++;   /* restarts without keys */
		detach(me); holds[me] = NOTHING;
		for (other : 0 .. HOSTS - 1) { flying[other * HOSTS + me] = 0 };
		other = 0 }
	:: atomic { holds[me] != NOTHING ->
		select(other : 0 .. HOSTS - 1);
		if :: other != me && flying[me * HOSTS + other] == 0 ->
			flying[me * HOSTS + other] = SENDS(holds[me])
		   :: else fi;
		other = 0 }
	:: atomic { holds[me] != NOTHING ->
		select(other : 0 .. HOSTS - 1);
		if :: flying[other * HOSTS + me] != 0 ->
			assert(TAKES(holds[me], flying[other * HOSTS + me]));
			flying[other * HOSTS + me] = 0
		   :: else fi;
		other = 0 }
#ifdef REACHABLE
	:: complete -> assert(false)      /* shows that a rotation does end */
#endif
	od
}

init {
	byte h;
	atomic {
		EACH(h) { holds[h] = 0; known[h] = true };      /* all have the old epoch */
		run controller();
		EACH(h) { run agent(h) }
	}
}
