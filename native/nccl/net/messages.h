/* Messages of one connection, and which of their chunks are where: pure, without IO. */
#ifndef NET_MESSAGES_H
#define NET_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

/* At the sender. The four sets of chunks are disjoint. */
struct send {
    bool used;
    uint8_t place, chunks;
    uint64_t sequence;
    const char *data;
    uint64_t size, chunk_size;
    void *memory; /* its registration */
    struct offer offer;
    uint64_t todo, done;
    uint64_t posted[MAX_RAILS]; /* on a queue pair that is not fenced */
    uint64_t lost[MAX_RAILS];   /* given up with the rail, not yet known to be missing */
};

struct sender {
    uint64_t next;   /* receive that the next send is matched with */
    struct cts cts[SLOTS];
    uint8_t matched[SLOTS]; /* a bit for each receive of the group */
    struct send send[SLOTS][MAX_GROUP];
    unsigned todo;      /* chunks to be posted: */
    uint64_t todo_from; /* none of a receive before this */
};

/* At the receiver. */
struct place {
    char *data;
    void *memory;
    uint64_t offered, size;
    int tag;
    uint64_t got;
    uint8_t chunks; /* 0: not known yet */
};

enum { CTS_TODO = -1 }; /* instead of the rail that carries it */

struct receive {
    bool used, complete;
    uint8_t count;
    int8_t cts_rail;
    uint64_t sequence;
    struct place place[MAX_GROUP];
};

struct receiver {
    uint64_t next;
    struct receive receive[SLOTS];
    bool waiting; /* some clear-to-send is to be posted: */
    uint64_t cts_from; /* none before this receive */
    uint64_t duplicates;
};

/* Sender. `cts` is what arrived: false if it cannot be one. A late or second one has no effect. */
bool sender_cleared(struct sender *sender, const struct cts *cts);
/* A bit for each of the SLOTS receives after `next` whose clear-to-send is here. */
uint32_t sender_cleared_after_next(const struct sender *sender);
/* Bytes of a message's chunks: one for each rail, within these limits. */
uint64_t chunk_size_for(uint64_t size, int rails, uint64_t least, uint64_t most);
/* A send that matches the oldest receive with this tag, or NULL: none yet. */
struct send *sender_match(struct sender *sender, int tag, const void *data, uint64_t size,
                          void *memory, uint64_t chunk_size);
/* The next chunk to post, or false: none. It stays to be posted until `sender_posted`. */
bool sender_next_chunk(struct sender *sender, struct send **send, unsigned *chunk);
void sender_posted(struct sender *sender, struct send *send, unsigned chunk, int rail);
void sender_acknowledged(struct send *send, unsigned chunk, int rail);
/* What was posted on a rail that is now drained is lost until the receiver has reported. */
void sender_lost(struct sender *sender, int rail);
/* The receiver's report, after both ends are fenced: what it lacks is to be posted again. It
 * knows nothing of receives after `posted`. Returns how many chunks. */
unsigned sender_replay(struct sender *sender, int rail, const struct receipt *receipts, size_t count,
                       uint64_t posted);
/* The receiver has ended: everything that it does not name is complete. */
void sender_concluded(struct sender *sender, const struct receipt *receipts, size_t count,
                      uint64_t posted);
bool send_is_done(const struct send *send);
uint64_t chunk_offset(const struct send *send, unsigned chunk);
uint64_t chunk_length(const struct send *send, unsigned chunk);

/* Receiver. A group of receives, whose `count` places are to be set; or NULL: all are taken. */
struct receive *receiver_post(struct receiver *receiver, int count);
struct receive *receiver_next_cts(struct receiver *receiver);
void receiver_fill_cts(const struct receive *receive, struct cts *cts); /* without keys */
/* A chunk is in place. False: no such chunk can be. */
bool receiver_arrived(struct receiver *receiver, const struct header *header);
/* The sender's report, after both ends are fenced: which clear-to-sends it has, as of `struct control`. Others
 * that this rail carried are to be sent again: also acknowledged ones, for the sender may have lost its NIC
 * before it read them. One that it has is not: a sender never has more than SLOTS of them to read. */
void receiver_replay(struct receiver *receiver, int rail, uint64_t posted, uint32_t bits);
/* Receives that are not complete; returns how many (up to SLOTS). */
size_t receiver_report(const struct receiver *receiver, struct receipt *receipts);

#endif
