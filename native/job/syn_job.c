/* A process's end of the page that it shares with its host's agent. It starts no thread, takes no
 * lock and allocates nothing; a child of fork finds its end closed. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "syn_job_page.h"

enum { ANSWER_MS = 1000, CONTROL = CMSG_SPACE(sizeof(int)) /* two fit, with the padding */ };
typedef uint64_t __attribute__((may_alias)) word_t;

static int connect_to(const char *path, int *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL)
        path = getenv("SYNTONY_AGENT");
    *error = path == NULL || path[0] == 0 ? ENOENT
             : strlen(path) >= sizeof address.sun_path ? ENAMETOOLONG
                                                       : 0;
    if (*error)
        return -1;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    *error = errno;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* The descriptor of the page, which is all that the agent ever sends. */
static int receive_page(int fd, int *error)
{
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    int ready;
    do
        ready = poll(&wanted, 1, ANSWER_MS);
    while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
        *error = ready < 0 ? errno : ETIMEDOUT;
        return -1;
    }
    union {
        char bytes[CONTROL];
        struct cmsghdr align;
    } control;
    char version = 0;
    struct iovec vector = {&version, sizeof version};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = CMSG_LEN(sizeof(int)) /* of more, the kernel closes
                                                                        all but the first */};
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) { /* it hung up: refused */
        *error = got < 0 && errno != ECONNRESET ? errno : EACCES;
        return -1;
    }
    *error = EPROTO;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header == NULL || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(sizeof(int)))
        return -1;
    int page;
    memcpy(&page, CMSG_DATA(header), sizeof page);
    return page;
}

/* Only a page that nobody can shrink under us: a read beyond its end would kill the process. */
static struct syn_job_page *map_page(int fd, int *error)
{
    const int sealed = F_SEAL_SHRINK | F_SEAL_SEAL;
    struct stat stat;
    *error = EPROTO;
    if (fstat(fd, &stat) != 0 || stat.st_size != sizeof(struct syn_job_page) ||
        (fcntl(fd, F_GET_SEALS) & sealed) != sealed)
        return NULL;
    struct syn_job_page *page =
        mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        *error = errno;
        return NULL;
    }
    if (page->magic == SYN_JOB_MAGIC && page->version == SYN_JOB_PAGE_VERSION &&
        page->size == sizeof *page)
        return page;
    munmap(page, sizeof *page);
    return NULL;
}

/* A word that the kernel clears in children of fork. */
static uint32_t *map_mine(int *error)
{
    uint32_t *mine = mmap(NULL, sizeof *mine, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                          -1, 0);
    *error = errno;
    if (mine == MAP_FAILED)
        return NULL;
    if (madvise(mine, sizeof *mine, MADV_WIPEONFORK) != 0) {
        munmap(mine, sizeof *mine);
        *error = ENOTSUP;
        return NULL;
    }
    *mine = 1;
    return mine;
}

int syn_job_connect(struct syn_job *job, const char *path)
{
    int error = 0;
    *job = (struct syn_job){.fd = -1};
    uint32_t *mine = map_mine(&error);
    if (mine == NULL)
        return error;
    int fd = connect_to(path, &error);
    int page_fd = fd < 0 ? -1 : receive_page(fd, &error);
    if (page_fd >= 0) {
        job->page = map_page(page_fd, &error);
        close(page_fd);
    }
    if (job->page == NULL) {
        munmap(mine, sizeof *mine);
        if (fd >= 0)
            close(fd);
        return error;
    }
    job->mine = mine;
    job->fd = fd;
    return 0;
}

void syn_job_close(struct syn_job *job)
{
    if (job->page == NULL)
        return;
    munmap(job->page, sizeof *job->page);
    munmap(job->mine, sizeof *job->mine);
    close(job->fd);
    *job = (struct syn_job){.fd = -1};
}

static int is_mine(const struct syn_job *job)
{
    return job->page != NULL && *(volatile uint32_t *)job->mine;
}

int syn_job_lost(const struct syn_job *job)
{
    char byte;
    if (!is_mine(job))
        return 1;
    ssize_t got = recv(job->fd, &byte, sizeof byte, MSG_DONTWAIT | MSG_PEEK);
    return !(got < 0 && (errno == EAGAIN || errno == EINTR));
}

static void begin_write(struct syn_job_flow *flow)
{
    uint32_t odd = __atomic_load_n(&flow->sequence, __ATOMIC_RELAXED) | 1;
    __atomic_store_n(&flow->sequence, odd, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static void end_write(struct syn_job_flow *flow)
{
    uint32_t odd = __atomic_load_n(&flow->sequence, __ATOMIC_RELAXED);
    __atomic_store_n(&flow->sequence, odd + 1, __ATOMIC_RELEASE);
}

/* Word by word: the agent may read at the same time. */
static void store(void *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size / sizeof(word_t); i++)
        __atomic_store_n((word_t *)to + i, ((const word_t *)from)[i], __ATOMIC_RELAXED);
}

static int occupy(struct syn_job *job)
{
    for (int place = 0; place < SYN_JOB_FLOWS; place++) {
        uint8_t free = 0;
        if (__atomic_compare_exchange_n(&job->occupied[place], &free, 1, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return place;
    }
    __atomic_fetch_add(&job->page->left_out, 1, __ATOMIC_RELAXED);
    return -ENOSPC;
}

int syn_job_open_flow(struct syn_job *job, const struct syn_job_flow *flow)
{
    enum { NAME = offsetof(struct syn_job_flow, number) };
    if (!is_mine(job))
        return -ECHILD;
    if (memchr(flow->nic, 0, sizeof flow->nic) == NULL)
        return -EINVAL;
    int place = occupy(job);
    if (place < 0)
        return place;
    struct syn_job_flow *shared = &job->page->flows[place], whole = *flow;
    whole.bytes_done = whole.bytes_outstanding = 0;
    whole.last_done_ns = 0;
    whole.outstanding = whole.errors = whole.last_error = whole.reserved = 0;
    begin_write(shared);
    __atomic_store_n(&shared->mechanism, flow->mechanism, __ATOMIC_RELAXED);
    __atomic_store_n(&shared->state, SYN_JOB_OPEN, __ATOMIC_RELAXED);
    store(&shared->number, &whole.number, sizeof whole - NAME);
    end_write(shared);
    uint32_t used = __atomic_load_n(&job->page->used, __ATOMIC_RELAXED);
    while (used <= (uint32_t)place &&
           !__atomic_compare_exchange_n(&job->page->used, &used, (uint32_t)place + 1, 0,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    return place;
}

static int is_open(const struct syn_job *job, int place)
{
    return is_mine(job) && place >= 0 && place < SYN_JOB_FLOWS && job->occupied[place];
}

void syn_job_tell(struct syn_job *job, int place, const struct syn_job_progress *progress)
{
    if (!is_open(job, place))
        return;
    struct syn_job_flow *shared = &job->page->flows[place];
    begin_write(shared);
    __atomic_store_n(&shared->state, progress->failed ? SYN_JOB_FAILED : SYN_JOB_OPEN,
                     __ATOMIC_RELAXED);
    __atomic_store_n(&shared->bytes_done, progress->bytes_done, __ATOMIC_RELAXED);
    __atomic_store_n(&shared->bytes_outstanding, progress->bytes_outstanding, __ATOMIC_RELAXED);
    __atomic_store_n(&shared->last_done_ns, progress->last_done_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&shared->outstanding, progress->outstanding, __ATOMIC_RELAXED);
    __atomic_store_n(&shared->errors, progress->errors, __ATOMIC_RELAXED);
    __atomic_store_n(&shared->last_error, progress->last_error, __ATOMIC_RELAXED);
    end_write(shared);
}

void syn_job_close_flow(struct syn_job *job, int place)
{
    if (!is_open(job, place))
        return;
    struct syn_job_flow *shared = &job->page->flows[place];
    begin_write(shared);
    __atomic_store_n(&shared->state, SYN_JOB_FREE, __ATOMIC_RELAXED);
    end_write(shared);
    __atomic_store_n(&job->occupied[place], 0, __ATOMIC_RELEASE);
}

int syn_job_take(struct syn_job *job, struct syn_job_notice *notice)
{
    if (!is_mine(job))
        return 0;
    uint64_t written = __atomic_load_n(&job->page->noticed, __ATOMIC_ACQUIRE);
    while (written != job->taken) {
        if (written - job->taken > SYN_JOB_NOTICES) {
            job->missed += written - job->taken - SYN_JOB_NOTICES;
            job->taken = written - SYN_JOB_NOTICES;
        }
        const word_t *from = (word_t *)&job->page->notices[job->taken % SYN_JOB_NOTICES];
        word_t words[sizeof *notice / sizeof(word_t)];
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            words[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        written = __atomic_load_n(&job->page->noticed, __ATOMIC_RELAXED);
        if (written - job->taken < SYN_JOB_NOTICES) { /* it was not being overwritten */
            memcpy(notice, words, sizeof words);
            job->taken++;
            return 1;
        }
        job->missed++;
        job->taken++;
    }
    return 0;
}
