/* Chunks of messages, and what each end knows of them: pure. */
#include "check.h"
#include "messages.h"

#include <string.h>
#include <time.h>

static struct sender sender;
static struct receiver receiver;
static char data[64 * 4096];

static struct send *one_message(uint64_t size)
{
    memset(&sender, 0, sizeof sender);
    memset(&receiver, 0, sizeof receiver);
    struct receive *receive = receiver_post(&receiver, 1);
    receive->place[0] = (struct place){.data = data, .offered = sizeof data, .tag = 5};
    struct cts cts;
    receiver_fill_cts(receive, &cts);
    CHECK(sender_match(&sender, 5, data, size, NULL, 4096) == NULL); /* not cleared yet */
    CHECK(sender_cleared(&sender, &cts));
    CHECK(sender_match(&sender, 6, data, size, NULL, 4096) == NULL); /* another tag */
    return sender_match(&sender, 5, data, size, NULL, 4096);
}

static struct header header_of(const struct send *send, unsigned chunk)
{
    return (struct header){.kind = RECORD_HEADER, .place = send->place, .chunk = (uint8_t)chunk,
                           .chunks = send->chunks, .sequence = send->sequence, .size = send->size};
}

/* Of four chunks on a rail, one was acknowledged, one arrived without that, two were lost. */
static void only_what_lacks_is_replayed(void)
{
    struct send *send = one_message(4 * 4096);
    for (unsigned i = 0; i < 4; i++)
        sender_posted(&sender, send, i, 0);
    struct header header = header_of(send, 0);
    CHECK(receiver_arrived(&receiver, &header));
    sender_acknowledged(send, 0, 0);
    header.chunk = 2;
    CHECK(receiver_arrived(&receiver, &header));
    CHECK(!receiver_arrived(&receiver, &header)); /* a chunk counts once */
    CHECK_EQUAL(receiver.duplicates, 1);
    sender_lost(&sender, 0);
    struct send *next;
    unsigned chunk;
    CHECK(!sender_next_chunk(&sender, &next, &chunk)); /* nothing before the receiver's report */
    struct receipt receipts[SLOTS];
    size_t count = receiver_report(&receiver, receipts);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(sender_replay(&sender, 0, receipts, count, 1), 2);
    CHECK_EQUAL(send->todo, 1 << 1 | 1 << 3);
    CHECK(sender_next_chunk(&sender, &next, &chunk) && chunk == 1);
    CHECK(!receiver.receive[1].complete);
}

/* All of it had arrived, only the acknowledgements had not: the buffer may be another's by now. */
static void what_is_complete_is_not_replayed(void)
{
    struct send *send = one_message(2 * 4096);
    for (unsigned i = 0; i < 2; i++) {
        struct header header = header_of(send, i);
        sender_posted(&sender, send, i, 1);
        CHECK(receiver_arrived(&receiver, &header));
    }
    CHECK(receiver.receive[1].complete);
    sender_lost(&sender, 1);
    CHECK(!send_is_done(send));
    CHECK_EQUAL(sender_replay(&sender, 1, NULL, receiver_report(&receiver, NULL), 1), 0);
    CHECK(send_is_done(send));
}

/* The receiver had left the rail before it posted this receive: its report cannot name it. */
static void what_was_posted_after_the_report_is_replayed(void)
{
    struct send *send = one_message(2 * 4096);
    sender_posted(&sender, send, 0, 1);
    sender_posted(&sender, send, 1, 1);
    sender_lost(&sender, 1);
    CHECK_EQUAL(sender_replay(&sender, 1, NULL, 0, 0), 2);
    CHECK(!send_is_done(send));
}

/* The receiver has ended: done is only what it had, not what it never asked for or did not get. */
static void an_ended_receiver_concludes_what_it_had(void)
{
    struct send *send = one_message(2 * 4096);
    struct receipt receipt = {.sequence = 1, .got = {1}};
    sender_posted(&sender, send, 0, 0);
    sender_concluded(&sender, NULL, 0, 0);
    CHECK(!send_is_done(send));
    sender_concluded(&sender, &receipt, 1, 1);
    CHECK(!send_is_done(send));
    CHECK_EQUAL(sender.todo, 1);
    sender_concluded(&sender, NULL, 0, 1);
    CHECK(send_is_done(send));
    CHECK_EQUAL(sender.todo, 0);
}

/* An acknowledgement of what was lost with its rail says nothing: the receiver does. */
static void late_acknowledgements_do_not_count(void)
{
    struct send *send = one_message(4096);
    sender_posted(&sender, send, 0, 0);
    sender_lost(&sender, 0);
    sender_acknowledged(send, 0, 0);
    CHECK(!send_is_done(send));
    CHECK_EQUAL(sender_replay(&sender, 0, NULL, 0, 0), 1);
    sender_acknowledged(send, 0, 0);
    CHECK(!send_is_done(send));
    sender_posted(&sender, send, 0, 1);
    sender_acknowledged(send, 0, 1);
    CHECK(send_is_done(send));
}

static struct receive *next_cts(int rail)
{
    struct receive *receive = receiver_next_cts(&receiver);
    if (receive)
        receive->cts_rail = (int8_t)rail;
    return receive;
}

/* In order, again after their rail was lost, and not for what is complete. */
static void receives_are_asked_for(void)
{
    memset(&receiver, 0, sizeof receiver);
    struct receive *receives[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        receives[i] = receiver_post(&receiver, 1);
        receives[i]->place[0] = (struct place){.data = data, .offered = sizeof data};
    }
    CHECK(receiver_post(&receiver, 1) == NULL); /* as many as there are places */
    for (int i = 0; i < SLOTS - 1; i++)
        CHECK(next_cts(i % 2) == receives[i]);
    receiver_replay(&receiver, 0, 0, 0); /* while one is still to be asked for */
    CHECK(receiver_next_cts(&receiver) == receives[0]);
    struct header header = {.kind = RECORD_HEADER, .chunks = 1, .sequence = 1};
    CHECK(receiver_arrived(&receiver, &header));
    CHECK(receives[0]->complete);
    for (int i = 2; i < SLOTS - 1; i += 2)
        CHECK(next_cts(1) == receives[i]);
    CHECK(next_cts(1) == receives[SLOTS - 1]);
    CHECK(next_cts(1) == NULL);
    receiver_replay(&receiver, 0, 0, 0);
    CHECK(next_cts(1) == NULL);
    receives[0]->used = false; /* NCCL has asked for it */
    CHECK(!receiver_arrived(&receiver, &header));
    CHECK(receiver_post(&receiver, 1) == receives[0]);
    CHECK(next_cts(0) == receives[0]);
    receiver_replay(&receiver, 0, 0, 0);
    CHECK(next_cts(1) == receives[0]);
    CHECK(next_cts(1) == NULL);
}

/* A report has all places of the largest group, and touches nothing behind itself. */
static void a_whole_group_is_reported(void)
{
    struct receipt receipts[2];
    memset(&receiver, 0, sizeof receiver);
    memset(receipts, 0xee, sizeof receipts);
    struct receive *receive = receiver_post(&receiver, MAX_GROUP);
    for (uint8_t i = 0; i < MAX_GROUP; i++) {
        struct header header = {.kind = RECORD_HEADER, .place = i, .chunks = 9, .chunk = i, .sequence = 1};
        receive->place[i] = (struct place){.data = data, .offered = sizeof data};
        CHECK(receiver_arrived(&receiver, &header));
    }
    CHECK_EQUAL(receiver_report(&receiver, receipts), 1);
    CHECK_EQUAL(receipts[0].sequence, 1);
    for (int i = 0; i < MAX_GROUP; i++)
        CHECK_EQUAL(receipts[0].got[i], 1 << i);
    CHECK_EQUAL(receipts[1].sequence, 0xeeeeeeeeeeeeeeee);
}

/* Of a rail that was lost only what the sender has not read: all others it has matched, or has ahead. */
static void only_unread_receives_are_asked_for_again(void)
{
    struct cts cts;
    memset(&sender, 0, sizeof sender);
    memset(&receiver, 0, sizeof receiver);
    for (int i = 1; i <= SLOTS; i++) {
        struct receive *receive = receiver_post(&receiver, 1);
        receive->place[0] = (struct place){.data = data, .offered = sizeof data};
        receiver_fill_cts(next_cts(i % 2), &cts);
        if (i == 7 || i == 32) /* one is lost, and the last one */
            continue;
        CHECK(sender_cleared(&sender, &cts));
        if (i <= 3)
            CHECK(sender_match(&sender, 0, data, 0, NULL, 4096) != NULL);
    }
    CHECK_EQUAL(sender.next, 3);
    uint32_t bits = sender_cleared_after_next(&sender);
    CHECK_EQUAL(bits, 0x0ffffff7);
    receiver_replay(&receiver, 1, sender.next, bits);
    CHECK_EQUAL(next_cts(1)->sequence, 7);
    CHECK(next_cts(1) == NULL);
    receiver_replay(&receiver, 0, sender.next, bits);
    CHECK_EQUAL(next_cts(0)->sequence, 32);
    CHECK(next_cts(0) == NULL);
    receiver.receive[1].used = false; /* the first is complete, and another one in its place: */
    CHECK_EQUAL(receiver_post(&receiver, 1)->sequence, SLOTS + 1);
    CHECK(next_cts(1) != NULL);
    receiver_replay(&receiver, 1, 0, UINT32_MAX); /* beyond what the report can name */
    CHECK_EQUAL(next_cts(1)->sequence, SLOTS + 1);
    CHECK(next_cts(1) == NULL);
    receiver_replay(&receiver, 1, 1, UINT32_MAX);
    CHECK(next_cts(1) == NULL);
}

static void sizes(void)
{
    struct send *send = one_message(0);
    CHECK_EQUAL(send->chunks, 1);
    CHECK_EQUAL(chunk_length(send, 0), 0);
    send = one_message(64 * 4096);
    CHECK_EQUAL(send->chunks, 64);
    CHECK_EQUAL(send->todo, UINT64_MAX);
    send = one_message(64 * 4096 + 8);
    CHECK_EQUAL(send->chunk_size, 8192);
    uint64_t sum = 0;
    for (unsigned i = 0; i < send->chunks; i++) {
        CHECK_EQUAL(chunk_offset(send, i), sum);
        sum += chunk_length(send, i);
    }
    CHECK_EQUAL(sum, send->size);
}

static void a_message_has_a_chunk_for_each_rail(void)
{
    enum { LEAST = 1 << 18, MOST = 1 << 20 };
    CHECK_EQUAL(chunk_size_for(0, 2, LEAST, MOST), LEAST);
    CHECK_EQUAL(chunk_size_for(LEAST, 2, LEAST, MOST), LEAST);
    CHECK_EQUAL(chunk_size_for(LEAST + 8, 2, LEAST, MOST), LEAST); /* not two small ones */
    CHECK_EQUAL(chunk_size_for(1 << 20, 2, LEAST, MOST), 1 << 19);
    CHECK_EQUAL(chunk_size_for((1 << 20) + 8, 2, LEAST, MOST), (1 << 19) + 4096);
    CHECK_EQUAL(chunk_size_for(3 << 20, 4, LEAST, MOST), 3 << 18);
    CHECK_EQUAL(chunk_size_for(1 << 30, 2, LEAST, MOST), MOST);
    CHECK_EQUAL(chunk_size_for(1 << 20, 2, 8192, 8192), 8192); /* as set */
}

static void nothing_foreign_is_believed(void)
{
    struct send *send = one_message(4096);
    struct header good = header_of(send, 0), header;
    header = good, header.sequence++;
    CHECK(!receiver_arrived(&receiver, &header));
    header = good, header.place = 1, header.size = 0;
    CHECK(!receiver_arrived(&receiver, &header));
    header = good, header.chunks = 65;
    CHECK(!receiver_arrived(&receiver, &header));
    header = good, header.chunk = 1;
    CHECK(!receiver_arrived(&receiver, &header));
    header = good, header.size = sizeof data + 1;
    CHECK(!receiver_arrived(&receiver, &header));
    CHECK(receiver_arrived(&receiver, &good));
    good = header_of(one_message(2 * 4096), 0);
    CHECK(receiver_arrived(&receiver, &good));
    header = good, header.chunk = 1, header.chunks = 3; /* another message's */
    CHECK(!receiver_arrived(&receiver, &header));
    struct cts cts = {.kind = RECORD_CTS, .count = 9, .sequence = 2};
    CHECK(!sender_cleared(&sender, &cts));
    cts.count = 0;
    CHECK(!sender_cleared(&sender, &cts));
    cts.count = 1, cts.sequence = sender.next + SLOTS + 1;
    CHECK(!sender_cleared(&sender, &cts));
    cts.sequence--;
    CHECK(sender_cleared(&sender, &cts));
}

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random ^= *random << 13, *random ^= *random >> 7, *random ^= *random << 17;
    return *random % below;
}

/* What is to be posted, counted anew: the oldest receive of it in `oldest`, if there is any. */
static unsigned todo_of(uint64_t *oldest)
{
    unsigned todo = 0;
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < MAX_GROUP; i++) {
            const struct send *send = &sender.send[s][i];
            CHECK_EQUAL((send->todo & send->done) | (send->posted[0] & send->posted[1]) |
                        (send->lost[0] & send->posted[0]), 0);
            if (send->todo && (todo == 0 || send->sequence < *oldest))
                *oldest = send->sequence;
            todo += (unsigned)__builtin_popcountll(send->todo);
        }
    return todo;
}

/* Something of a send that is not complete is acknowledged or, with its rail, lost and replayed. */
static void go_on_with(struct send *send, uint64_t *random)
{
    int rail = (int)draw(random, 2);
    struct receipt receipt = {.sequence = send->sequence};
    receipt.got[send->place] = *random & send->lost[rail];
    if (draw(random, 512) == 0) /* the receiver ends, and lacks only this one */
        sender_concluded(&sender, &receipt, 1, sender.next + 1);
    else if (send->posted[rail] && draw(random, 4))
        sender_acknowledged(send, (unsigned)__builtin_ctzll(send->posted[rail]), rail);
    else if (draw(random, 2))
        sender_lost(&sender, rail);
    else
        sender_replay(&sender, rail, &receipt, 1, draw(random, 2) ? sender.next + 1 : 0);
}

/* Groups of one to three messages, up to 32 receives ahead of what is complete, chunks that are
 * acknowledged, lost and replayed in any order: the next one is always of the oldest receive that
 * lacks some, and none is forgotten, also of a receive whose place another has taken since. */
static void no_chunk_is_forgotten(void)
{
    uint64_t random = (uint64_t)time(NULL) | 1, oldest = 0;
    fprintf(stderr, "seed %" PRIu64 "\n", random);
    memset(&sender, 0, sizeof sender);
    for (int round = 0; round < 200000; round++) {
        struct cts cts = {.kind = RECORD_CTS, .count = (uint8_t)(1 + draw(&random, 3)),
                          .sequence = sender.next + 1};
        for (int i = 0; i < cts.count; i++)
            cts.offer[i] = (struct offer){.size = sizeof data, .tag = i};
        CHECK(sender_cleared(&sender, &cts)); /* a second one has no effect */
        sender_match(&sender, (int)draw(&random, 3), data, draw(&random, 5 * 4096), NULL, 4096);
        struct send *send;
        unsigned chunk, todo = todo_of(&oldest);
        CHECK_EQUAL(sender.todo, todo);
        CHECK_EQUAL(sender_next_chunk(&sender, &send, &chunk), todo > 0);
        if (todo) {
            CHECK_EQUAL(send->sequence, oldest);
            CHECK(send->todo >> chunk & 1);
            if (draw(&random, 3))
                sender_posted(&sender, send, chunk, (int)draw(&random, 2));
        }
        send = &sender.send[draw(&random, SLOTS)][draw(&random, 3)];
        if (send->used && send_is_done(send))
            send->used = false; /* NCCL has asked for it */
        else if (send->used)
            go_on_with(send, &random);
    }
    CHECK(sender.next > 1000);
}

int main(void)
{
    only_what_lacks_is_replayed();
    what_is_complete_is_not_replayed();
    what_was_posted_after_the_report_is_replayed();
    an_ended_receiver_concludes_what_it_had();
    late_acknowledgements_do_not_count();
    receives_are_asked_for();
    a_whole_group_is_reported();
    only_unread_receives_are_asked_for_again();
    sizes();
    a_message_has_a_chunk_for_each_rail();
    nothing_foreign_is_believed();
    no_chunk_is_forgotten();
    return 0;
}
