/* What the list of exclusions says, entry by entry, and whom it covers. */
#include <arpa/inet.h>
#include <string.h>

#include "check.h"
#include "exclude.h"

static struct syn_peer peer(const char *address, uint16_t port)
{
    struct sockaddr_storage storage = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&storage;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&storage;
    struct syn_peer found;
    if (strchr(address, ':') == NULL) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        CHECK(inet_pton(AF_INET, address, &v4->sin_addr) == 1);
    } else {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        CHECK(inet_pton(AF_INET6, address, &v6->sin6_addr) == 1);
    }
    CHECK(syn_peer_of((struct sockaddr *)&storage, sizeof storage, &found));
    CHECK_EQUAL(found.port, port);
    return found;
}

static void lists(void)
{
    static const struct {
        const char *text;
        unsigned entries, left_out;
    } CASES[] = {
        {NULL, 0, 0},
        {"", 0, 0},
        {" ,\t\n,", 0, 0},
        {"22", 1, 0},
        {"22,6000-6010 10.0.0.7\t10.0.0.0/8,fd00::/8,::1", 6, 0},
        {"0", 0, 1},
        {"65535", 1, 0},
        {"65536", 0, 1},
        {"99999999999999999999", 0, 1},
        {"9-8", 0, 1},
        {"5-", 0, 1},
        {"-5", 0, 1},
        {"1-2-3", 0, 1},
        {"ssh,22", 1, 1},
        {"10.0.0.0/33", 0, 1},
        {"10.0.0.0/", 0, 1},
        {"10.0.0.0/8x", 0, 1},
        {"fd00::/129", 0, 1},
        {"10.0.0.1:22", 0, 1},
        {"0123456789012345678901234567890123456789012345678901234567890123456789", 0, 1},
        {"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32"
         " 33 34",
         32, 2},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct syn_exclude list;
        CHECK_EQUAL(syn_exclude_parse(CASES[i].text, &list), CASES[i].left_out);
        CHECK_EQUAL(list.count, CASES[i].entries);
    }
}

static void coverage(void)
{
    static const struct {
        const char *list, *address;
        uint16_t port;
        bool excluded;
    } CASES[] = {
        {"", "10.0.0.1", 22, false},
        {"22", "10.0.0.1", 22, true},
        {"22", "fd00::1", 22, true},
        {"22", "10.0.0.1", 23, false},
        {"20-22", "10.0.0.1", 20, true},
        {"20-22", "10.0.0.1", 19, false},
        {"10.0.0.1", "10.0.0.1", 5, true},
        {"10.0.0.1", "10.0.0.2", 5, false},
        {"10.0.0.1", "::ffff:10.0.0.1", 5, true},
        {"10.0.0.0/8", "10.255.0.1", 5, true},
        {"10.0.0.0/8", "11.0.0.1", 5, false},
        {"10.0.0.0/9", "10.127.0.1", 5, true},
        {"10.0.0.0/9", "10.128.0.1", 5, false},
        {"10.1.2.3/8", "10.9.9.9", 5, true},
        {"0.0.0.0/0", "192.0.2.1", 5, true},
        {"0.0.0.0/0", "fd00::1", 5, false},
        {"::/0", "192.0.2.1", 5, true},
        {"fd00::/8", "fdff::1", 5, true},
        {"fd00::/8", "fe00::1", 5, false},
        {"::1", "::1", 5, true},
        {"::1/127", "::", 5, true},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct syn_exclude list;
        struct syn_peer to = peer(CASES[i].address, CASES[i].port);
        CHECK_EQUAL(syn_exclude_parse(CASES[i].list, &list), 0);
        CHECK_EQUAL(syn_excluded(&list, &to), CASES[i].excluded);
    }
}

static void loopback(void)
{
    static const struct {
        const char *address;
        bool yes;
    } CASES[] = {{"127.0.0.1", true}, {"127.9.9.9", true}, {"0.0.0.0", true},
                 {"::1", true},       {"::", true},        {"::ffff:127.0.0.1", true},
                 {"128.0.0.1", false}, {"10.0.0.1", false}, {"fe80::1", false}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct syn_peer to = peer(CASES[i].address, 1);
        CHECK_EQUAL(syn_is_loopback(&to.address), CASES[i].yes);
    }
}

static void other_addresses(void)
{
    struct sockaddr_storage storage = {.ss_family = AF_UNIX};
    struct syn_peer found;
    CHECK(!syn_peer_of((struct sockaddr *)&storage, sizeof storage, &found));
    storage.ss_family = AF_INET;
    CHECK(!syn_peer_of((struct sockaddr *)&storage, sizeof(struct sockaddr_in) - 1, &found));
    CHECK(!syn_peer_of((struct sockaddr *)&storage, 1, &found));
    CHECK(!syn_peer_of(NULL, sizeof storage, &found));
    storage.ss_family = AF_INET6;
    CHECK(!syn_peer_of((struct sockaddr *)&storage, sizeof(struct sockaddr_in6) - 1, &found));
}

/* Any text: every entry is kept or counted, and asking about anybody is safe. */
static void any_text(void)
{
    static const char CHARACTERS[] = "0123456789./:-, \tabcdef";
    uint64_t state = 1;
    for (int run = 0; run < 200000; run++) {
        char text[80];
        size_t length = 0;
        struct syn_exclude list;
        struct syn_peer to = {.port = (uint16_t)run};
        for (; length < sizeof text - 1; length++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            text[length] = CHARACTERS[(state >> 33) % (sizeof CHARACTERS)];
            if (text[length] == '\0')
                break;
        }
        text[length] = '\0';
        unsigned left_out = syn_exclude_parse(text, &list);
        CHECK(list.count <= SYN_EXCLUDE_MAX);
        CHECK(left_out + list.count <= length);
        memcpy(&to.address, &state, sizeof state);
        syn_excluded(&list, &to);
        for (unsigned i = 0; i < list.count; i++)
            CHECK(list.entries[i].bits <= 128);
    }
}

int main(void)
{
    lists();
    coverage();
    loopback();
    other_addresses();
    any_text();
    return 0;
}
