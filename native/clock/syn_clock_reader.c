/* Reads the page: a seqlock, a look among the pieces, one line of arithmetic. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "syn_clock_page.h"

enum { TRIES = 1000000 };
/* CLOCK_MONOTONIC is slewed with CLOCK_REALTIME, so only a step drives them apart; a synthetic clock
 * may drift by 500 ppm besides. 20 us is what two readings of a quiet machine may differ by. */
static const int64_t STEP_NS = 20000;
static const double STEP_PPB = 5e5;

static int64_t clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int syn_clock_reader_open(struct syn_clock_reader *reader, const char *path)
{
    struct stat stat;
    *reader = (struct syn_clock_reader){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int failed = fstat(fd, &stat) != 0 ? errno : 0;
    if (!failed && stat.st_size != sizeof *reader->page)
        failed = EPROTO;
    void *map = failed ? MAP_FAILED
                       : mmap(NULL, sizeof *reader->page, PROT_READ, MAP_SHARED, fd, 0);
    if (!failed && map == MAP_FAILED)
        failed = errno;
    close(fd);
    if (failed)
        return failed;
    reader->page = map;
    if (reader->page->magic == SYN_CLOCK_MAGIC && reader->page->size == sizeof *reader->page &&
        reader->page->version == SYN_CLOCK_PAGE_VERSION)
        return 0;
    syn_clock_reader_close(reader);
    return EPROTO;
}

void syn_clock_reader_close(struct syn_clock_reader *reader)
{
    if (reader->page != NULL)
        munmap((void *)reader->page, sizeof *reader->page);
    reader->page = NULL;
}

struct view {
    struct syn_clock_piece piece;
    int64_t local_ns, mono_ns, void_after_ns;
    double sigmas, walk, ramp, swing;
    int found;
};

/* The newest piece that begins at or before local_ns: after a step backwards the same reading is in
 * two of them. `now` ends at the first look. Bytes may be torn: the caller checks. */
static void find(const struct syn_clock_page *page, int64_t local_ns, struct view *view)
{
    uint64_t end = page->written, oldest = end > SYN_CLOCK_PIECES ? end - SYN_CLOCK_PIECES : 0;
    uint64_t at = end;
    while (at > oldest && page->pieces[(at - 1) % SYN_CLOCK_PIECES].from_ns > local_ns)
        at--;
    view->found = at > oldest;
    view->piece = page->pieces[(at - 1) % SYN_CLOCK_PIECES];
    view->local_ns = page->local_ns;
    view->mono_ns = page->mono_ns;
    view->void_after_ns = page->void_after_ns;
    view->sigmas = page->bound_sigmas;
    view->walk = page->walk_ppb;
    view->ramp = page->ramp_ppb_per_s;
    view->swing = page->swing_ppb;
}

static int look(const struct syn_clock_reader *reader, int64_t local_ns, struct view *view)
{
    const struct syn_clock_page *page = reader->page;
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = __atomic_load_n(&page->generation, __ATOMIC_ACQUIRE);
        if (before & 1)
            continue;
        find(page, local_ns, view);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&page->generation, __ATOMIC_RELAXED) == before)
            return before == 0 || !view->found ? ENODATA : 0;
    }
    return EAGAIN;
}

static void unbounded(struct syn_clock_reading *out, int32_t status)
{
    out->status = status;
    out->earliest_ns = INT64_MIN;
    out->latest_ns = INT64_MAX;
}

static void convert(const struct view *view, int64_t local_ns, struct syn_clock_reading *out)
{
    const struct syn_clock_piece *piece = &view->piece;
    double away_ns = (double)(local_ns - piece->ref_ns), s = fabs(away_ns) * 1e-9;
    double slewed_ns = piece->slew_ppb * 1e-9 * (double)(local_ns - piece->from_ns);
    double left_ns = fmax(0, fabs(piece->residual_ns) - fmax(0, slewed_ns));
    double shift_ns = piece->offset_ns + piece->drift_ppb * 1e-9 * away_ns +
                      copysign(left_ns, piece->residual_ns);
    out->fleet_ns = local_ns + llrint(shift_ns);
    out->status = piece->status;
    out->steps = piece->steps;
    double drift_ns = piece->drift_sigma_ppb * s, walk_ns = view->walk * s * sqrt(s / 3);
    double sigma_ns = hypot(hypot(piece->sigma_ns, drift_ns), walk_ns);
    double bound_ns = piece->asymmetry_ns + left_ns + view->sigmas * sigma_ns +
                      fmin(view->ramp * s * s / 2, view->swing * s);
    if (piece->status == SYN_CLOCK_UNKNOWN || piece->status == SYN_CLOCK_DISRUPTED ||
        !(bound_ns < 4e18)) {
        unbounded(out, piece->status);
        return;
    }
    out->earliest_ns = out->fleet_ns - (int64_t)ceil(bound_ns) - 1;
    out->latest_ns = out->fleet_ns + (int64_t)ceil(bound_ns) + 1;
}

static int can_read(const struct syn_clock_reader *reader)
{
    return reader->local != NULL || reader->page->local_clock == SYN_CLOCK_REALTIME;
}

/* The host's clock, between two readings of one that never steps. */
struct instant {
    int64_t before_ns, local_ns, after_ns;
};

static struct instant read_clocks(const struct syn_clock_reader *reader)
{
    struct instant now = {.before_ns = clock_ns(CLOCK_MONOTONIC)};
    now.local_ns = reader->local ? reader->local(reader->context) : clock_ns(CLOCK_REALTIME);
    now.after_ns = clock_ns(CLOCK_MONOTONIC);
    return now;
}

/* How far the clock has jumped since the writer last looked; 0: it has not. */
static int64_t stepped_ns(const struct view *view, const struct instant *now)
{
    int64_t gone_ns = now->local_ns - view->local_ns;
    int64_t least_ns = now->before_ns - view->mono_ns, most_ns = now->after_ns - view->mono_ns;
    int64_t slack_ns = STEP_NS + (int64_t)(STEP_PPB * 1e-9 * (double)llabs(most_ns));
    if (gone_ns < least_ns - slack_ns)
        return gone_ns - least_ns;
    return gone_ns > most_ns + slack_ns ? gone_ns - most_ns : 0;
}

int syn_clock_reader_to_fleet(const struct syn_clock_reader *reader, int64_t local_ns,
                              struct syn_clock_reading *out)
{
    struct view view;
    *out = (struct syn_clock_reading){0};
    unbounded(out, SYN_CLOCK_UNKNOWN);
    int failed = look(reader, local_ns, &view);
    if (failed)
        return failed;
    convert(&view, local_ns, out);
    if (!can_read(reader))
        return 0;
    struct instant now = read_clocks(reader);
    int64_t step_ns = stepped_ns(&view, &now);
    /* Stamps of after a step that the writer has not seen yet. A dead writer's page says what was,
     * but not of instants it did not see. */
    if (step_ns != 0 && local_ns > view.local_ns + (step_ns < 0 ? step_ns : 0))
        unbounded(out, SYN_CLOCK_DISRUPTED);
    else if (now.before_ns > view.void_after_ns && local_ns > view.local_ns)
        unbounded(out, SYN_CLOCK_UNKNOWN);
    return 0;
}

int syn_clock_reader_now(const struct syn_clock_reader *reader, struct syn_clock_reading *out)
{
    struct view view;
    *out = (struct syn_clock_reading){0};
    unbounded(out, SYN_CLOCK_UNKNOWN);
    if (!can_read(reader))
        return ENOTSUP;
    struct instant now = read_clocks(reader);
    int failed = look(reader, now.local_ns, &view);
    if (failed)
        return failed == ENODATA ? 0 : failed;
    convert(&view, now.local_ns, out);
    if (now.before_ns > view.void_after_ns)
        unbounded(out, SYN_CLOCK_UNKNOWN);
    else if (stepped_ns(&view, &now) != 0)
        unbounded(out, SYN_CLOCK_DISRUPTED);
    return 0;
}
