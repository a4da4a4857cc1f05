/* The agent's end of the page that it shares with a job's process, which may be hostile. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "syn_job_page.h"

enum { TRIES = 3 };
typedef uint64_t __attribute__((may_alias)) word_t;

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

static int sealed_file(void)
{
    int fd = memfd_create("syntony-job", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create("syntony-job", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, sizeof(struct syn_job_page)) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

struct syn_job_page *syn_job_page_make(int *fd, int *error)
{
    *fd = sealed_file();
    struct syn_job_page *page =
        *fd < 0 ? MAP_FAILED
                : mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (page == MAP_FAILED) {
        *error = errno;
        if (*fd >= 0)
            close(*fd);
        return NULL;
    }
    page->version = SYN_JOB_PAGE_VERSION;
    page->size = sizeof *page;
    page->magic = SYN_JOB_MAGIC;
    return page;
}

void syn_job_page_unmap(struct syn_job_page *page)
{
    munmap(page, sizeof *page);
}

/* 1: copied whole; 0: nothing is there; -1: it changes all the time, or its writer died. */
static int copy(const struct syn_job_flow *shared, struct syn_job_flow *flow)
{
    enum { WORDS = sizeof *shared / sizeof(word_t) };
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t before = __atomic_load_n(&shared->sequence, __ATOMIC_ACQUIRE);
        if (before & 1)
            continue;
        word_t words[WORDS];
        for (size_t i = 0; i < WORDS; i++)
            words[i] = __atomic_load_n((const word_t *)shared + i, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&shared->sequence, __ATOMIC_RELAXED) != before)
            continue;
        memcpy(flow, words, sizeof *flow);
        return flow->state != SYN_JOB_FREE;
    }
    return -1;
}

uint32_t syn_job_page_read(const struct syn_job_page *page, struct syn_job_flow *flows,
                           uint32_t *torn)
{
    uint32_t used = __atomic_load_n(&page->used, __ATOMIC_ACQUIRE), count = 0;
    if (used > SYN_JOB_FLOWS)
        used = SYN_JOB_FLOWS;
    *torn = 0;
    for (uint32_t place = 0; place < used; place++) {
        int copied = copy(&page->flows[place], &flows[count]);
        count += copied > 0;
        *torn += copied < 0;
    }
    return count;
}

void syn_job_page_notify(struct syn_job_page *page, uint64_t number,
                         const struct syn_job_notice *notice)
{
    word_t *to = (word_t *)&page->notices[number % SYN_JOB_NOTICES];
    __atomic_thread_fence(__ATOMIC_RELEASE); /* the number before is seen before these words are */
    for (size_t i = 0; i < sizeof *notice / sizeof(word_t); i++)
        __atomic_store_n(to + i, ((const word_t *)notice)[i], __ATOMIC_RELAXED);
    __atomic_store_n(&page->noticed, number + 1, __ATOMIC_RELEASE);
}
