/* What a reflector remembers of each flow that probes it: replay window, counts, stamps of its last
 * two replies. A bounded table: an old session makes room for a new one. Pure. */
#ifndef SYN_SESSION_H
#define SYN_SESSION_H

#include "syn_packet.h"

struct syn_session {
    uint32_t src_nic, dst_nic, flow_id;
    uint32_t key_id;
    uint64_t epoch;
    uint64_t bitmap; /* bit i: high_seq - i was received */
    uint32_t high_seq, first_seq, count;
    uint32_t in_use;
    uint32_t follow_seq[2];
    int64_t follow_t3_ns[2];
    int64_t used_ns; /* monotonic, for eviction */
    int64_t window_ns; /* since when requests are counted to tell whether they come often */
    uint32_t window_count;
};

struct syn_sessions {
    struct syn_session *table;
    size_t buckets;
};

int syn_sessions_open(struct syn_sessions *sessions);
void syn_sessions_close(struct syn_sessions *sessions);

/* Take in an authentic request. Its session, or NULL if it is a replay. `*evicted` grows by
 * sessions pushed out. */
struct syn_session *syn_sessions_accept(struct syn_sessions *sessions,
                                        const struct syn_packet *request, uint32_t current_key,
                                        int64_t now_ns, uint64_t *evicted);

/* Whether requests come as often as only those that watch a path for life: anyone who sends them
 * waits for the reply. */
int syn_session_is_hasty(const struct syn_session *session);

/* Fill in the reply to a request just accepted and remember that it is on its way. Whether the
 * stamp of an earlier reply is hereby given up. */
int syn_session_reply(struct syn_session *session, const struct syn_packet *request,
                      struct syn_packet *reply);

/* The transmit stamp of an earlier reply. */
void syn_session_stamp(struct syn_session *session, uint32_t flow_id, uint32_t seq, int64_t t3_ns);

#endif
