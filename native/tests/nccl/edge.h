/* Two ends in one process over the fake provider, ports 0 and 1 to 2 and 3, one message at a time: for
 * tests of single events. */
#ifndef NCCL_EDGE_H
#define NCCL_EDGE_H

#include "check.h"
#include "drive.h"
#include "faults.h"

extern struct net net;
extern const char *plug_in; /* its library */
extern void *sender, *receiver, *listener, *send_memory, *receive_memory;

struct connection {
    void *sender, *receiver, *send_memory, *receive_memory;
};

/* The present connection, and messages over one that was kept. */
struct connection keep_connection(void);
void exchange_over(struct connection kept);
extern char handle[128], from[4096], to[4096];

struct edge_case { const char *name; void (*run)(void); };

enum { HANG_MS = 240000 }; /* nothing takes so long, however busy or stopped the machine is */

int64_t now_ms(void);
enum { LONGEST_MS = 50 };
int64_t ran_ms(void); /* the time that naps have seen go by: a pause of this process counts as LONGEST_MS */
void nap_for(unsigned us);
void nap(void);          /* between two looks: NCCL's thread takes none, but tests share few cores */
void begin(void);        /* init and listen */
void connect_both(void); /* and register `from` and `to` */
void begin_with_agent(void); /* also connected, and the agent has answered */
void connect_both_by(int device); /* of the sender; otherwise device 0 */
void listen_again(void); /* for one more connection; the ones before stay */
void close_sender(void); /* from then on there is none */
void close_receiver(void);
void close_both(void);
void *post_receive(size_t size);
/* Until there is a request, or an error in `result`. `other` is asked after meanwhile. */
void *post_send(size_t size, void *other, int *result);
/* Both ends go on until one request ends: its result; -1: not within HANG_MS. */
int result_of(void *request, void *other);
/* Until both end: 0, or the first error; -1: not within HANG_MS. `other` (or NULL) is asked after, too. */
int results_of(void *request, void *sent, void *other);
/* Both ends go on for so long; `request` is a receive that does not end meanwhile. */
void pump(void *request, int64_t for_ms);
void pump_sender(int64_t for_ms); /* only the sender goes on */
/* A message, from the first call to the check of its bytes. A receive stays posted, with which the
 * receiver goes on; so after the first there is no `post_receive` for the next message. */
void exchange(void);
void exchange_for(int64_t for_ms); /* messages, one after the other */
/* An order for both of the sender's paths, by the time the plug-in has read it. */
void order_both(int subject, uint64_t rate_bps, uint32_t only_class, int64_t for_ns);
/* Messages go by either rail of device 1, in turns. */
void both_rails_carry(void);
/* Messages go on until so many queue pairs work. */
void until_pairs(int wanted);
void until_both_up(void); /* and until both ends know that both rails are */
/* main: LIBRARY PROVIDER CASE [fails]; with `fails` it is an error if the case holds. */
int run_case(int argc, char **argv, const struct edge_case *cases, size_t count);

#endif
