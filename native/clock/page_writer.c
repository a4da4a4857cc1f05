/* Writes the page and ClockBound's segments. The file appears under its name only once it is whole;
 * a successor goes on in the same file, so that readers keep their mapping. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "syn_clock_page.h"

enum { MODE = 0644 };

static void *map_file(int fd, size_t size, int *error)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED)
        return map;
    *error = errno;
    return NULL;
}

/* The file a predecessor left, if it has the right size. */
static void *map_old(const char *path, size_t size, int *error)
{
    struct stat stat;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return NULL;
    void *map = NULL;
    if (fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && (size_t)stat.st_size == size)
        map = map_file(fd, size, error);
    close(fd);
    return map;
}

/* A file with `size` bytes that begin with `header`, made under another name and then renamed. */
static void *map_new(const char *path, const void *header, size_t header_size, size_t size,
                     int *error)
{
    char fresh[4096];
    int length = snprintf(fresh, sizeof fresh, "%s.new", path);
    if (length < 0 || (size_t)length >= sizeof fresh) {
        *error = ENAMETOOLONG;
        return NULL;
    }
    unlink(fresh);
    int fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, MODE);
    if (fd < 0) {
        *error = errno;
        return NULL;
    }
    void *map = NULL;
    if (fchmod(fd, MODE) != 0 || ftruncate(fd, (off_t)size) != 0)
        *error = errno;
    else if ((map = map_file(fd, size, error)) != NULL) {
        memcpy(map, header, header_size);
        if (rename(fresh, path) != 0) {
            *error = errno;
            munmap(map, size);
            map = NULL;
        }
    }
    close(fd);
    if (map == NULL)
        unlink(fresh);
    return map;
}

struct page_header {
    uint64_t magic;
    uint32_t size;
    uint16_t version, local_clock;
};

struct syn_clock_page *syn_clock_page_open(const char *path, uint16_t local_clock, int *error)
{
    const size_t size = sizeof(struct syn_clock_page);
    struct page_header header = {SYN_CLOCK_MAGIC, (uint32_t)size, SYN_CLOCK_PAGE_VERSION,
                                 local_clock};
    *error = 0;
    struct syn_clock_page *page = map_old(path, size, error);
    if (page != NULL) {
        if (memcmp(page, &header, sizeof header) == 0)
            return page;
        munmap(page, size);
    }
    return map_new(path, &header, sizeof header, size, error);
}

void syn_clock_page_close(struct syn_clock_page *page)
{
    if (page != NULL)
        munmap(page, sizeof *page);
}

void syn_clock_page_write(struct syn_clock_page *page, const struct syn_clock_piece *piece,
                          const struct syn_clock_moment *now, const struct syn_clock_pace *pace,
                          int64_t void_after_ns)
{
    struct syn_clock_pace next = *pace;
    next.never = INT64_MAX;
    next.raw_ns = now->raw_ns;
    next.width_ns = now->width_ns;
    uint32_t odd = __atomic_load_n(&page->generation, __ATOMIC_RELAXED) | 1;
    __atomic_store_n(&page->generation, odd, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    if (piece != NULL)
        page->pieces[page->written++ % SYN_CLOCK_PIECES] = *piece;
    memcpy(&page->pieces[page->written % SYN_CLOCK_PIECES], &next, sizeof next);
    page->local_ns = now->local_ns;
    page->mono_ns = now->mono_ns;
    page->void_after_ns = void_after_ns;
    uint32_t even = odd + 1 == 0 ? 2 : odd + 1;
    __atomic_store_n(&page->generation, even, __ATOMIC_RELEASE);
}

/* ClockBound's layouts: a header of 16 bytes, then the fields. Its reader compares the magic as two
 * native 32-bit words. */
static const uint32_t BOUND_MAGIC[2] = {0x414D5A4E, 0x43420200};

struct bound_header {
    uint32_t magic[2];
    uint32_t size;
    uint16_t version;
    uint16_t generation;
};

struct bound_times {
    int64_t as_of_s, as_of_ns, void_after_s, void_after_ns, bound_ns;
};

struct bound_1 {
    struct bound_header header;
    struct bound_times times;
    uint32_t max_drift_ppb, reserved;
    int32_t status;
    uint32_t padding;
};

struct bound_2 {
    struct bound_header header;
    struct bound_times times;
    uint64_t disruption_marker;
    uint32_t max_drift_ppb;
    int32_t status;
    uint8_t disruption_support;
    uint8_t padding[7];
};

_Static_assert(sizeof(struct bound_1) == 72 && sizeof(struct bound_2) == 80, "ClockBound's layout");

static size_t bound_size(uint16_t version)
{
    return version == 1 ? sizeof(struct bound_1) : sizeof(struct bound_2);
}

void *syn_bound_open(const char *path, uint16_t version, int *error)
{
    *error = 0;
    if (version != 1 && version != 2) {
        *error = EINVAL;
        return NULL;
    }
    struct bound_header header = {.magic = {BOUND_MAGIC[0], BOUND_MAGIC[1]},
                                  .size = (uint32_t)bound_size(version), .version = version};
    struct bound_header *old = map_old(path, header.size, error);
    if (old != NULL) {
        if (memcmp(old, &header, offsetof(struct bound_header, generation)) == 0)
            return old;
        munmap(old, header.size);
    }
    return map_new(path, &header, sizeof header, header.size, error);
}

void syn_bound_close(void *segment)
{
    if (segment != NULL)
        munmap(segment, ((struct bound_header *)segment)->size);
}

void syn_bound_write(void *segment, const struct syn_bound *bound)
{
    const int64_t second = 1000000000;
    struct bound_header *header = segment;
    struct bound_times times = {bound->as_of_ns / second, bound->as_of_ns % second,
                                bound->void_after_ns / second, bound->void_after_ns % second,
                                bound->bound_ns};
    uint16_t odd = __atomic_load_n(&header->generation, __ATOMIC_RELAXED) | 1;
    __atomic_store_n(&header->generation, odd, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    if (header->version == 1) {
        struct bound_1 *body = segment;
        body->times = times;
        body->max_drift_ppb = bound->max_drift_ppb;
        body->status = bound->status;
    } else {
        struct bound_2 *body = segment;
        body->times = times;
        body->disruption_marker = bound->disruptions;
        body->max_drift_ppb = bound->max_drift_ppb;
        body->status = bound->status;
    }
    uint16_t even = odd == UINT16_MAX ? 2 : (uint16_t)(odd + 1);
    __atomic_store_n(&header->generation, even, __ATOMIC_RELEASE);
}
