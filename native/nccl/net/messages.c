#include "messages.h"

#include <string.h>

static uint64_t every_chunk(unsigned chunks)
{
    return chunks == MAX_CHUNKS ? UINT64_MAX : (UINT64_C(1) << chunks) - 1;
}

bool send_is_done(const struct send *send)
{
    return send->done == every_chunk(send->chunks);
}

uint64_t chunk_offset(const struct send *send, unsigned chunk)
{
    return chunk * send->chunk_size;
}

uint64_t chunk_length(const struct send *send, unsigned chunk)
{
    uint64_t left = send->size - chunk_offset(send, chunk);
    return left < send->chunk_size ? left : send->chunk_size;
}

bool sender_cleared(struct sender *sender, const struct cts *cts)
{
    if (cts->count < 1 || cts->count > MAX_GROUP)
        return false;
    struct cts *known = &sender->cts[cts->sequence % SLOTS];
    if (cts->sequence <= known->sequence)
        return true;
    if (cts->sequence > sender->next + SLOTS)
        return false;
    known->count = cts->count;
    known->sequence = cts->sequence;
    for (int i = 0; i < cts->count; i++)
        known->offer[i] = cts->offer[i];
    sender->matched[cts->sequence % SLOTS] = 0;
    return true;
}

uint32_t sender_cleared_after_next(const struct sender *sender)
{
    uint32_t bits = 0;
    for (unsigned i = 0; i < SLOTS; i++) {
        uint64_t sequence = sender->next + 1 + i;
        bits |= (uint32_t)(sender->cts[sequence % SLOTS].sequence == sequence) << i;
    }
    return bits;
}

static void add_todo(struct sender *sender, const struct send *send, unsigned count)
{
    if (sender->todo == 0 || send->sequence < sender->todo_from)
        sender->todo_from = send->sequence;
    sender->todo += count;
}

uint64_t chunk_size_for(uint64_t size, int rails, uint64_t least, uint64_t most)
{
    enum { WHOLE = 4096 }; /* bytes of which all chunks but the last are multiples */
    if (size <= least || least == most)
        return least;
    uint64_t each = ((size - 1) / (unsigned)rails / WHOLE + 1) * WHOLE;
    return each < least ? least : each > most ? most : each;
}

/* How many chunks a message is cut into, twice as large ones until they are few enough. */
static uint8_t cut(uint64_t size, uint64_t *chunk_size)
{
    if (size <= *chunk_size)
        return 1;
    while ((size - 1) / *chunk_size >= MAX_CHUNKS)
        *chunk_size *= 2;
    return (uint8_t)((size - 1) / *chunk_size + 1);
}

struct send *sender_match(struct sender *sender, int tag, const void *data, uint64_t size,
                          void *memory, uint64_t chunk_size)
{
    uint64_t sequence = sender->next + 1;
    const struct cts *cts = &sender->cts[sequence % SLOTS];
    uint8_t *matched = &sender->matched[sequence % SLOTS];
    if (cts->sequence != sequence)
        return NULL;
    for (int i = 0; i < cts->count; i++) {
        struct send *send = &sender->send[sequence % SLOTS][i];
        if ((*matched >> i & 1) || cts->offer[i].tag != tag)
            continue;
        if (send->used)
            return NULL; /* NCCL has not asked for the one before yet */
        uint8_t chunks = cut(size, &chunk_size);
        send->used = true;
        send->place = (uint8_t)i;
        send->chunks = chunks;
        send->sequence = sequence;
        send->data = data;
        send->size = size;
        send->chunk_size = chunk_size;
        send->memory = memory;
        send->offer = cts->offer[i];
        send->todo = every_chunk(chunks);
        send->done = 0;
        memset(send->posted, 0, sizeof send->posted);
        memset(send->lost, 0, sizeof send->lost);
        add_todo(sender, send, chunks);
        *matched |= (uint8_t)(1 << i);
        if (*matched == (1 << cts->count) - 1)
            sender->next++;
        return send;
    }
    return NULL;
}

typedef void visit(struct sender *sender, struct send *send, int rail, const void *with);

/* Sends that are not complete. */
static void each_send(struct sender *sender, visit *visit, int rail, const void *with)
{
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < MAX_GROUP; i++) {
            struct send *send = &sender->send[s][i];
            if (send->used && !send_is_done(send))
                visit(sender, send, rail, with);
        }
}

bool sender_next_chunk(struct sender *sender, struct send **send, unsigned *chunk)
{
    for (; sender->todo; sender->todo_from++) {
        uint64_t s = sender->todo_from;
        for (int i = 0; i < MAX_GROUP; i++) {
            *send = &sender->send[s % SLOTS][i];
            if ((*send)->todo && (*send)->sequence == s) {
                *chunk = (unsigned)__builtin_ctzll((*send)->todo);
                return true;
            }
        }
    }
    return false;
}

void sender_posted(struct sender *sender, struct send *send, unsigned chunk, int rail)
{
    sender->todo--;
    send->todo &= ~(UINT64_C(1) << chunk);
    send->posted[rail] |= UINT64_C(1) << chunk;
}

void sender_acknowledged(struct send *send, unsigned chunk, int rail)
{
    uint64_t bit = UINT64_C(1) << chunk;
    if (send->posted[rail] & bit) {
        send->posted[rail] &= ~bit;
        send->done |= bit;
    }
}

static void lose(struct sender *sender, struct send *send, int rail, const void *with)
{
    (void)sender, (void)with;
    send->lost[rail] |= send->posted[rail];
    send->posted[rail] = 0;
}

void sender_lost(struct sender *sender, int rail)
{
    each_send(sender, lose, rail, NULL);
}

struct report {
    const struct receipt *receipts;
    size_t count;
    uint64_t posted;
    unsigned *replayed;
};

/* What the receiver has of a send: all of it if it does not name the receive, nothing if it had not
 * posted that yet when it reported: we may have sent over a rail that it had left before. */
static uint64_t has(const struct send *send, const struct report *report)
{
    if (send->sequence > report->posted)
        return 0;
    for (size_t i = 0; i < report->count; i++)
        if (report->receipts[i].sequence == send->sequence)
            return report->receipts[i].got[send->place];
    return every_chunk(send->chunks);
}

static void replay(struct sender *sender, struct send *send, int rail, const void *with)
{
    const struct report *report = with;
    uint64_t got = has(send, report), missing = send->lost[rail] & ~got;
    unsigned count = (unsigned)__builtin_popcountll(missing);
    send->done |= send->lost[rail] & got;
    send->todo |= missing;
    add_todo(sender, send, count);
    *report->replayed += count;
    send->lost[rail] = 0;
}

unsigned sender_replay(struct sender *sender, int rail, const struct receipt *receipts, size_t count,
                       uint64_t posted)
{
    unsigned replayed = 0;
    each_send(sender, replay, rail, &(struct report){receipts, count, posted, &replayed});
    return replayed;
}

static void conclude(struct sender *sender, struct send *send, int rail, const void *with)
{
    (void)rail;
    if (has(send, with) == every_chunk(send->chunks)) {
        sender->todo -= (unsigned)__builtin_popcountll(send->todo);
        send->done = every_chunk(send->chunks);
        send->todo = 0;
    }
}

void sender_concluded(struct sender *sender, const struct receipt *receipts, size_t count,
                      uint64_t posted)
{
    each_send(sender, conclude, 0, &(struct report){receipts, count, posted, NULL});
}

struct receive *receiver_post(struct receiver *receiver, int count)
{
    uint64_t sequence = receiver->next + 1;
    struct receive *receive = &receiver->receive[sequence % SLOTS];
    if (receive->used)
        return NULL;
    receive->used = true;
    receive->complete = false;
    receive->count = (uint8_t)count;
    receive->cts_rail = CTS_TODO;
    receive->sequence = sequence;
    receiver->next = sequence;
    if (!receiver->waiting)
        receiver->cts_from = sequence;
    receiver->waiting = true;
    return receive;
}

struct receive *receiver_next_cts(struct receiver *receiver)
{
    for (; receiver->waiting && receiver->cts_from <= receiver->next; receiver->cts_from++) {
        struct receive *receive = &receiver->receive[receiver->cts_from % SLOTS];
        if (receive->used && !receive->complete && receive->cts_rail == CTS_TODO)
            return receive;
    }
    receiver->waiting = false;
    return NULL;
}

void receiver_fill_cts(const struct receive *receive, struct cts *cts)
{
    cts->kind = RECORD_CTS;
    cts->count = receive->count;
    memset(cts->reserved, 0, sizeof cts->reserved);
    cts->sequence = receive->sequence;
    for (int i = 0; i < receive->count; i++)
        cts->offer[i] = (struct offer){.address = (uint64_t)(uintptr_t)receive->place[i].data,
                                       .size = receive->place[i].offered,
                                       .tag = receive->place[i].tag};
}

static bool has_everything(const struct receive *receive)
{
    for (int i = 0; i < receive->count; i++)
        if (receive->place[i].chunks == 0 ||
            receive->place[i].got != every_chunk(receive->place[i].chunks))
            return false;
    return true;
}

bool receiver_arrived(struct receiver *receiver, const struct header *header)
{
    struct receive *receive = &receiver->receive[header->sequence % SLOTS];
    if (receive->sequence != header->sequence || header->place >= receive->count)
        return false;
    struct place *place = &receive->place[header->place];
    if (header->chunks < 1 || header->chunks > MAX_CHUNKS || header->chunk >= header->chunks ||
        header->size > place->offered || (place->chunks && place->chunks != header->chunks))
        return false;
    uint64_t bit = UINT64_C(1) << header->chunk;
    if (place->got & bit) {
        receiver->duplicates++;
        return false;
    }
    place->chunks = header->chunks;
    place->size = header->size;
    place->got |= bit;
    receive->complete = has_everything(receive);
    return true;
}

static bool is_cleared(uint64_t sequence, uint64_t posted, uint32_t bits)
{
    return sequence <= posted || (sequence <= posted + SLOTS && bits >> (sequence - posted - 1) & 1);
}

void receiver_replay(struct receiver *receiver, int rail, uint64_t posted, uint32_t bits)
{
    for (int i = 0; i < SLOTS; i++) {
        struct receive *receive = &receiver->receive[i];
        if (receive->cts_rail == rail && !is_cleared(receive->sequence, posted, bits)) {
            receive->cts_rail = CTS_TODO;
            if (receive->sequence < receiver->cts_from)
                receiver->cts_from = receive->sequence;
            receiver->waiting = true;
        }
    }
}

size_t receiver_report(const struct receiver *receiver, struct receipt *receipts)
{
    size_t count = 0;
    for (int i = 0; i < SLOTS; i++) {
        const struct receive *receive = &receiver->receive[i];
        if (!receive->used || receive->complete)
            continue;
        receipts[count] = (struct receipt){.sequence = receive->sequence};
        for (int j = 0; j < receive->count; j++)
            receipts[count].got[j] = receive->place[j].got;
        count++;
    }
    return count;
}
