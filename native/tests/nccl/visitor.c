#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "visitor.h"

int reach(void)
{
    struct sockaddr_in address;
    memcpy(&address, handle + 16, sizeof address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0);
    CHECK(connect(fd, (void *)&address, sizeof address) == 0 || errno == EINPROGRESS);
    return fd;
}

struct greeting greeting_of(uint32_t version, uint32_t rails, bool has_cookie)
{
    struct greeting greeting = {
        .control = {.kind = CONTROL_HELLO, .length = sizeof greeting.hello},
        .hello = {.magic = WIRE_MAGIC, .version = version, .rails = rails}};
    memcpy(&greeting.hello.cookie, handle + 8, 8);
    greeting.hello.cookie += !has_cookie;
    return greeting;
}

void say(int fd, const void *what, size_t size)
{
    CHECK_EQUAL(send(fd, what, size, MSG_NOSIGNAL), (ssize_t)size);
}

void peer_connects(void)
{
    int64_t begun = ran_ms();
    connect_both();
    CHECK(ran_ms() - begun < 9000);
    exchange();
}
