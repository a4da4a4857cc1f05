/* What a random program of NCCL's calls has for its messages and its faults. */
#ifndef NCCL_PROGRAM_H
#define NCCL_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "drive.h"

enum { GROUP = 8 };

/* How the ports are used, and what messages are cut into. */
struct layout {
    const char *rails; /* NULL: two devices that NCCL merges */
    int used;          /* rails of a connection */
    int ports[2][4];   /* of each device */
};

struct program {
    uint64_t seed;
    const struct layout *layout;
    size_t chunk; /* bytes; 0: the default */
    bool numbers_again; /* of queue pairs, by the NICs */
    int threads;        /* each with its own connections; faults are the first one's */
    struct net net;
};

extern struct program program;
extern _Thread_local int program_thread; /* which one this is, from 0 */

/* Of the thread's own order: the next number below `bound`. */
uint64_t draw(uint64_t bound);
bool one_in(uint64_t n);
int64_t now_ms(void);

/* A grouped receive, and the sends for it, as both ends know them. */
struct plan {
    int count;
    int tag[GROUP];
    int order[GROUP]; /* of sends, by place; sends with one tag match in order */
    size_t size[GROUP], offered[GROUP];
};
struct plan plan_of(uint64_t key, int group);

/* Memory of one message, registered from its first to its last byte. */
struct buffer {
    char *block, *data;
    size_t size;
    void *memory;
};
void buffer_make(struct buffer *buffer, void *comm, size_t size);
void buffer_end(struct buffer *buffer, void *comm);
void buffer_fill(struct buffer *buffer, uint64_t key, int group, int place);
/* `size` bytes of a message, and behind it what was there before; if not, `what` (or NULL) is printed. */
bool buffer_has(const struct buffer *buffer, uint64_t key, int group, int place, size_t size,
                const char *what);

/* Of one thread: connections, up to six at a time, until so many have ended. With all that goes on in them,
 * and with faults if it is said so. */
void run_connections(int total, bool faulty);

/* Faults of ports, and the agent's notices and orders; `completed`: how much has come to an end until
 * now, for the next fault waits for some. `connecting`: some connection is being made. */
void trouble(int64_t now_ms, uint64_t completed, bool connecting);
bool trouble_keeps_from_connecting(void);
void trouble_ends(void);

#endif
