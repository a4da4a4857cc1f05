/* How a process hands its page to the agent: when it tries, with whatever descriptors it gets. The
 * program starts itself again, for the agent's name counts when a library is loaded. test_door [CASE] */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "door.h"

enum { SIZE = 4096, VERSION = 3 };
static const int64_t LOOK_NS = DOOR_LOOK_S * INT64_C(1000000000);

const struct door_kind door_kind = {.suffix = "-door", .memory = "syntony-door", .magic = 77,
                                    .version = VERSION, .size = SIZE};

static int listener, connection;

static void listen_as_agent(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s%s", name, door_kind.suffix);
    unlink(address.sun_path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    CHECK_EQUAL(bind(listener, (void *)&address, sizeof address), 0);
    CHECK_EQUAL(listen(listener, 4), 0);
}

/* Whether the process has connected since; with what it has to send. */
static int has_connected(void)
{
    union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
    char version = 0;
    struct iovec vector = {&version, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct stat stat;
    int memory;
    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        return 0;
    connection = fd;
    CHECK_EQUAL(recvmsg(fd, &message, 0), 1);
    CHECK_EQUAL(version, VERSION);
    memcpy(&memory, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof memory);
    CHECK(fstat(memory, &stat) == 0 && stat.st_size == SIZE);
    close(memory);
    return 1;
}

static void without(void)
{
    setenv("SYNTONY_AGENT", "/nonexistent/agent", 1); /* too late */
    CHECK(door_page() == NULL && !door_is_mine() && !door_is_child());
    door_look(LOOK_NS);
}

static void named(void)
{
    int64_t now_ns = 5 * LOOK_NS;
    const char *name = getenv("SYNTONY_AGENT");
    const uint64_t *page = door_page();
    CHECK(page != NULL && page[0] == 77 && door_page() == page && door_is_mine() && !door_is_child());
    door_look(now_ns); /* there is no agent */
    listen_as_agent(name);
    door_look(now_ns + LOOK_NS - 1);
    CHECK(!has_connected());
    door_look(now_ns += LOOK_NS);
    CHECK(has_connected());
    door_look(now_ns += LOOK_NS); /* it still has it */
    CHECK(!has_connected());
    close(connection); /* the agent ends, and begins again */
    door_look(now_ns + LOOK_NS - 1);
    CHECK(!has_connected());
    door_look(now_ns += LOOK_NS);
    CHECK(has_connected());
    close(connection);
    close(0); /* the program has closed its input: the next descriptor is 0 */
    door_look(now_ns += LOOK_NS);
    CHECK(has_connected());
    door_look(now_ns += LOOK_NS);
    CHECK(!has_connected());
    pid_t child = fork();
    if (child == 0) {
        door_look(now_ns + LOOK_NS);
        _exit(!(door_page() == NULL && door_is_child() && !has_connected()));
    }
    int status = 0;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

static void run_again(char *program, char *name, const char *agent)
{
    pid_t child = fork();
    if (child == 0) {
        setenv("SYNTONY_AGENT", agent, 1);
        execv(program, (char *[]){program, name, NULL});
        _exit(1);
    }
    int status = 0;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

int main(int argc, char **argv)
{
    char agent[64], socket_name[80];
    if (argc > 1) {
        (strcmp(argv[1], "named") == 0 ? named : without)();
        return 0;
    }
    snprintf(agent, sizeof agent, "/tmp/syntony-test-door.%d", (int)getpid());
    run_again(argv[0], "without", "");
    run_again(argv[0], "named", agent);
    snprintf(socket_name, sizeof socket_name, "%s%s", agent, door_kind.suffix);
    unlink(socket_name);
    return 0;
}
