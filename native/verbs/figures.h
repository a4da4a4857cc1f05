/* What is counted of one queue pair, written to its slot of the page. One thread at a time posts to a
 * queue pair and one polls a completion queue, or the slot says that it is not so: no locks. */
#ifndef VERBS_FIGURES_H
#define VERBS_FIGURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "syn_qp_page.h"

/* Which messages of one ring are stamped: those whose number has no bit of `mask`. It follows the
 * rate: from 4 to 16 ms between two stamps, so that a ring lasts for half a second at least. */
struct sampling {
    uint32_t mask;
    int64_t stamped_ns;
};

struct figures {
    struct syn_qp_slot *slot; /* NULL: nothing is counted */
    struct syn_qp_stamp (*rings)[SYN_QP_STAMPS];
    struct sampling sent, received;
    /* One send at a time is followed until it completes: the `timed_number`-th with a completion. */
    uint64_t timed_number;
    int64_t timed_ns; /* 0: none is */
    int64_t timed_before_ns;
};

/* Identity of a queue pair, as the page shows it. */
struct identity {
    uint16_t type;
    uint32_t number, peer_number, send_psn, receive_psn;
    uint8_t local[16], remote[16];
    char device[24];
    uint64_t flags;
};

/* A message is about to be posted, or has been received. */
struct message {
    uint64_t bytes;
    uint64_t written; /* by as many writes just before it, which have no completion: */
    uint32_t writes;
    bool takes_receive; /* at the peer, whose process sees its end */
    bool signaled;
};

/* A new generation: everything at 0. */
void figures_begin(struct figures *figures, const struct identity *identity, uint64_t generation,
                   int64_t now_ns);
void figures_send_psn(struct figures *figures, uint32_t psn);
void figures_flag(struct figures *figures, uint64_t flag);
void figures_fail(struct figures *figures);
void figures_end(struct figures *figures);

/* Whether the next one may be stamped, so that the time has to be exact: of a clock that is right to
 * some milliseconds, and never ahead, this is known. */
bool figures_stamps_sent(const struct figures *figures, int64_t at_ns);
bool figures_stamps_received(const struct figures *figures, int64_t at_ns);
bool figures_stamps_completed(const struct figures *figures);
/* Of messages posted by one call, at `at_ns`, just before it. */
void figures_sent(struct figures *figures, const struct message *message, int64_t at_ns);
/* The same of a send with a completion, where `figures_stamps_sent` says that it is not stamped. */
void figures_sent_unstamped(struct figures *figures, const struct message *message, int64_t at_ns);
void figures_posted_receives(struct figures *figures, uint64_t count);
void figures_received(struct figures *figures, uint64_t bytes, int64_t at_ns);
/* The same where `figures_stamps_received` says that it is not stamped. */
void figures_received_unstamped(struct figures *figures, uint64_t bytes, int64_t at_ns);
void figures_completed(struct figures *figures, int64_t at_ns);
void figures_error(struct figures *figures, uint32_t status);

#endif
