/* A provider of verbs within one process, with faults: what it does to packets is set per port and
 * direction. Reliable queue pairs as the InfiniBand specification has them: executed in order and
 * once, retransmitted by timeout, late packets of a queue pair that has ended still arrive. */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <stdint.h>

#pragma GCC visibility push(default)

enum { FAKE_PORTS = 4, FAKE_DATA = 1, FAKE_ACKS = 2 };

struct fake_fault { /* for what this port sends */
    int lost_permille, duplicated_permille;
    int64_t delay_ns;       /* of packets that are sent from now on */
    int64_t completion_delay_ns; /* completions at this port come so much after what they tell of */
    int kept; /* packets of this kind do not arrive before they are let go: */
};

struct fake_machine { /* what this device is; before it is opened, but where it says otherwise and
                         the last three */
    int old_gid;    /* of RoCE v1; may change, as the next two */
    int new_gid;    /* one more, of RoCE v2, has this index; 0: none */
    int gid_kind;   /* 0: an IPv4 address, 1: IPv6, 2: link-local */
    int infiniband;
    int stamps;     /* completions have stamps of its clock: */
    int64_t offset; /* its ticks of 6.4 ns when the library was loaded; may change: it jumps, */
    int64_t drift_ppb;
    int bits;          /* of its counter; 0: 64 */
    int64_t named_khz; /* what the device says of its frequency; 0: what it is, -1: 0 kHz */
    int unreadable;    /* but by its stamps */
    int few_queues, queues_left; /* queue pairs that can still be made */
    int no_memory;               /* none can be registered */
    int reads_gpus, takes_dmabuf; /* a GPU's memory can be registered: by its address, as a DMA-BUF */
    int refusing;                /* work requests; 2: all but the first of a list */
    int failing_polls;           /* of completion queues with something, that still fail */
    int closed;                  /* it cannot be opened */
    int unready;                 /* none can be made ready to send */
    int speed, width;            /* codes of the verbs; 0: 25 Gbit/s, 4 lanes */
    int64_t destroying_ns, failing_ns; /* a queue pair takes so long: to be destroyed, to be put in error */
    int unfailing; /* no queue pair can be put in error */
    int undying; /* queue pairs: so many times none can be destroyed */
    int64_t pausing_ns; /* the caller, once, when it finds nothing yet of a queue pair in error */
    int64_t unanswered_ns;       /* not 0: a way to where nobody is cannot be made, which takes so long */
};

struct fake_vendor { /* what NICs do that the specification allows, and not all of them do */
    int64_t scrambled_ns; /* completions come up to so much later, each queue's in order */
    int leftovers;        /* work of a queue pair that is destroyed still completes, with errors */
    int twice;            /* asynchronous events */
    int silent;           /* no event tells that a port is up again */
};

struct fake_datagrams { /* what a device has sent in datagrams, of the newest that arrived */
    uint64_t sent, arrived, no_room, wrong_qkey, astray;
    uint32_t label;
    uint8_t traffic_class, sl;
};

struct fake_counts {
    uint64_t writes, retransmitted, duplicates, after_end; /* after_end: late packets that arrived
                                                              after their sender's queue pair ended */
    uint64_t not_ready;      /* receiver not ready: never, with credits */
    uint64_t wrong_key;      /* access to memory that is not registered */
    uint64_t writes_at[FAKE_PORTS]; /* of `writes` */
};

struct fake_limits { /* -1: none */
    int ports, queue_pairs, regions; /* how many (more) there are */
    int gid_type;                    /* enum ibv_gid_type */
    int mtu[FAKE_PORTS];             /* enum ibv_mtu */
    int numbers_again; /* not -1: a new queue pair of a port has the number of the one that ended last */
};
void fake_limit(const struct fake_limits *limits);
void fake_be(const struct fake_vendor *vendor);
void fake_vanish(int port); /* the device is gone, as after its removal */
void fake_set_fault(int port, const struct fake_fault *fault);
void fake_set_machine(int port, const struct fake_machine *machine);
/* The truth: the device's counter at an instant of CLOCK_REALTIME, before it is cut to its bits. */
int64_t fake_ticks_at(int port, int64_t real_ns);
void fake_datagrams(int port, struct fake_datagrams *to);
int fake_kept(int port);     /* how many packets are */
void fake_let_go(int port);  /* they arrive at once, and no more are kept */
void fake_set_active(int port, int active); /* with its event */
void fake_fail_device(int port);            /* its event; it stays open */
/* enum ibv_event_type, and nothing else happens; with 256 times a number: of another port of the device. */
void fake_event(int port, int event);
void fake_fail_queues(int port);            /* every queue pair ends with a completion error */
/* One of the port's queue pairs sends this behind its user's back, who learns of no completion. */
void fake_say(int port, const void *record, uint32_t size);
/* No queue pair is made ready to receive until it is let go: the kernel asks for the neighbour's
 * address meanwhile, and the caller waits. */
void fake_hold_neighbour(int port, int hold);
void fake_hide_neighbour(int port, int hide); /* it does not answer: an error at once */
/* What NICs write there is seen only when the same NIC has read there. One at a time. */
void fake_gpu_memory(const void *address, uint64_t size);
int fake_held_calls(void);  /* that wait now */
int fake_objects(void);     /* of any kind, that were made and not destroyed */
int fake_queue_pairs(void); /* that were made and not destroyed */
void fake_counts(struct fake_counts *counts);
/* ns that threads spent in posting and polling, and how often they were called. */
struct fake_cost { uint64_t posting_ns, posts, polling_ns, polls; };
void fake_cost(struct fake_cost *cost);
double fake_cost_of_accounting(void); /* ns for each of these calls, which they do not count */
/* Of the queue pairs that are connected now: their flow labels, and the port above these 20 bits. Returns
 * how many. */
int fake_flow_labels(uint32_t *labels, int room);
/* Of the queue pair of a port that was connected last: its service level, above 8 bits of traffic class. */
int fake_class(int port);
void fake_seed(uint64_t seed);

#pragma GCC visibility pop

#endif
