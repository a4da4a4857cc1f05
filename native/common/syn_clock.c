/* The mapping is piecewise linear over knots KNOT_NS apart. A knot's phase error is the closed form
 * of drift and swing plus a doubly integrated random sequence that is pure integer arithmetic on a
 * counter-based generator: every process computes the same bits, in any order of queries.
 *
 * The integrals are kept at one checkpoint per BLOCK knots; the phases inside a block are recomputed
 * on demand into a small cache, so a day of clock costs about 20 kB. */
#include "syn_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    KNOT_NS = 100000000, /* 100 ms: shorter than any window an estimator looks at */
    BLOCK = 1024,
    CACHED = 4,
    FRACTION_BITS = 16, /* phases are in 2^-16 ns */
    TAPE_LINES = 65536,
};

/* Fastest clock accepted, 1 %: keeps (phase step per knot) * KNOT_NS inside 63 bits. */
static const double MAX_RATE_PPB = 1e7;

struct checkpoint {
    int64_t walk;  /* frequency, 2^-16 ns per knot */
    int64_t phase; /* its integral, 2^-16 ns */
};

struct block {
    int64_t index;           /* -1: empty */
    int64_t phase[BLOCK + 1];
};

struct syn_clock {
    pthread_mutex_t lock;
    struct syn_clock_tape *tape; /* NULL: none */
    int tape_writable;
    struct syn_clock_spec spec;
    int64_t walk_scale; /* of gauss() to 2^-16 ns per knot, times 2^32 */
    uint64_t stream;
    struct checkpoint *checkpoints;
    int64_t known, room;
    struct block cache[CACHED];
    unsigned next_victim;
    size_t step_count;
    struct syn_clock_step steps[];
};

uint32_t syn_abi(void)
{
    return SYN_ABI;
}

/* splitmix64 (Steele, Lea, Flood 2014), used as a counter-based generator. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static int32_t lanes(uint64_t word)
{
    return (int32_t)(word & 0xffff) + (int32_t)(word >> 16 & 0xffff) +
           (int32_t)(word >> 32 & 0xffff) + (int32_t)(word >> 48);
}

/* Sum of eight uniform 16-bit integers, centred: close to normal, exact in every process.
 * Standard deviation 65536 * sqrt(8 / 12). */
static int32_t gauss(uint64_t stream, int64_t knot)
{
    uint64_t first = mix(stream + 2 * (uint64_t)knot);
    uint64_t second = mix(stream + 2 * (uint64_t)knot + 1);
    return lanes(first) + lanes(second) - 4 * 65535;
}

static void advance(const struct syn_clock *clock, struct checkpoint *at, int64_t knot)
{
    at->phase += at->walk;
    __int128 step = (__int128)clock->walk_scale * gauss(clock->stream, knot);
    at->walk += (int64_t)((step + (INT64_C(1) << 31)) >> 32);
}

int syn_clock_spec_ok(const struct syn_clock_spec *spec, const struct syn_clock_step *steps,
                      size_t count)
{
    double rate = fabs(spec->drift_ppb) + fabs(spec->swing_ppb);
    if (!(rate <= MAX_RATE_PPB) || !(spec->wander_ppb >= 0 && spec->wander_ppb <= MAX_RATE_PPB) ||
        spec->swing_period_ns < KNOT_NS)
        return 0;
    for (size_t i = 1; i < count; i++)
        if (steps[i].at_ns <= steps[i - 1].at_ns)
            return 0;
    return 1;
}

struct syn_clock *syn_clock_open(const struct syn_clock_spec *spec,
                                 const struct syn_clock_step *steps, size_t count)
{
    if (!syn_clock_spec_ok(spec, steps, count))
        return NULL;
    struct syn_clock *clock = calloc(1, sizeof *clock + count * sizeof *steps);
    if (clock == NULL)
        return NULL;
    clock->room = 64;
    clock->checkpoints = calloc((size_t)clock->room, sizeof *clock->checkpoints);
    if (clock->checkpoints == NULL) {
        free(clock);
        return NULL;
    }
    pthread_mutex_init(&clock->lock, NULL);
    clock->spec = *spec;
    clock->stream = mix(mix(spec->seed));
    clock->known = 1;
    double knot_s = KNOT_NS / 1e9;
    double sigma_ppb = spec->wander_ppb * sqrt(knot_s);
    double scale = sigma_ppb * knot_s * (1 << FRACTION_BITS) / (65536.0 * sqrt(8.0 / 12.0));
    clock->walk_scale = llround(ldexp(scale, 32));
    for (int i = 0; i < CACHED; i++)
        clock->cache[i].index = -1;
    for (size_t i = 0; i < count; i++)
        if (steps[i].at_ns > spec->base_ns)
            clock->steps[clock->step_count++] = steps[i];
    return clock;
}

void syn_clock_close(struct syn_clock *clock)
{
    if (clock == NULL)
        return;
    pthread_mutex_destroy(&clock->lock);
    if (clock->tape != NULL)
        munmap(clock->tape, sizeof *clock->tape);
    free(clock->checkpoints);
    free(clock);
}

/* Drift and swing at a knot, 2^-16 ns. */
static int64_t closed_form(const struct syn_clock_spec *spec, int64_t knot)
{
    double elapsed_ns = (double)knot * KNOT_NS;
    double phase_ns = spec->drift_ppb * 1e-9 * elapsed_ns;
    if (spec->swing_ppb != 0.0) {
        double turn = 2 * M_PI / (double)spec->swing_period_ns;
        phase_ns += spec->swing_ppb * 1e-9 / turn * (1 - cos(turn * elapsed_ns));
    }
    return (int64_t)llround(phase_ns * (1 << FRACTION_BITS));
}

static int extend(struct syn_clock *clock, int64_t index)
{
    if (index >= clock->room) {
        int64_t room = index * 2;
        struct checkpoint *more =
            realloc(clock->checkpoints, (size_t)room * sizeof *clock->checkpoints);
        if (more == NULL)
            return 0;
        clock->checkpoints = more;
        clock->room = room;
    }
    for (; clock->known <= index; clock->known++) {
        struct checkpoint at = clock->checkpoints[clock->known - 1];
        int64_t first = (clock->known - 1) * BLOCK;
        for (int64_t knot = first; knot < first + BLOCK && clock->spec.wander_ppb > 0; knot++)
            advance(clock, &at, knot);
        clock->checkpoints[clock->known] = at;
    }
    return 1;
}

static const struct block *find_block(struct syn_clock *clock, int64_t index)
{
    for (int i = 0; i < CACHED; i++)
        if (clock->cache[i].index == index)
            return &clock->cache[i];
    /* Without memory for the walk's checkpoints no honest reading exists. */
    if (!extend(clock, index))
        abort();
    struct block *block = &clock->cache[clock->next_victim++ % CACHED];
    block->index = index;
    struct checkpoint at = clock->checkpoints[index];
    int64_t first = index * BLOCK;
    for (int64_t i = 0; i <= BLOCK; i++) {
        block->phase[i] = closed_form(&clock->spec, first + i) + at.phase;
        advance(clock, &at, first + i);
    }
    return block;
}

struct segment {
    int64_t from, to; /* phase at its two knots, 2^-16 ns */
    int64_t into_ns;  /* how far into it */
};

static struct segment locate(struct syn_clock *clock, int64_t elapsed_ns)
{
    int64_t knot = elapsed_ns / KNOT_NS;
    const struct block *block = find_block(clock, knot / BLOCK);
    const int64_t *phase = &block->phase[knot % BLOCK];
    return (struct segment){phase[0], phase[1], elapsed_ns % KNOT_NS};
}

/* Offset, drift, swing and wander; not the steps. */
static int64_t smooth_error(struct syn_clock *clock, int64_t real_ns)
{
    int64_t elapsed_ns = real_ns - clock->spec.base_ns;
    if (elapsed_ns < 0)
        return clock->spec.offset_ns + llround(clock->spec.drift_ppb * 1e-9 * (double)elapsed_ns);
    struct segment at = locate(clock, elapsed_ns);
    int64_t phase = at.from + (at.to - at.from) * at.into_ns / KNOT_NS;
    return clock->spec.offset_ns + ((phase + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS);
}

static int64_t machine_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The half of the count that changes: futexes are of 32 bits. */
static uint32_t *count_word(const struct syn_clock *clock)
{
    return (uint32_t *)&clock->tape->count + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

static uint64_t tape_count(const struct syn_clock *clock)
{
    if (clock->tape == NULL)
        return 0;
    uint64_t count = __atomic_load_n(&clock->tape->count, __ATOMIC_ACQUIRE);
    return count < TAPE_LINES ? count : TAPE_LINES;
}

/* How many lines begin at or before real_ns; the newest are looked at first. */
static uint64_t lines_until(const struct syn_clock *clock, int64_t real_ns)
{
    uint64_t count = tape_count(clock);
    while (count > 0 && clock->tape->lines[count - 1].at_ns > real_ns)
        count--;
    return count;
}

static int64_t line_error(const struct syn_clock_line *line, int64_t real_ns)
{
    return line->phase_ns + llround(line->rate_ppb * 1e-9 * (double)(real_ns - line->at_ns));
}

static int64_t taped_error(const struct syn_clock *clock, int64_t real_ns)
{
    uint64_t count = lines_until(clock, real_ns);
    return count == 0 ? 0 : line_error(&clock->tape->lines[count - 1], real_ns);
}

/* What of a line's phase was a step rather than the line before it run on. */
static int64_t line_step(const struct syn_clock *clock, uint64_t line)
{
    const struct syn_clock_line *at = &clock->tape->lines[line];
    return at->phase_ns - (line == 0 ? 0 : line_error(at - 1, at->at_ns));
}

/* What the tape has added at a machine instant but for its steps. */
static int64_t taped_slew(const struct syn_clock *clock, int64_t real_ns)
{
    uint64_t count = lines_until(clock, real_ns);
    int64_t slew_ns = count == 0 ? 0 : line_error(&clock->tape->lines[count - 1], real_ns);
    for (uint64_t line = 0; line < count; line++)
        slew_ns -= line_step(clock, line);
    return slew_ns;
}

static int64_t map_locked(struct syn_clock *clock, int64_t real_ns)
{
    int64_t local_ns = real_ns + smooth_error(clock, real_ns) + taped_error(clock, real_ns);
    for (size_t i = 0; i < clock->step_count && clock->steps[i].at_ns <= real_ns; i++)
        local_ns += clock->steps[i].phase_ns;
    return local_ns;
}

int64_t syn_clock_map(struct syn_clock *clock, int64_t real_ns)
{
    pthread_mutex_lock(&clock->lock);
    int64_t local_ns = map_locked(clock, real_ns);
    pthread_mutex_unlock(&clock->lock);
    return local_ns;
}

void syn_clock_map_many(struct syn_clock *clock, const int64_t *real_ns, int64_t *local_ns,
                        size_t count)
{
    pthread_mutex_lock(&clock->lock);
    for (size_t i = 0; i < count; i++)
        local_ns[i] = map_locked(clock, real_ns[i]);
    pthread_mutex_unlock(&clock->lock);
}

/* Fixed point of real = shifted - error(real), `line` (if any) included: the error's slope is at most
 * 2 %, so every turn shrinks the miss fiftyfold and twelve turns cover 2^63 ns. */
static int64_t invert_smooth(struct syn_clock *clock, const struct syn_clock_line *line,
                             int64_t shifted_ns)
{
    int64_t real_ns = shifted_ns - clock->spec.offset_ns;
    for (int turn = 0; turn < 12; turn++) {
        int64_t next_ns = shifted_ns - smooth_error(clock, real_ns);
        if (line != NULL)
            next_ns -= line_error(line, real_ns);
        if (next_ns == real_ns)
            break;
        real_ns = next_ns;
    }
    return real_ns;
}

/* From the newest stretch between two breaks (steps of the spec, lines of the tape) backwards. */
int64_t syn_clock_unmap(struct syn_clock *clock, int64_t local_ns)
{
    pthread_mutex_lock(&clock->lock);
    size_t step = clock->step_count;
    uint64_t line = tape_count(clock);
    int64_t stepped_ns = 0, before_ns = INT64_MAX, real_ns = 0;
    for (size_t i = 0; i < clock->step_count; i++)
        stepped_ns += clock->steps[i].phase_ns;
    for (;;) {
        const struct syn_clock_line *now = line > 0 ? &clock->tape->lines[line - 1] : NULL;
        int64_t step_at = step > 0 ? clock->steps[step - 1].at_ns : INT64_MIN;
        int64_t line_at = now != NULL ? now->at_ns : INT64_MIN;
        real_ns = invert_smooth(clock, now, local_ns - stepped_ns);
        if (real_ns >= before_ns) /* the reading lies in the gap that this break skipped */
            real_ns = before_ns;
        before_ns = step_at > line_at ? step_at : line_at;
        if (before_ns == INT64_MIN || real_ns >= before_ns)
            break;
        if (step_at == before_ns)
            stepped_ns -= clock->steps[--step].phase_ns;
        if (line_at == before_ns)
            line--;
    }
    pthread_mutex_unlock(&clock->lock);
    return real_ns;
}

int syn_clock_follow(struct syn_clock *clock, const char *path)
{
    struct stat stat;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    int writable = fd >= 0;
    if (!writable)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int failed = fstat(fd, &stat) != 0 ? errno : 0;
    if (!failed && stat.st_size != sizeof *clock->tape)
        failed = EPROTO;
    void *map = MAP_FAILED;
    if (!failed)
        map = mmap(NULL, sizeof *clock->tape, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED,
                   fd, 0);
    if (!failed && map == MAP_FAILED)
        failed = errno;
    close(fd);
    if (!failed) {
        clock->tape = map;
        clock->tape_writable = writable;
    }
    return failed;
}

struct syn_clock_line syn_clock_line_at(struct syn_clock *clock, int64_t real_ns)
{
    uint64_t count = lines_until(clock, real_ns);
    return count == 0 ? (struct syn_clock_line){0} : clock->tape->lines[count - 1];
}

int syn_clock_adjust(struct syn_clock *clock, int64_t at_ns, int64_t step_ns, double rate_ppb)
{
    if (clock->tape == NULL || !clock->tape_writable || fabs(rate_ppb) > MAX_RATE_PPB)
        return EINVAL;
    uint64_t count = tape_count(clock);
    if (count == TAPE_LINES)
        return ENOSPC;
    struct syn_clock_line last = {0};
    if (count > 0) {
        last = clock->tape->lines[count - 1];
        if (at_ns <= last.at_ns)
            at_ns = last.at_ns + 1;
    }
    clock->tape->lines[count] = (struct syn_clock_line){
        at_ns, line_error(&last, at_ns) + step_ns, isnan(rate_ppb) ? last.rate_ppb : rate_ppb};
    __atomic_store_n(&clock->tape->count, count + 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, count_word(clock), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return 0;
}

int syn_clock_wait(struct syn_clock *clock, uint64_t *seen, int timeout_ms)
{
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    if (clock->tape == NULL) {
        nanosleep(&timeout, NULL);
        return 0;
    }
    if (timeout_ms > 0 && tape_count(clock) == *seen)
        syscall(SYS_futex, count_word(clock), FUTEX_WAIT, (uint32_t)*seen, &timeout, NULL, 0);
    int stepped = 0;
    for (uint64_t count = tape_count(clock); *seen < count; ++*seen) {
        if (line_step(clock, *seen) == 0)
            continue;
        stepped = 1;
        int64_t ahead_ns = clock->tape->lines[*seen].at_ns - machine_now();
        if (ahead_ns > 0)
            nanosleep(&(struct timespec){ahead_ns / 1000000000, ahead_ns % 1000000000}, NULL);
    }
    return stepped;
}

double syn_clock_rate_ppb(struct syn_clock *clock, int64_t real_ns)
{
    int64_t elapsed_ns = real_ns - clock->spec.base_ns;
    double taped_ppb = syn_clock_line_at(clock, real_ns).rate_ppb;
    if (elapsed_ns < 0)
        return clock->spec.drift_ppb + taped_ppb;
    pthread_mutex_lock(&clock->lock);
    struct segment at = locate(clock, elapsed_ns);
    pthread_mutex_unlock(&clock->lock);
    return (double)(at.to - at.from) / (1 << FRACTION_BITS) / KNOT_NS * 1e9 + taped_ppb;
}

int64_t syn_clock_raw(struct syn_clock *clock, int64_t real_ns)
{
    pthread_mutex_lock(&clock->lock);
    int64_t raw_ns = real_ns + smooth_error(clock, real_ns);
    pthread_mutex_unlock(&clock->lock);
    return raw_ns;
}

int64_t syn_clock_steady(struct syn_clock *clock, int64_t real_ns)
{
    return syn_clock_raw(clock, real_ns) + taped_slew(clock, real_ns);
}

int64_t syn_clock_now(struct syn_clock *clock)
{
    return syn_clock_map(clock, machine_now());
}

int64_t syn_clock_steady_now(struct syn_clock *clock)
{
    return syn_clock_steady(clock, machine_now());
}

int64_t syn_clock_raw_now(struct syn_clock *clock)
{
    return syn_clock_raw(clock, machine_now());
}
