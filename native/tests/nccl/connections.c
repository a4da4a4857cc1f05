#include "program.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

enum { AT_ONCE = 6, RECEIVES = 32, SENDS = RECEIVES * GROUP, KEPT = 24, HANG_MS = 240000,
       WAIT_MS = 300 };
enum { SENDER, RECEIVER };
enum { ARGUMENT = 4, USAGE = 5, REMOTE = 6 }; /* ncclResult_t */

enum ending { SENDER_FIRST, RECEIVER_FIRST, SENDER_ABORTS, RECEIVER_ABORTS, TOO_LARGE,
              LISTENER_CLOSES, ENDINGS };
static const char *const NAMES[ENDINGS] = {"sender first", "receiver first", "sender aborts",
                                           "receiver aborts", "too large", "listener closes"};

struct sent { void *request; struct buffer buffer; int group, place; };

struct received {
    void *request; /* NULL: complete */
    int group;
    struct plan plan;
    struct buffer buffer[GROUP];
};

struct connection {
    bool alive;
    int number, device[2];
    uint64_t key;
    enum ending ending;
    int groups, window, abort_after; /* groups; at the abort so many were posted */
    char handle[128];
    void *listener, *comm[2];
    bool closed[2]; /* or it will never be there */
    bool may_fail;  /* an end has closed before everything was done */
    bool failed[2]; /* a call did */
    int64_t rests_until_ms[2];
    int64_t begun_ms, happened_ms; /* something came to an end */
    int posted, taken;           /* receives, of groups */
    int sending, place;          /* the next send: its group, and which one of that */
    bool has_next[2];            /* prepared, and not yet accepted: */
    struct sent next_sent;
    struct received next_received;
    struct { int group; uint8_t places; } lacking[RECEIVES]; /* of the receiver as it closed */
    int lacking_count;
    int sent_count, received_count, kept_count;
    struct sent sent[SENDS];
    struct received received[RECEIVES], kept[KEPT];
};

/* Of each thread of NCCL's: */
static _Thread_local struct connection connections[AT_ONCE];
static _Thread_local int64_t completed_ms;
static atomic_uint_least64_t completed; /* of all */

static _Noreturn void fail(const struct connection *c, const char *what, int result)
{
    fprintf(stderr, "connection %d (%s): %s: %d\n", c->number, NAMES[c->ending], what, result);
    for (int i = 0; i < AT_ONCE; i++) {
        const struct connection *one = &connections[i];
        if (one->alive)
            fprintf(stderr, "  %d (%s): %d of %d groups posted, %d taken, sends %d/%d, outstanding %d "
                    "and %d%s%s%s%s\n", one->number, NAMES[one->ending], one->posted, one->groups,
                    one->taken, one->sending, one->place, one->sent_count, one->received_count,
                    one->comm[SENDER] ? ", sender" : "", one->comm[RECEIVER] ? ", receiver" : "",
                    one->closed[SENDER] ? ", sender closed" : "",
                    one->closed[RECEIVER] ? ", receiver closed" : "");
    }
    fprintf(stderr, "seed %" PRIu64 ", v%d\n", program.seed, program.net.version);
    _exit(1);
}

static void happened(struct connection *c)
{
    atomic_fetch_add(&completed, 1);
    c->happened_ms = completed_ms = now_ms();
}

static void start(struct connection *c, int number)
{
    int turned = (int)draw(2);
    *c = (struct connection){.alive = true, .number = number, .begun_ms = now_ms(), .device = {turned, !turned},
                             .key = program.seed * 1000003u + (uint64_t)(number + 1000 * program_thread),
                             .ending = (enum ending)draw(one_in(2) ? 2 : ENDINGS),
                             .groups = 1 + (int)draw(one_in(4) ? 150 : 30),
                             .window = one_in(2) ? RECEIVES : 1 + (int)draw(RECEIVES)};
    if (program.layout->ports[1][0] == program.layout->ports[0][0])
        c->device[0] = c->device[1] = 0;
    if (program.layout->rails == NULL) /* merged ones */
        c->device[0] += 4, c->device[1] += 4;
    c->abort_after = (int)draw((uint64_t)c->groups + 1);
    int result = drive_listen(&program.net, c->device[RECEIVER], c->handle, &c->listener);
    if (result)
        fail(c, "listen", result);
}

/* Of a call of one end: false if it failed and may. */
static bool is_well(struct connection *c, int end, int result, const char *call)
{
    if (result == 0)
        return true;
    if (!c->may_fail || result != REMOTE)
        fail(c, call, result);
    c->failed[end] = true;
    return false;
}

static void stop_listening(struct connection *c)
{
    int result = drive_close(&program.net, SLOT_CLOSE_LISTEN, c->listener);
    if (result)
        fail(c, "close of a listener", result);
    c->listener = NULL;
    if (c->comm[RECEIVER] == NULL) {
        c->may_fail = true;
        c->closed[RECEIVER] = true;
    }
    happened(c);
}

static void meet(struct connection *c, int end)
{
    if (c->ending == LISTENER_CLOSES && c->comm[RECEIVER] == NULL && one_in(40)) {
        stop_listening(c);
        return;
    }
    int result = end == SENDER ? drive_connect(&program.net, c->device[SENDER], c->handle,
                                               &c->comm[SENDER])
                               : drive_accept(&program.net, c->listener, &c->comm[RECEIVER]);
    c->may_fail |= result && now_ms() - c->begun_ms > 9000; /* as a peer that stalls, on a busy machine */
    if (result && !c->may_fail)
        fail(c, "connecting", result);
    if (result && end == RECEIVER)
        stop_listening(c);
    c->closed[end] = result != 0;
    if (result || c->comm[end])
        happened(c);
}

/* Nothing has been written since it was complete. */
static void look_again(struct connection *c, const struct received *received)
{
    for (int p = 0; p < received->plan.count; p++)
        if (!buffer_has(&received->buffer[p], c->key, received->group, p, received->plan.size[p],
                        "looked at"))
            fail(c, "what was complete has changed", received->group);
}

static void end_received(struct connection *c, struct received *received)
{
    for (int p = 0; p < received->plan.count; p++)
        buffer_end(&received->buffer[p], c->comm[RECEIVER]);
}

static void keep(struct connection *c, const struct received *received)
{
    struct received *to = &c->kept[c->kept_count < KEPT ? c->kept_count++ : (int)draw(KEPT)];
    if (to->plan.count) {
        look_again(c, to);
        end_received(c, to);
    }
    *to = *received;
}

static void post_receive(struct connection *c)
{
    struct received *next = &c->next_received;
    void *data[GROUP], *memories[GROUP];
    if (c->posted == c->groups || (c->received_count >= c->window && c->window < RECEIVES))
        return;
    if (!c->has_next[RECEIVER]) {
        *next = (struct received){.group = c->posted, .plan = plan_of(c->key, c->posted)};
        for (int p = 0; p < next->plan.count; p++)
            buffer_make(&next->buffer[p], c->comm[RECEIVER], next->plan.offered[p]);
        c->has_next[RECEIVER] = true;
    }
    for (int p = 0; p < next->plan.count; p++) {
        data[p] = next->buffer[p].data;
        memories[p] = next->buffer[p].memory;
    }
    int result = drive_receive(&program.net, c->comm[RECEIVER], next->plan.count, data,
                               next->plan.offered, next->plan.tag, memories, &next->request);
    if (!is_well(c, RECEIVER, result, "receive") || next->request == NULL)
        return;
    if (c->received_count == RECEIVES)
        fail(c, "more receives than there are places", c->received_count);
    c->received[c->received_count++] = *next;
    c->has_next[RECEIVER] = false;
    c->posted++;
}

/* A tag for which there is no receive, or none any more: it has to wait. */
static void send_what_nobody_wants(struct connection *c)
{
    void *request = NULL;
    int result = drive_send(&program.net, c->comm[SENDER], c->next_sent.buffer.data, 0, 1 << 30,
                            c->next_sent.buffer.memory, &request);
    if (is_well(c, SENDER, result, "send") && request)
        fail(c, "a send without a receive is taken", 0);
}

static void post_send(struct connection *c)
{
    struct sent *next = &c->next_sent;
    if (c->sending == c->groups)
        return;
    struct plan plan = plan_of(c->key, c->sending);
    int place = plan.order[c->place];
    size_t size = plan.size[place];
    if (!c->has_next[SENDER]) {
        *next = (struct sent){.group = c->sending, .place = place};
        buffer_make(&next->buffer, c->comm[SENDER], size);
        buffer_fill(&next->buffer, c->key, c->sending, place);
        c->has_next[SENDER] = true;
    }
    if (one_in(16))
        send_what_nobody_wants(c);
    bool too_large = c->ending == TOO_LARGE && c->sending >= c->abort_after;
    int result = drive_send(&program.net, c->comm[SENDER], next->buffer.data,
                            too_large ? plan.offered[place] + 1 : size, plan.tag[place],
                            next->buffer.memory, &next->request);
    if (too_large && result == USAGE) {
        c->may_fail = c->failed[SENDER] = true;
        return;
    }
    if (!is_well(c, SENDER, result, "send") || next->request == NULL)
        return;
    if (too_large || c->sent_count == SENDS)
        fail(c, "a send is taken that has no room", c->sent_count);
    c->sent[c->sent_count++] = *next;
    c->has_next[SENDER] = false;
    if (++c->place == plan.count) {
        c->place = 0;
        c->sending++;
    }
}

static void take_send(struct connection *c, int i)
{
    int done = 0, sizes[GROUP];
    struct sent *one = &c->sent[i];
    int result = drive_test(&program.net, one->request, &done, sizes);
    if (!is_well(c, SENDER, result, "test of a send") || !done)
        return;
    if (sizes[0] != (int)one->buffer.size)
        fail(c, "size of a send", sizes[0]);
    for (int j = 0; j < c->lacking_count; j++)
        if (c->lacking[j].group == one->group && c->lacking[j].places >> one->place & 1)
            fail(c, "a send is said to be done, of which the receiver lacks some", one->group);
    memset(one->buffer.data, 0x33, one->buffer.size);
    buffer_end(&one->buffer, c->comm[SENDER]);
    *one = c->sent[--c->sent_count];
    happened(c);
}

static void take_received(struct connection *c, int i)
{
    int done = 0, sizes[GROUP];
    struct received *one = &c->received[i];
    int result = drive_test(&program.net, one->request, &done, sizes);
    if (!is_well(c, RECEIVER, result, "test of a receive") || !done)
        return;
    for (int p = 0; p < one->plan.count; p++)
        if (sizes[p] != (int)one->plan.size[p])
            fail(c, "size of a receive", sizes[p]);
    look_again(c, one);
    keep(c, one);
    *one = c->received[--c->received_count];
    c->taken++;
    happened(c);
}

static void test_one(struct connection *c, int end)
{
    int count = end == SENDER ? c->sent_count : c->received_count;
    if (count)
        (end == SENDER ? take_send : take_received)(c, (int)draw((uint64_t)count));
}

/* Of an end that closes. Its NIC may write until it has closed, and not later. */
static void free_all(struct connection *c, int end)
{
    void *comm = c->comm[end];
    for (int i = 0; end == SENDER && i < c->sent_count; i++)
        buffer_end(&c->sent[i].buffer, comm);
    if (end == SENDER && c->has_next[SENDER])
        buffer_end(&c->next_sent.buffer, comm);
    for (int i = 0; end == RECEIVER && i < c->received_count; i++)
        end_received(c, &c->received[i]);
    if (end == RECEIVER && c->has_next[RECEIVER])
        end_received(c, &c->next_received);
    for (int i = 0; end == RECEIVER && i < c->kept_count; i++) {
        look_again(c, &c->kept[i]);
        end_received(c, &c->kept[i]);
    }
    *(end == SENDER ? &c->sent_count : &c->received_count) = 0;
    c->kept_count = end == SENDER ? c->kept_count : 0;
    c->has_next[end] = false;
}

/* What of outstanding receives is not there: no send of it can be done. */
static void note_lacking(struct connection *c)
{
    for (int i = 0; i < c->received_count; i++) {
        const struct received *one = &c->received[i];
        c->lacking[i].group = one->group;
        for (int p = 0; p < one->plan.count; p++)
            if (!buffer_has(&one->buffer[p], c->key, one->group, p, one->plan.size[p], NULL))
                c->lacking[i].places |= (uint8_t)(1 << p);
    }
    c->lacking_count = c->received_count;
}

static bool has_done_all(const struct connection *c, int end)
{
    return end == SENDER ? c->sending == c->groups && c->sent_count == 0 : c->taken == c->groups;
}

static void close_end(struct connection *c, int end)
{
    if (end == RECEIVER && c->listener)
        stop_listening(c);
    c->may_fail |= !has_done_all(c, end);
    if (end == SENDER) /* as NCCL does; a receiver's peer may still write */
        free_all(c, end);
    int result = drive_close(&program.net, end == SENDER ? SLOT_CLOSE_SEND : SLOT_CLOSE_RECEIVE,
                             c->comm[end]);
    if (result)
        fail(c, "close", result);
    if (end == RECEIVER) {
        note_lacking(c);
        free_all(c, end);
    }
    c->closed[end] = true;
    happened(c);
}

/* Whether an end closes now: it gives up, or has done all. */
static bool is_over(const struct connection *c, int end)
{
    enum ending aborts = end == SENDER ? SENDER_ABORTS : RECEIVER_ABORTS;
    enum ending waits = end == SENDER ? RECEIVER_FIRST : SENDER_FIRST;
    if (c->ending == aborts && (end == SENDER ? c->sending : c->posted) >= c->abort_after)
        return one_in(30);
    /* NCCL does not call a receiver that has all, and a rail may need it: so not for ever. */
    bool waited = c->closed[!end] || now_ms() - c->happened_ms > WAIT_MS;
    return has_done_all(c, end) && (c->ending != waits || waited) && one_in(30);
}

/* What is outstanding after a call has failed: each has come to an end, or says the same. */
static void end_failed(struct connection *c, int end)
{
    for (int i = (end == SENDER ? c->sent_count : c->received_count) - 1; i >= 0; i--)
        (end == SENDER ? take_send : take_received)(c, i);
    close_end(c, end);
}

static void act(struct connection *c, int end)
{
    int64_t at_ms = now_ms();
    if (c->closed[end] || at_ms < c->rests_until_ms[end])
        return;
    if (one_in(3000))
        c->rests_until_ms[end] = at_ms + (int64_t)draw(one_in(10) ? 300 : 20);
    if (c->comm[end] == NULL)
        meet(c, end);
    else if (c->failed[end])
        end_failed(c, end);
    else if (is_over(c, end))
        close_end(c, end);
    else if (end == RECEIVER && c->listener && one_in(20))
        stop_listening(c);
    else
        for (uint64_t times = 1 + draw(4); times > 0 && !c->failed[end]; times--)
            if (one_in(3))
                (end == SENDER ? post_send : post_receive)(c);
            else
                test_one(c, end);
}

static bool is_connecting(void)
{
    bool found = false;
    for (int i = 0; i < AT_ONCE; i++)
        found |= connections[i].alive && (!connections[i].comm[SENDER] || !connections[i].comm[RECEIVER]);
    return found;
}

void run_connections(int total, bool faulty)
{
    int started = 0, ended = 0;
    completed_ms = now_ms();
    while (ended < total) {
        struct connection *c = &connections[draw(AT_ONCE)];
        if (!c->alive && started < total && !trouble_keeps_from_connecting() && one_in(20))
            start(c, started++);
        if (c->alive) {
            act(c, (int)draw(2));
            c->alive = !c->closed[SENDER] || !c->closed[RECEIVER];
            ended += !c->alive;
        }
        if (faulty)
            trouble(now_ms(), atomic_load(&completed), is_connecting());
        if (now_ms() - completed_ms > HANG_MS)
            fail(c, "nothing comes to an end any more", ended);
    }
    if (faulty)
        trouble_ends();
}
