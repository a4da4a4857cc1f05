/* RDMA ports and queue pairs for datagrams (UD). All but polling and posting may take long. */
#ifndef SYN_VERBS_QUEUE_H
#define SYN_VERBS_QUEUE_H

#include "syn_probe.h"
#include "ticks.h"

enum { SYN_MESSAGE_BYTES_VERBS = 256 };

struct syn_verbs_port;
struct syn_verbs_queue;
struct syn_verbs_clock;
struct syn_verbs_address; /* how to get to a remote port, in a class and with a flow label */

/* What a queue pair has done. */
struct syn_verbs_done {
    int failed;          /* the queue pair is of no use any more */
    int sent;            /* else something was received */
    unsigned slot;
    const uint8_t *data; /* received, until the slot is given back */
    size_t length;
    uint32_t qpn;        /* of its sender */
    int64_t stamp_ns;    /* on the device's clock; 0: there is none */
};

/* The RDMA port of a NIC, or NULL with an error and a sentence. On success the status says what it is.
 * The NIC's clock is made at first, and freed by the caller. */
struct syn_verbs_port *syn_verbs_port_open(const struct syn_probe_nic *nic,
                                           struct syn_verbs_clock **clock,
                                           struct syn_probe_nic_status *status, int *error,
                                           char *message);
void syn_verbs_port_close(struct syn_verbs_port *port);
/* Whether it still is what was opened; if not, why. */
int syn_verbs_port_check(struct syn_verbs_port *port, char *message);
void syn_verbs_port_address(const struct syn_verbs_port *port, struct syn_verbs_endpoint *out);

/* Whether queue pairs were opened to be stamped by the clock, which may have failed since. */
int syn_verbs_clock_in_force(const struct syn_verbs_clock *clock);
/* Read the device's clock, which may take long; whether it could be. */
int syn_verbs_clock_read(const struct syn_verbs_port *port, struct syn_tick_reading *reading,
                         int64_t *real_ns);
/* Take that reading, or NULL, and say what there is to say of the clock now. */
void syn_verbs_clock_take(struct syn_verbs_clock *clock, const struct syn_tick_reading *reading,
                          int64_t real_ns, struct syn_verbs_clock_reading *out);

struct syn_verbs_queue *syn_verbs_queue_open(struct syn_verbs_port *port, int reflector,
                                             char *message);
void syn_verbs_queue_close(struct syn_verbs_queue *queue);
int syn_verbs_queue_fd(const struct syn_verbs_queue *queue); /* readable after `arm` */
uint32_t syn_verbs_queue_number(const struct syn_verbs_queue *queue);
unsigned syn_verbs_queue_depth(const struct syn_verbs_queue *queue); /* slots each way */
/* Request a notification of the next completion. */
int syn_verbs_queue_arm(struct syn_verbs_queue *queue);
unsigned syn_verbs_queue_poll(struct syn_verbs_queue *queue, struct syn_verbs_done *done,
                              unsigned room);
/* The slot may be received into, or sent from, again. */
void syn_verbs_queue_give_back(struct syn_verbs_queue *queue, const struct syn_verbs_done *done);
/* Room for a packet, and its slot; NULL: everything is under way. */
uint8_t *syn_verbs_queue_room(struct syn_verbs_queue *queue, unsigned *slot);
/* 0: it is under way. */
int syn_verbs_queue_send(struct syn_verbs_queue *queue, unsigned slot,
                         const struct syn_verbs_address *to, uint32_t qpn);

struct syn_verbs_address *syn_verbs_address_make(struct syn_verbs_port *port,
                                                 const struct syn_verbs_route *route,
                                                 char *message);
void syn_verbs_address_free(struct syn_verbs_address *address);

#endif
