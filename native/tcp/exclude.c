#include "exclude.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>

enum { MAX_ENTRY = 64, MAPPED_BITS = 96 };

static const struct in6_addr MAPPED = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}}};

/* Digits at `*text`, which is moved past them; -1 where there are none or the number is above
 * `most`. */
static long number(const char **text, long most) {
    long value = 0;
    if (**text < '0' || **text > '9')
        return -1;
    for (; **text >= '0' && **text <= '9'; (*text)++) {
        value = value * 10 + (**text - '0');
        if (value > most)
            return -1;
    }
    return value;
}

static bool parse_ports(const char *text, struct syn_exclusion *entry) {
    long low = number(&text, UINT16_MAX);
    long high = low;
    if (*text == '-') {
        text++;
        high = number(&text, UINT16_MAX);
    }
    if (low < 1 || high < low || *text != '\0')
        return false;
    entry->low = (uint16_t)low;
    entry->high = (uint16_t)high;
    return true;
}

static bool parse_prefix(char *text, struct syn_exclusion *entry) {
    char *slash = strchr(text, '/');
    if (slash != NULL)
        *slash = '\0';
    long base = 0;
    if (inet_pton(AF_INET6, text, &entry->prefix) != 1) {
        entry->prefix = MAPPED;
        base = MAPPED_BITS;
        if (inet_pton(AF_INET, text, &entry->prefix.s6_addr[12]) != 1)
            return false;
    }
    long bits = 128 - base;
    if (slash != NULL) {
        const char *digits = slash + 1;
        bits = number(&digits, 128 - base);
        if (bits < 0 || *digits != '\0')
            return false;
    }
    entry->bits = (uint8_t)(base + bits);
    return true;
}

unsigned syn_exclude_parse(const char *text, struct syn_exclude *list) {
    static const char SEPARATORS[] = ", \t\n";
    unsigned left_out = 0;
    memset(list, 0, sizeof *list);
    while (text != NULL && *(text += strspn(text, SEPARATORS)) != '\0') {
        size_t length = strcspn(text, SEPARATORS);
        char copy[MAX_ENTRY];
        struct syn_exclusion entry = {0};
        bool good = length < sizeof copy && list->count < SYN_EXCLUDE_MAX;
        if (good) {
            memcpy(copy, text, length);
            copy[length] = '\0';
            good = parse_ports(copy, &entry) || parse_prefix(copy, &entry);
        }
        if (good)
            list->entries[list->count++] = entry;
        else
            left_out++;
        text += length;
    }
    return left_out;
}

bool syn_peer_of(const struct sockaddr *address, socklen_t length, struct syn_peer *peer) {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    sa_family_t family;
    if (address == NULL || length < sizeof family)
        return false;
    memcpy(&family, &address->sa_family, sizeof family);
    if (family == AF_INET && length >= sizeof v4) {
        memcpy(&v4, address, sizeof v4);
        peer->address = MAPPED;
        memcpy(&peer->address.s6_addr[12], &v4.sin_addr, sizeof v4.sin_addr);
        peer->port = ntohs(v4.sin_port);
        return true;
    }
    if (family == AF_INET6 && length >= sizeof v6) {
        memcpy(&v6, address, sizeof v6);
        peer->address = v6.sin6_addr;
        peer->port = ntohs(v6.sin6_port);
        return true;
    }
    return false;
}

static bool begins_with(const struct in6_addr *address, const struct syn_exclusion *entry) {
    unsigned bytes = entry->bits / 8, rest = entry->bits % 8;
    if (memcmp(address, &entry->prefix, bytes) != 0)
        return false;
    return rest == 0 ||
           (address->s6_addr[bytes] ^ entry->prefix.s6_addr[bytes]) >> (8 - rest) == 0;
}

bool syn_excluded(const struct syn_exclude *list, const struct syn_peer *peer) {
    for (unsigned i = 0; i < list->count; i++) {
        const struct syn_exclusion *entry = &list->entries[i];
        if (entry->high != 0 ? peer->port >= entry->low && peer->port <= entry->high
                             : begins_with(&peer->address, entry))
            return true;
    }
    return false;
}

bool syn_is_loopback(const struct in6_addr *address) {
    if (IN6_IS_ADDR_V4MAPPED(address)) {
        uint32_t v4;
        memcpy(&v4, &address->s6_addr[12], sizeof v4);
        return v4 == INADDR_ANY || ntohl(v4) >> 24 == IN_LOOPBACKNET;
    }
    return IN6_IS_ADDR_LOOPBACK(address) || IN6_IS_ADDR_UNSPECIFIED(address);
}
