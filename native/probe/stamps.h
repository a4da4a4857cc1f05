/* Probe sockets and their timestamps: SO_TIMESTAMPING (Documentation/networking/timestamping.rst). */
#ifndef SYN_STAMPS_H
#define SYN_STAMPS_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "syn_probe.h"

/* Room for the largest set of control messages a probe socket receives. */
enum { SYN_CONTROL_BYTES = 192 };

/* Room that callers give for a sentence about an error. */
enum { SYN_MESSAGE_BYTES = 256 };

struct syn_stamps {
    int64_t software_ns; /* CLOCK_REALTIME; 0 if missing */
    int64_t hardware_ns; /* the NIC's own clock; 0 if missing */
    uint32_t id;         /* of the packet that was sent; error queue only */
    int has_id;
    uint32_t overflow;   /* packets dropped at the receive buffer since the socket opened */
    int has_overflow;
};

/* Length of the sockaddr, 0 if the family is neither 4 nor 6. `ifindex` scopes link-local IPv6. */
socklen_t syn_sockaddr(struct sockaddr_storage *out, int family, const uint8_t address[16],
                       uint16_t port, unsigned ifindex);

/* Switch the NIC's hardware stamps on, if wanted and possible; always fills in *status. */
void syn_stamps_prepare(const struct syn_probe_nic *nic, struct syn_probe_nic_status *status);

/* A non-blocking socket with everything a probe needs, or -errno with a sentence in message[256]. */
int syn_probe_socket(const struct syn_probe_nic *nic, uint16_t port, int hardware, char *message);

/* Start counting sent packets from 0 (again). 0 or -errno. */
int syn_stamps_arm(int fd, int hardware);

void syn_stamps_read(const struct msghdr *message, struct syn_stamps *out);

#endif
