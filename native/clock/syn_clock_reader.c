/* Reads the page: a seqlock, a look among the pieces, one line of arithmetic. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "syn_clock_page.h"

enum { SPINS = 1000, LOOKS = 5 };
/* For so long a writer may be kept from finishing an update, which takes it a microsecond. */
static const int64_t PATIENCE_NS = 100000000;
/* A moment read within this is not read again. */
static const int64_t TIGHT_NS = 250;
/* What two readings of clocks that run alike may differ by besides: rounding, processors. */
static const int64_t EDGE_NS = 20;
/* The width of a moment whose writer gave none. */
static const int64_t DEFAULT_WIDTH_NS = 40000;
/* A bound beyond this is none (see docs/reference/clock-page.md). */
static const double MAX_BOUND_NS = 1e6;

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
    struct syn_clock_pace pace;
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
    memcpy(&view->pace, &page->pieces[end % SYN_CLOCK_PIECES], sizeof view->pace);
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
    int64_t end_ns = 0;
    for (int i = 1;; i++) {
        uint32_t before = __atomic_load_n(&page->generation, __ATOMIC_ACQUIRE);
        if (!(before & 1)) {
            find(page, local_ns, view);
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            if (__atomic_load_n(&page->generation, __ATOMIC_RELAXED) == before)
                return before == 0 || !view->found ? ENODATA : 0;
        }
        if (i % SPINS != 0)
            continue;
        int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
        end_ns = end_ns != 0 ? end_ns : now_ns + PATIENCE_NS;
        if (now_ns > end_ns)
            return EAGAIN;
        sched_yield(); /* it may wait for this very processor */
    }
}

static void unbounded(struct syn_clock_reading *out, int32_t status)
{
    out->status = status;
    out->earliest_ns = INT64_MIN;
    out->latest_ns = INT64_MAX;
}

/* `slewed_ns`: how far the clock has gone from its pace since the writer looked. */
static void convert(const struct view *view, int64_t local_ns, double slewed_ns,
                    struct syn_clock_reading *out)
{
    const struct syn_clock_piece *piece = &view->piece;
    double away_ns = (double)(local_ns - piece->ref_ns), s = fabs(away_ns) * 1e-9;
    double gone_ns = piece->slew_ppb * 1e-9 * (double)(local_ns - piece->from_ns);
    double left_ns = fmax(0, fabs(piece->residual_ns) - fmax(0, gone_ns));
    double shift_ns = piece->offset_ns + piece->drift_ppb * 1e-9 * away_ns +
                      copysign(left_ns, piece->residual_ns);
    out->fleet_ns = local_ns + llrint(shift_ns);
    out->status = piece->status;
    out->steps = piece->steps;
    double drift_ns = piece->drift_sigma_ppb * s, walk_ns = view->walk * s * sqrt(s / 3);
    double sigma_ns = sqrt(piece->sigma_ns * piece->sigma_ns + drift_ns * drift_ns + walk_ns * walk_ns);
    double bound_ns = piece->asymmetry_ns + left_ns + slewed_ns + view->sigmas * sigma_ns +
                      fmin(view->ramp * s * s / 2, view->swing * s);
    if (!(bound_ns <= MAX_BOUND_NS) && piece->status != SYN_CLOCK_UNKNOWN)
        out->status = SYN_CLOCK_DISRUPTED;
    if (out->status == SYN_CLOCK_UNKNOWN || out->status == SYN_CLOCK_DISRUPTED) {
        unbounded(out, out->status);
        return;
    }
    out->earliest_ns = out->fleet_ns - (int64_t)ceil(bound_ns) - 1;
    out->latest_ns = out->fleet_ns + (int64_t)ceil(bound_ns) + 1;
}

static int can_read(const struct syn_clock_reader *reader)
{
    return reader->local != NULL || reader->page->local_clock == SYN_CLOCK_REALTIME;
}

static int64_t local_now(const struct syn_clock_reader *reader)
{
    return reader->local ? reader->local(reader->context) : clock_ns(CLOCK_REALTIME);
}

static int64_t mono_now(const struct syn_clock_reader *reader)
{
    return reader->local ? reader->steady(reader->context) : clock_ns(CLOCK_MONOTONIC);
}

static int64_t raw_now(const struct syn_clock_reader *reader)
{
    return reader->local ? reader->raw(reader->context) : clock_ns(CLOCK_MONOTONIC_RAW);
}

void syn_clock_look(const struct syn_clock_reader *reader, struct syn_clock_moment *out)
{
    out->width_ns = INT64_MAX;
    for (int i = 0; i < LOOKS && out->width_ns > TIGHT_NS; i++) {
        int64_t before_ns = mono_now(reader);
        int64_t raw_ns = raw_now(reader);
        int64_t local_ns = local_now(reader);
        int64_t width_ns = mono_now(reader) - before_ns;
        if (width_ns < out->width_ns)
            *out = (struct syn_clock_moment){local_ns, before_ns + width_ns / 2, raw_ns, width_ns};
    }
}

/* The present moment; for a foreign clock without other clocks to compare, that clock alone. */
static void read_clocks(const struct syn_clock_reader *reader, struct syn_clock_moment *now)
{
    if (reader->local == NULL || (reader->steady != NULL && reader->raw != NULL))
        syn_clock_look(reader, now);
    else
        *now = (struct syn_clock_moment){.local_ns = local_now(reader), .width_ns = -1};
}

/* How far the clock has jumped since the writer last looked; 0: it has not. */
static int64_t stepped_ns(const struct view *view, const struct syn_clock_moment *now)
{
    if (now->width_ns < 0)
        return 0;
    int known = view->pace.never == INT64_MAX;
    int64_t step_ns = now->local_ns - view->local_ns - (now->mono_ns - view->mono_ns);
    int64_t widths_ns = now->width_ns + (known ? view->pace.width_ns : DEFAULT_WIDTH_NS);
    return llabs(step_ns) > widths_ns / 2 + EDGE_NS ? step_ns : 0;
}

/* How far the clock may have been slewed out of its pace since then; 0: not to be seen. */
static double slewed_ns(const struct view *view, const struct syn_clock_moment *now)
{
    const struct syn_clock_pace *pace = &view->pace;
    if (now->width_ns < 0 || pace->never != INT64_MAX)
        return 0;
    double gone_ns = (double)(now->raw_ns - pace->raw_ns);
    double ahead_ns = (double)(now->mono_ns - view->mono_ns) - gone_ns;
    double off_ns = fabs(ahead_ns - pace->rate_ppb * 1e-9 * gone_ns);
    double widths_ns = (double)(now->width_ns + pace->width_ns) / 2 + (double)EDGE_NS;
    double least_ns = widths_ns + pace->rate_tolerance_ppb * 1e-9 * fabs(gone_ns);
    return off_ns > least_ns ? off_ns + least_ns : 0;
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
    if (!can_read(reader)) {
        convert(&view, local_ns, 0, out);
        return 0;
    }
    struct syn_clock_moment now;
    read_clocks(reader, &now);
    int64_t step_ns = stepped_ns(&view, &now);
    convert(&view, local_ns, local_ns > view.local_ns ? slewed_ns(&view, &now) : 0, out);
    /* Stamps of after a step that the writer has not seen yet. A dead writer's page says what was,
     * but not of instants it did not see. */
    if (step_ns != 0 && local_ns > view.local_ns + (step_ns < 0 ? step_ns : 0))
        unbounded(out, SYN_CLOCK_DISRUPTED);
    else if (clock_ns(CLOCK_MONOTONIC) > view.void_after_ns && local_ns > view.local_ns)
        unbounded(out, SYN_CLOCK_UNKNOWN);
    return 0;
}

int syn_clock_reader_now(const struct syn_clock_reader *reader, struct syn_clock_reading *out)
{
    struct view view;
    struct syn_clock_moment now;
    *out = (struct syn_clock_reading){0};
    unbounded(out, SYN_CLOCK_UNKNOWN);
    if (!can_read(reader))
        return ENOTSUP;
    read_clocks(reader, &now);
    int failed = look(reader, now.local_ns, &view);
    if (failed)
        return failed == ENODATA ? 0 : failed;
    int64_t mono_ns = reader->local ? clock_ns(CLOCK_MONOTONIC) : now.mono_ns;
    convert(&view, now.local_ns, slewed_ns(&view, &now), out);
    if (mono_ns > view.void_after_ns)
        unbounded(out, SYN_CLOCK_UNKNOWN);
    else if (stepped_ns(&view, &now) != 0)
        unbounded(out, SYN_CLOCK_DISRUPTED);
    return 0;
}
