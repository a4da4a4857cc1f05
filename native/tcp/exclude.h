/* Which connections stay plain TCP: a list of ports and addresses. Pure. */
#ifndef SYN_TCP_EXCLUDE_H
#define SYN_TCP_EXCLUDE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { SYN_EXCLUDE_MAX = 32 };

/* One entry: ports from `low` to `high`, or, with `high` 0, the addresses whose first `bits` bits
 * are those of `prefix`. IPv4 is kept as IPv4-mapped IPv6. */
struct syn_exclusion {
    uint16_t low, high;
    uint8_t bits;
    struct in6_addr prefix;
};

struct syn_exclude {
    unsigned count;
    struct syn_exclusion entries[SYN_EXCLUDE_MAX];
};

/* Where a connection goes. */
struct syn_peer {
    struct in6_addr address;
    uint16_t port;
};

/* Reads "22, 6000-6010, 10.0.0.0/8, fd00::1" (commas or blanks) into `list`. What cannot be read,
 * or is one too many, is left out; returns how many entries were. NULL is an empty list. */
unsigned syn_exclude_parse(const char *text, struct syn_exclude *list);

/* The address and port of an IPv4 or IPv6 socket address; false for any other. */
bool syn_peer_of(const struct sockaddr *address, socklen_t length, struct syn_peer *peer);

bool syn_excluded(const struct syn_exclude *list, const struct syn_peer *peer);

/* Loopback, or the unspecified address, which connects to it. */
bool syn_is_loopback(const struct in6_addr *address);

#endif
