/* Two engines over queue pairs of the fake provider, which find each other over UDP on loopback: what
 * the tests of probes over verbs share. */
#ifndef VERBS_ENDS_H
#define VERBS_ENDS_H

#include "check.h"
#include "fake_verbs.h"
#include "syn_probe.h"

enum { ENDS = 2, FLOWS = 12, MS = 1000000, RECORDS = 4096,
       TRIES = 50, /* what a busy machine may spoil is tried so often */
       HANG_S = 240 /* nothing takes so long, however busy or stopped the machine is */ };

/* One host: its NIC's number is its place plus 1, its RDMA device the fake's of that place. */
struct end {
    struct syn_probe_engine *udp, *verbs;
    uint16_t port;
};

struct fake_calls {
    void (*set_fault)(int, const struct fake_fault *);
    void (*set_machine)(int, const struct fake_machine *);
    void (*datagrams)(int, struct fake_datagrams *);
    void (*fail_device)(int);
    int (*objects)(void);
    int64_t (*ticks_at)(int, int64_t);
};

struct sum {
    size_t count, answered, forward, reverse, unknown, stamped, stalled;
    int64_t least_rtt_ns;
    uint32_t seen; /* flows */
};

extern struct end ends[ENDS];
extern struct fake_calls fake;
extern const uint8_t KEY[16];

/* The provider at this path, also for `fake`. */
void load_fake(const char *path);
void rest(int64_t ns);
/* The host's clock, which stamps `sent_ns` of records. */
int64_t real_ns(void);
struct syn_probe_nic nic_of(int at, int plane, uint16_t port);
struct syn_probe_engine *open_engine(int plane);
int attach(int at, char *message);
void open_end(int at);
void close_end(int at);
struct syn_probe_flow flow_to(int dst, uint32_t at);
void offer(int at);
/* What the other end says of itself, asked anew. */
struct syn_verbs_endpoint ask(int at);
/* How many ways that makes. */
size_t route(int at, const struct syn_verbs_endpoint *remote);
/* It learns of the other end, and of every way to it. */
void meet(int at);
/* It probes by all flows. */
void plan(int at);
void open_both(void);
void close_both(void);
/* What is reported since the last call, of probes sent since `counted_since_ns`. */
struct sum drain(int at);
extern int64_t counted_since_ns;
/* The same as it is: how many records there are now in `records`. */
size_t drain_records(int at);
extern struct syn_probe_record records[RECORDS];
/* What is reported within so long. */
struct sum run(int at, int64_t ns);
/* Until so many probes are reported, or were answered; how fast is a matter of the machine. */
struct sum until(int at, size_t reported, size_t answered);

#endif
