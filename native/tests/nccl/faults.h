/* Faults of the fake provider and notices of a fake agent, at random moments. */
#ifndef NCCL_FAULTS_H
#define NCCL_FAULTS_H

#include <stdint.h>

#include "fake_verbs.h"

enum fault { FAULT_LATE, FAULT_LOSS, FAULT_HOLE, FAULT_DUPLICATES, FAULT_PORT, FAULT_ERROR,
             FAULT_BOTH, FAULT_FLAPS, FAULT_NOTICE, FAULT_LATE_NOTICE, FAULT_ADMIN, FAULT_SLOW_DRAIN,
             FAULT_NEIGHBOUR, FAULTS };

static const struct fake_limits NO_LIMITS = {-1, -1, -1, -1, {-1, -1, -1, -1}, -1};

/* The agent that SYNTONY_AGENT will name; before the plug-in's init. Or another one, after its end. */
void faults_start_agent(void);
/* The same in two steps, of up to two processes: the second makes a thread, before which they are to be
 * forked: a child has the locks that threads of its parent held. */
void faults_name_agent(int processes);
void faults_serve_agent(void);
void faults_end_agent(void); /* after all have asked it */
/* Its page, once the first process has it; NULL until then. */
void *faults_page(void);
void faults_load(const char *provider); /* the fake provider, by its path */
/* One fault of this kind (-1: any), from its beginning to its end. */
void faults_inject(int kind, uint64_t *random);
void faults_print(void); /* what was done, and what the provider saw */
uint64_t faults_late_arrivals(void);
int faults_provider_is_clean(void); /* no receiver-not-ready, no access with a wrong key */
uint64_t faults_draw(uint64_t *random);
void faults_port(int port, int active);
void faults_slow_completions(int port, int64_t completion_delay_ns, int64_t delay_ns);
uint64_t faults_writes(void);
uint64_t faults_writes_at(int port);
void faults_set(int port, const struct fake_fault *fault);
void faults_delay(int port, int64_t delay_ns);
int faults_kept(int port);    /* as fake_kept */
void faults_let_go(int port); /* as fake_let_go */
void faults_limit(const struct fake_limits *limits);
void faults_be(const struct fake_vendor *vendor);
void faults_vanish(int port);
void faults_event(int port, int event); /* as fake_event */
void faults_lose(int port, int permille);
void faults_error(int port);
void faults_say(int port, const void *record, uint32_t size);
void faults_hold_neighbour(int port, int hold);
void faults_hide_neighbour(int port, int hide);
void faults_machine(int port, const struct fake_machine *machine);
void faults_gpu_memory(const void *address, uint64_t size);
int faults_held_calls(void);
int faults_queue_pairs(void);
int faults_objects(void);
void faults_cost(struct fake_cost *cost);
double faults_cost_of_accounting(void);
int faults_flow_labels(uint32_t *labels, int room);
int faults_class(int port); /* as fake_class */
/* Of the path between two fake ports: any subject of the agent's page. `for_ns` 0: for ever. */
void faults_order(int subject, int local, int remote, int64_t for_ns, uint64_t rate_bps,
                  uint32_t only_class);
void faults_notify(int dead, int local, int remote, int64_t for_ns); /* fake ports */

#endif
