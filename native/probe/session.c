#include "session.h"

#include <stdlib.h>
#include <string.h>

enum {
    WAYS = 4,
    /* 4096 sessions, 400 kB touched at most: ten peers with eight ports each on 32 NICs fit. */
    BUCKETS = 1024,
    WINDOW = 64,
    /* Watched paths are asked at least every 50 ms, planned flows two at a time and seldom. */
    HASTY_REQUESTS = 3,
    HASTY_NS = 200000000,
};

int syn_sessions_open(struct syn_sessions *sessions)
{
    sessions->buckets = BUCKETS;
    sessions->table = calloc(BUCKETS * WAYS, sizeof *sessions->table);
    return sessions->table != NULL;
}

void syn_sessions_close(struct syn_sessions *sessions)
{
    free(sessions->table);
    sessions->table = NULL;
}

static size_t bucket_of(const struct syn_sessions *sessions, const struct syn_packet *request)
{
    uint64_t key = ((uint64_t)request->src_nic << 32 | request->flow_id) ^
                   (uint64_t)request->dst_nic * UINT64_C(0xc2b2ae3d27d4eb4f);
    key = (key ^ key >> 29) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(key >> 40) % sessions->buckets;
}

static struct syn_session *find(struct syn_sessions *sessions, const struct syn_packet *request,
                                uint64_t *evicted)
{
    struct syn_session *bucket = &sessions->table[bucket_of(sessions, request) * WAYS];
    struct syn_session *victim = bucket;
    for (int i = 0; i < WAYS; i++) {
        struct syn_session *at = &bucket[i];
        if (at->in_use && at->flow_id == request->flow_id && at->src_nic == request->src_nic &&
            at->dst_nic == request->dst_nic)
            return at;
        if (victim->in_use && (!at->in_use || at->used_ns < victim->used_ns))
            victim = at;
    }
    *evicted += victim->in_use;
    memset(victim, 0, sizeof *victim);
    return victim;
}

static void begin(struct syn_session *session, const struct syn_packet *request)
{
    *session = (struct syn_session){
        .src_nic = request->src_nic,
        .dst_nic = request->dst_nic,
        .flow_id = request->flow_id,
        .key_id = request->key_id,
        .epoch = request->epoch,
        .bitmap = 1,
        .high_seq = request->seq,
        .first_seq = request->seq,
        .count = 1,
        .in_use = 1,
    };
}

/* Sequence numbers wrap: comparisons are serial (RFC 1982). */
static int fresh(struct syn_session *session, uint32_t seq)
{
    int32_t ahead = (int32_t)(seq - session->high_seq);
    if (ahead > 0) {
        session->bitmap = ahead < WINDOW ? session->bitmap << ahead | 1 : 1;
        session->high_seq = seq;
        return 1;
    }
    if (ahead <= -WINDOW)
        return 0;
    uint64_t bit = UINT64_C(1) << -ahead;
    if (session->bitmap & bit)
        return 0;
    session->bitmap |= bit;
    return 1;
}

static void count_haste(struct syn_session *session, int64_t now_ns)
{
    if (now_ns - session->window_ns >= HASTY_NS) {
        session->window_ns = now_ns;
        session->window_count = 0;
    }
    session->window_count++;
}

int syn_session_is_hasty(const struct syn_session *session)
{
    return session->window_count >= HASTY_REQUESTS;
}

struct syn_session *syn_sessions_accept(struct syn_sessions *sessions,
                                        const struct syn_packet *request, uint32_t current_key,
                                        int64_t now_ns, uint64_t *evicted)
{
    struct syn_session *session = find(sessions, request, evicted);
    /* A packet under a newer key than the session's cannot be a recording of an older epoch: this
     * lets an initiator whose clock was set back in again once the key has changed. */
    int rekeyed = request->key_id == current_key && session->key_id != current_key;
    if (!session->in_use || request->epoch > session->epoch ||
        (rekeyed && request->epoch != session->epoch)) {
        begin(session, request);
    } else {
        if (request->epoch < session->epoch || !fresh(session, request->seq))
            return NULL;
        session->count++;
    }
    if (request->key_id == current_key)
        session->key_id = current_key;
    session->used_ns = now_ns;
    count_haste(session, now_ns);
    return session;
}

int syn_session_reply(struct syn_session *session, const struct syn_packet *request,
                      struct syn_packet *reply)
{
    *reply = *request;
    reply->type = SYN_PACKET_REPLY;
    reply->count = session->count;
    reply->high_seq = session->high_seq;
    reply->first_seq = session->first_seq;
    reply->bitmap = session->bitmap;
    memcpy(reply->follow_seq, session->follow_seq, sizeof reply->follow_seq);
    memcpy(reply->follow_t3_ns, session->follow_t3_ns, sizeof reply->follow_t3_ns);
    int given_up = session->count > 2 && session->follow_t3_ns[1] == 0;
    session->follow_seq[1] = session->follow_seq[0];
    session->follow_t3_ns[1] = session->follow_t3_ns[0];
    session->follow_seq[0] = request->seq;
    session->follow_t3_ns[0] = 0;
    return given_up;
}

void syn_session_stamp(struct syn_session *session, uint32_t flow_id, uint32_t seq, int64_t t3_ns)
{
    if (!session->in_use || session->flow_id != flow_id)
        return;
    for (int i = 0; i < 2; i++)
        if (session->follow_seq[i] == seq && session->follow_t3_ns[i] == 0) {
            session->follow_t3_ns[i] = t3_ns;
            return;
        }
}
