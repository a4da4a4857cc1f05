#include "door.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

static const int64_t LOOK_NS = DOOR_LOOK_S * INT64_C(1000000000);

/* A descriptor of ours in somebody else's program, which may close it and use its number again. */
struct own_fd {
    int fd;
    dev_t device;
    ino_t inode;
};

static struct page_head {
    uint64_t magic;
    uint32_t version, size;
} *page;
static struct own_fd memory = {.fd = -1}, connection = {.fd = -1};
static uint32_t *mine; /* reads 0 in a child of fork */
static int64_t look_ns;
static char path[sizeof((struct sockaddr_un *)0)->sun_path];

static struct own_fd own(int fd)
{
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0)
        return (struct own_fd){.fd = -1};
    return (struct own_fd){fd, stat.st_dev, stat.st_ino};
}

static int is_ours(const struct own_fd *own)
{
    struct stat stat;
    return own->fd >= 0 && fstat(own->fd, &stat) == 0 && stat.st_dev == own->device &&
           stat.st_ino == own->inode;
}

static int sealed_memory(void)
{
    int fd = memfd_create(door_kind.memory, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create(door_kind.memory, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, door_kind.size) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The page, and the word that identifies the process that made it. */
static int map_both(int fd)
{
    void *word = mmap(NULL, sizeof *mine, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (word == MAP_FAILED)
        return -1;
    void *memory_of_page = madvise(word, sizeof *mine, MADV_WIPEONFORK) != 0
                               ? MAP_FAILED
                               : mmap(NULL, door_kind.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory_of_page == MAP_FAILED) {
        munmap(word, sizeof *mine);
        return -1;
    }
    mine = word;
    *mine = 1;
    page = memory_of_page;
    return 0;
}

/* When the library is loaded, for the program's threads may change the environment later. */
__attribute__((constructor)) static void find_agent(void)
{
    const char *agent = getenv("SYNTONY_AGENT");
    if (agent == NULL || agent[0] == 0 ||
        snprintf(path, sizeof path, "%s%s", agent, door_kind.suffix) >= (int)sizeof path)
        path[0] = 0;
}

void *door_page(void)
{
    if (page != NULL)
        return door_is_mine() ? page : NULL;
    if (path[0] == 0)
        return NULL;
    memory = own(sealed_memory());
    if (memory.fd < 0)
        return NULL;
    if (map_both(memory.fd) != 0) {
        close(memory.fd);
        memory.fd = -1;
        return NULL;
    }
    page->version = door_kind.version;
    page->size = door_kind.size;
    page->magic = door_kind.magic;
    return page;
}

int door_is_mine(void)
{
    return mine != NULL && *(volatile uint32_t *)mine;
}

int door_is_child(void)
{
    return mine != NULL && !door_is_mine();
}

static int send_memory(int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    char version = (char)door_kind.version;
    struct iovec vector = {&version, sizeof version};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1,
                             .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &memory.fd, sizeof(int));
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof version ? 0 : -1;
}

/* A queue that is full is tried again later. */
static void connect_again(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, sizeof address.sun_path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && send_memory(fd) == 0)
        connection = own(fd);
    if (connection.fd != fd)
        close(fd);
}

/* The agent sends nothing: only its end can be read. */
static int is_connected(void)
{
    char byte;
    if (!is_ours(&connection))
        return 0;
    ssize_t got = recv(connection.fd, &byte, sizeof byte, MSG_DONTWAIT | MSG_PEEK);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    close(connection.fd);
    return 0;
}

void door_look(int64_t now_ns)
{
    int64_t due_ns = __atomic_load_n(&look_ns, __ATOMIC_RELAXED);
    if (now_ns < due_ns || !door_is_mine() ||
        !__atomic_compare_exchange_n(&look_ns, &due_ns, INT64_MAX, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return;
    int before = errno;
    if (!is_connected()) {
        connection.fd = -1;
        if (is_ours(&memory))
            connect_again();
    }
    errno = before;
    __atomic_store_n(&look_ns, now_ns + LOOK_NS, __ATOMIC_RELEASE);
}
