/* The page that a job's process shares with its host's agent: the process reports how its flows
 * progress, the agent gives notices (see docs/reference/local-socket.md). A process needs this
 * header, syn_job.c and nothing else; libsyntony has all of it. */
#ifndef SYN_JOB_PAGE_H
#define SYN_JOB_PAGE_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* --- declarations --- */
enum { SYN_JOB_FLOWS = 512, SYN_JOB_NOTICES = 64, SYN_JOB_PAGE_VERSION = 1 };

/* How a flow is carried, and with it what its number means. */
enum syn_job_mechanism {
    SYN_JOB_RDMA = 1,  /* number of the queue pair */
    SYN_JOB_TCP = 2,   /* cookie of the socket (SO_COOKIE) */
    SYN_JOB_MPTCP = 3, /* cookie of the connection's socket */
};

enum syn_job_state { SYN_JOB_FREE = 0, SYN_JOB_OPEN = 1, SYN_JOB_FAILED = 2 };

/* One flow. Counts are since the flow began; a reader that missed some loses only freshness. */
struct syn_job_flow {
    uint32_t sequence; /* odd while being written */
    uint16_t mechanism;
    uint16_t state;
    uint64_t number;
    uint8_t local[16]; /* a GID, an IPv6 address, or ::ffff:a.b.c.d */
    uint8_t remote[16];
    uint32_t local_port; /* of UDP or TCP; 0: unknown */
    uint32_t remote_port;
    char nic[32]; /* its RDMA device or interface, ends in 0 */
    uint64_t bytes_done;
    uint64_t bytes_outstanding;
    int64_t last_done_ns; /* CLOCK_MONOTONIC; 0: never */
    uint32_t outstanding; /* operations */
    uint32_t errors;
    uint32_t last_error;  /* errno or ibv_wc_status */
    uint32_t reserved;
};

/* What changes as a flow is used. */
struct syn_job_progress {
    uint64_t bytes_done;
    uint64_t bytes_outstanding;
    int64_t last_done_ns;
    uint32_t outstanding;
    uint32_t errors;
    uint32_t last_error;
    uint32_t failed; /* not 0: the flow carries nothing any more */
};

enum syn_job_subject {
    SYN_JOB_PATH_DEAD = 1,  /* leave the path, unless it is your last */
    SYN_JOB_PATH_ALIVE = 2, /* it may be used again */
    SYN_JOB_STOPPED = 3,    /* an operator stopped traffic control: move nothing */
    SYN_JOB_STARTED = 4,
    SYN_JOB_PATH_PACE = 5, /* send no faster than `rate_bps` over it, all flows together; 0: as fast
                            * as it goes */
    SYN_JOB_PATH_MOVE = 6, /* take another way between these addresses: other ports, flow labels */
    SYN_JOB_PATH_AVOID = 7, /* the path works; send by others until `expires_ns`, as long as one lives
                             * that is neither dead nor avoided itself. In the past: use it again */
};

/* Of the path between two addresses, whatever uses it; both are 0 where the subject is no path. After
 * STOPPED, and after a new connection, earlier notices of paths are void. */
struct syn_job_notice {
    uint32_t subject;
    uint32_t only_class; /* PATH_PACE: of this IP traffic class, plus 1; 0: of all */
    int64_t at_ns;      /* CLOCK_MONOTONIC: when the agent decided it */
    int64_t expires_ns; /* void from then on; 0: until another notice of the same subject */
    uint8_t local[16];
    uint8_t remote[16];
    uint64_t rate_bps; /* PATH_PACE: payload bits per second */
};

struct syn_job_page {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
    uint32_t used;     /* by the process: no flow is at or after this */
    uint32_t left_out; /* by the process: flows for which there was no place */
    uint64_t reserved[5];
    uint64_t noticed; /* by the agent: notices ever; the newest is at (noticed - 1) % 64 */
    uint64_t reserved2[7];
    struct syn_job_notice notices[64];
    struct syn_job_flow flows[512];
};

/* A process's end. Zero it before `connect`. */
struct syn_job {
    struct syn_job_page *page;
    uint32_t *mine; /* reads 0 in a child of the process that connected */
    int fd;
    uint64_t taken;  /* notices read or missed */
    uint64_t missed; /* notices that were overwritten unread */
    uint8_t occupied[512];
};

/* Connect to the agent's socket, by default the one that the variable SYNTONY_AGENT names. 0 or an
 * errno: ENOENT, ECONNREFUSED: no agent; EAGAIN: try later; EACCES: the agent refused; ETIMEDOUT: no
 * answer within a second; EPROTO: no such agent; ENOTSUP: a kernel before 4.14. */
int syn_job_connect(struct syn_job *job, const char *path);
/* What was opened ends. In a child of fork only the child lets go. */
void syn_job_close(struct syn_job *job);
/* 1: the agent has gone, or never was: close and connect again, now and then. A system call. */
int syn_job_lost(const struct syn_job *job);

/* A place for a flow (mechanism, number, addresses, ports and NIC are read), or a negative errno:
 * -ENOSPC: all are taken, -ECHILD: after a fork, -EINVAL. Any thread. */
int syn_job_open_flow(struct syn_job *job, const struct syn_job_flow *flow);
/* How it does; one thread at a time for each flow. No system call, no allocation. Nothing happens
 * after a fork, or for a place that is none. */
void syn_job_tell(struct syn_job *job, int place, const struct syn_job_progress *progress);
void syn_job_close_flow(struct syn_job *job, int place);
/* 1 and the next notice, or 0: none. One thread. No system call. */
int syn_job_take(struct syn_job *job, struct syn_job_notice *notice);

/* The agent's end. The process may write anything anywhere in the page at any time: nothing in it is
 * believed to be an index, a length or a sequence that ends. */
struct syn_job_page *syn_job_page_make(int *fd, int *error); /* `fd` is to be sent, then closed */
void syn_job_page_unmap(struct syn_job_page *page);
/* Copies the flows in use to `flows` (room for SYN_JOB_FLOWS); those that cannot be copied whole are
 * counted in `torn`. Returns how many. */
uint32_t syn_job_page_read(const struct syn_job_page *page, struct syn_job_flow *flows,
                           uint32_t *torn);
/* Give notice; `number` counts them, from 0, outside of the page. */
void syn_job_page_notify(struct syn_job_page *page, uint64_t number,
                         const struct syn_job_notice *notice);
/* --- end of declarations --- */

static const uint64_t SYN_JOB_MAGIC = UINT64_C(0x3130424f4a4e5953); /* "SYNJOB01" */

_Static_assert(sizeof(struct syn_job_flow) == 128, "layout");
_Static_assert(sizeof(struct syn_job_notice) == 64, "layout");
_Static_assert(sizeof(struct syn_job_page) == 128 + 64 * SYN_JOB_NOTICES + 128 * SYN_JOB_FLOWS,
               "layout");

#pragma GCC visibility pop

#endif
