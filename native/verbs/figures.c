#include "figures.h"

#include <string.h>

static const int64_t SHORT_NS = 4000000, LONG_NS = 16000000;
enum { MOST_MASK = 1023 };

#define GET(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
/* By one thread at a time: where that is not so, the slot has a flag and the count is a lower bound. */
#define ADD(field, count) SET(field, GET(field) + (count))

static void begin_write(struct syn_qp_slot *slot)
{
    SET(slot->sequence, GET(slot->sequence) | 1);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static void end_write(struct syn_qp_slot *slot)
{
    __atomic_store_n(&slot->sequence, GET(slot->sequence) + 1, __ATOMIC_RELEASE);
}

/* Word by word: the agent may read at the same time. */
static void store(void *to, const void *from, size_t size)
{
    typedef uint64_t __attribute__((may_alias)) word_t;
    for (size_t i = 0; i < size / sizeof(word_t); i++)
        SET(((word_t *)to)[i], ((const word_t *)from)[i]);
}

void figures_begin(struct figures *figures, const struct identity *identity, uint64_t generation,
                   int64_t now_ns)
{
    enum { NAMES = offsetof(struct syn_qp_slot, generation) };
    struct syn_qp_slot *slot = figures->slot, fresh = {
        .generation = generation, .began_ns = now_ns, .number = identity->number,
        .peer_number = identity->peer_number, .send_psn = identity->send_psn,
        .receive_psn = identity->receive_psn, .flags = identity->flags,
    };
    if (slot == NULL)
        return;
    memcpy(fresh.local, identity->local, sizeof fresh.local);
    memcpy(fresh.remote, identity->remote, sizeof fresh.remote);
    memcpy(fresh.device, identity->device, sizeof fresh.device - 1);
    figures->sent = figures->received = (struct sampling){0};
    figures->timed_ns = figures->timed_before_ns = 0;
    fresh.receives_posted = GET(slot->receives_posted); /* before it was ready */
    begin_write(slot);
    SET(slot->state, SYN_QP_READY);
    SET(slot->type, identity->type);
    store((char *)slot + NAMES, (char *)&fresh + NAMES, sizeof fresh - NAMES);
    end_write(slot);
}

void figures_send_psn(struct figures *figures, uint32_t psn)
{
    if (figures->slot == NULL)
        return;
    begin_write(figures->slot);
    SET(figures->slot->send_psn, psn);
    end_write(figures->slot);
}

void figures_flag(struct figures *figures, uint64_t flag)
{
    if (figures->slot && !(GET(figures->slot->flags) & flag))
        __atomic_fetch_or(&figures->slot->flags, flag, __ATOMIC_RELAXED);
}

static void set_state(struct syn_qp_slot *slot, uint16_t state)
{
    begin_write(slot);
    SET(slot->state, state);
    end_write(slot);
}

void figures_fail(struct figures *figures)
{
    if (figures->slot && GET(figures->slot->state) == SYN_QP_READY)
        set_state(figures->slot, SYN_QP_FAILED);
}

void figures_end(struct figures *figures)
{
    if (figures->slot == NULL)
        return;
    set_state(figures->slot, SYN_QP_FREE);
    SET(figures->slot->receives_posted, 0);
}

static void stamp(struct figures *figures, enum syn_qp_ring ring, int64_t at_ns, uint64_t number,
                  uint64_t value)
{
    uint64_t stamped = GET(figures->slot->stamped[ring]);
    struct syn_qp_stamp *to = &figures->rings[ring][stamped % SYN_QP_STAMPS];
    /* Anyone who reads these words sees the count that allows for them. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    SET(to->at_ns, at_ns);
    SET(to->number, (uint32_t)number);
    SET(to->value, value > UINT32_MAX ? UINT32_MAX : (uint32_t)value);
    __atomic_store_n(&figures->slot->stamped[ring], stamped + 1, __ATOMIC_RELEASE);
}

/* Whether message `number` is stamped. An overdue one makes the mask smaller with each message, so
 * that one is stamped soon after a pause. */
static bool is_due(struct sampling *sampling, uint64_t number, int64_t at_ns)
{
    uint32_t mask = GET(sampling->mask);
    int64_t since_ns = at_ns - GET(sampling->stamped_ns);
    if (since_ns > LONG_NS && mask)
        SET(sampling->mask, mask >>= 1);
    if (number & mask)
        return false;
    if (since_ns < SHORT_NS && mask < MOST_MASK)
        SET(sampling->mask, mask << 1 | 1);
    SET(sampling->stamped_ns, at_ns);
    return true;
}

static bool may_be_due(const struct sampling *sampling, uint64_t number, int64_t at_ns)
{
    return !(number & GET(sampling->mask)) || at_ns - GET(sampling->stamped_ns) > LONG_NS;
}

bool figures_stamps_sent(const struct figures *figures, int64_t at_ns)
{
    return may_be_due(&figures->sent, GET(figures->slot->sent), at_ns) ||
           (GET(figures->timed_ns) == 0 && at_ns - GET(figures->timed_before_ns) >= SHORT_NS);
}

bool figures_stamps_received(const struct figures *figures, int64_t at_ns)
{
    return may_be_due(&figures->received, GET(figures->slot->received), at_ns);
}

bool figures_stamps_completed(const struct figures *figures)
{
    return GET(figures->timed_ns) != 0 &&
           GET(figures->slot->completed) >= GET(figures->timed_number);
}

void figures_sent(struct figures *figures, const struct message *message, int64_t at_ns)
{
    struct syn_qp_slot *slot = figures->slot;
    SET(slot->posted_ns, at_ns);
    ADD(slot->bytes_posted, message->bytes + message->written);
    ADD(slot->unannounced, message->writes);
    if (message->signaled) {
        uint64_t number = GET(slot->signaled);
        if (GET(figures->timed_ns) == 0 && at_ns - GET(figures->timed_before_ns) >= SHORT_NS) {
            SET(figures->timed_before_ns, at_ns);
            SET(figures->timed_number, number);
            __atomic_store_n(&figures->timed_ns, at_ns, __ATOMIC_RELEASE);
        }
        SET(slot->signaled, number + 1);
    }
    if (!message->takes_receive) {
        ADD(slot->unannounced, 1);
        return;
    }
    uint64_t number = GET(slot->sent);
    if (number == 0)
        SET(slot->first_sent_ns, at_ns);
    if (is_due(&figures->sent, number, at_ns))
        stamp(figures, SYN_QP_SENT, at_ns, number, message->bytes);
    SET(slot->sent, number + 1);
}

void figures_sent_unstamped(struct figures *figures, const struct message *message, int64_t at_ns)
{
    struct syn_qp_slot *slot = figures->slot;
    SET(slot->posted_ns, at_ns);
    ADD(slot->bytes_posted, message->bytes + message->written);
    ADD(slot->unannounced, message->writes);
    ADD(slot->signaled, 1);
    ADD(slot->sent, 1);
}

void figures_posted_receives(struct figures *figures, uint64_t count)
{
    ADD(figures->slot->receives_posted, count);
}

void figures_received(struct figures *figures, uint64_t bytes, int64_t at_ns)
{
    struct syn_qp_slot *slot = figures->slot;
    uint64_t number = GET(slot->received);
    SET(slot->received_ns, at_ns);
    ADD(slot->bytes_received, bytes);
    if (is_due(&figures->received, number, at_ns))
        stamp(figures, SYN_QP_RECEIVED, at_ns, number, bytes);
    SET(slot->received, number + 1);
}

void figures_received_unstamped(struct figures *figures, uint64_t bytes, int64_t at_ns)
{
    struct syn_qp_slot *slot = figures->slot;
    SET(slot->received_ns, at_ns);
    ADD(slot->bytes_received, bytes);
    ADD(slot->received, 1);
}

void figures_completed(struct figures *figures, int64_t at_ns)
{
    struct syn_qp_slot *slot = figures->slot;
    uint64_t number = GET(slot->completed);
    SET(slot->completed_ns, at_ns);
    int64_t timed_ns = __atomic_load_n(&figures->timed_ns, __ATOMIC_ACQUIRE);
    if (timed_ns && number >= GET(figures->timed_number)) {
        if (number == GET(figures->timed_number) && at_ns >= timed_ns)
            stamp(figures, SYN_QP_COMPLETED, at_ns, number, (uint64_t)(at_ns - timed_ns));
        __atomic_store_n(&figures->timed_ns, 0, __ATOMIC_RELEASE);
    }
    SET(slot->completed, number + 1);
}

void figures_error(struct figures *figures, uint32_t status)
{
    struct syn_qp_slot *slot = figures->slot;
    if (GET(slot->errors) == 0)
        SET(slot->first_error, status);
    ADD(slot->errors, 1);
    figures_fail(figures);
}
