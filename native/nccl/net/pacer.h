/* A rate that the flows of this process over one path keep together: pure, without locks. */
#ifndef NET_PACER_H
#define NET_PACER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pacer {
    atomic_uint_least64_t rate_bps; /* 0: none */
    atomic_int_least64_t until_ns;  /* void from then on */
    atomic_int_least64_t next_ns;   /* when what was sent is paid for */
};

/* `until_ns` 0: for ever. An order that renews one keeps what is not paid for yet. */
void pacer_set(struct pacer *pacer, uint64_t rate_bps, int64_t until_ns, int64_t now_ns);
int64_t pacer_until_ns(const struct pacer *pacer); /* void from then on; 0: there is no rate */
/* Whether something may be sent now. Somebody else may take the turn before `pacer_sent`: the rate is
 * kept all the same, over a little longer. */
bool pacer_allows(const struct pacer *pacer, int64_t now_ns);
void pacer_sent(struct pacer *pacer, uint64_t bytes, int64_t now_ns);

#endif
