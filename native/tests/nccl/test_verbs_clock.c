/* Clocks of RDMA devices, on the fake provider, whose truth is known.
 * test_verbs_clock PROVIDER CASE SEED */
#include <math.h>
#include <string.h>
#include <time.h>

#include "verbs_ends.h"

enum { KHZ = 156250 };
static const double NS_PER_TICK = 1e6 / KHZ;
static uint64_t state;
extern int64_t syn_verbs_probation_ns;

static int64_t random_below(int64_t limit)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (int64_t)(state >> 8) % limit;
}

static struct syn_verbs_clock_reading read_clock(int at)
{
    struct syn_verbs_clock_reading reading;
    memset(&reading, 0xff, sizeof reading);
    syn_probe_read_clock(ends[at].verbs, 0, &reading);
    return reading;
}

/* Its counter comes to its end within a second. */
static struct fake_machine wrapping(int at)
{
    struct fake_machine machine = {.stamps = 1, .bits = 32,
                                   .drift_ppb = random_below(200001) - 100000};
    fake.set_machine(at, &machine);
    int64_t before_end = INT64_C(300000) * KHZ / 1000 + random_below(INT64_C(500) * KHZ);
    machine.offset = (INT64_C(3) << 32) - fake.ticks_at(at, real_ns()) - before_end;
    fake.set_machine(at, &machine);
    printf("device %d: %+.1f ppm, its counter wraps in %.0f ms\n", at,
           (double)machine.drift_ppb * 1e-3, (double)before_end / KHZ);
    return machine;
}

/* By how much the clock has moved against its device's counter from one reading to the next. */
static double error_ns(int at, const struct syn_verbs_clock_reading *from,
                       const struct syn_verbs_clock_reading *to)
{
    int64_t ticks = fake.ticks_at(at, to->host_ns) - fake.ticks_at(at, from->host_ns);
    return (double)(to->device_ns - from->device_ns) - (double)ticks * NS_PER_TICK;
}

/* A stamp, on the host's clock. */
static int64_t on_host(const struct fake_machine *machine,
                       const struct syn_verbs_clock_reading *reading, int64_t stamp_ns)
{
    double since_ns = (double)(stamp_ns - reading->device_ns);
    return reading->host_ns + llround(since_ns / (1 + (double)machine->drift_ppb * 1e-9));
}

static void truth(void)
{
    struct fake_machine machines[ENDS];
    struct syn_verbs_clock_reading first[ENDS];
    for (int at = 0; at < ENDS; at++)
        machines[at] = wrapping(at);
    open_both();
    for (int at = 0; at < ENDS; at++) {
        first[at] = read_clock(at);
        CHECK(first[at].epoch_ns != 0 && first[at].fault[0] == '\0');
        CHECK(llabs(first[at].device_ns - first[at].host_ns) < 1000 * MS);
    }
    int64_t until_ns = real_ns() + 1500 * MS;
    size_t whole = 0;
    double worst_ns = 0;
    while (real_ns() < until_ns || whole < 100) {
        char message[256] = "";
        struct syn_verbs_clock_reading now[ENDS];
        rest(100 * MS);
        for (int at = 0; at < ENDS; at++) {
            now[at] = read_clock(at);
            double off_ns = fabs(error_ns(at, &first[at], &now[at]));
            CHECK_EQUAL(now[at].epoch_ns, first[at].epoch_ns);
            /* Readings are right to within what they say of themselves. */
            CHECK(off_ns <= (double)(first[at].uncertainty_ns + now[at].uncertainty_ns) + 10);
            worst_ns = off_ns > worst_ns ? off_ns : worst_ns;
            CHECK(syn_probe_check(ends[at].verbs, 0, message));
        }
        size_t count = drain_records(0);
        int64_t now_ns = real_ns();
        for (size_t i = 0; i < count; i++) {
            const struct syn_probe_record *record = &records[i];
            if (!(record->t1_ns && record->t2_ns && record->t3_ns && record->t4_ns))
                continue;
            CHECK((record->flags & SYN_HW_LOCAL) && (record->flags & SYN_HW_REMOTE));
            /* Forth and back, in this order, on one clock. */
            int64_t slack_ns = now[0].uncertainty_ns + now[1].uncertainty_ns + 1000;
            int64_t t1_ns = on_host(&machines[0], &now[0], record->t1_ns);
            int64_t t2_ns = on_host(&machines[1], &now[1], record->t2_ns);
            int64_t t3_ns = on_host(&machines[1], &now[1], record->t3_ns);
            int64_t t4_ns = on_host(&machines[0], &now[0], record->t4_ns);
            CHECK(record->sent_ns - slack_ns <= t1_ns && t1_ns <= t2_ns + slack_ns);
            CHECK(t2_ns <= t3_ns && t3_ns <= t4_ns + slack_ns && t4_ns <= now_ns + slack_ns);
            whole++;
        }
    }
    for (int at = 0; at < ENDS; at++)
        CHECK(fake.ticks_at(at, real_ns()) >= INT64_C(3) << 32); /* it has wrapped */
    printf("%zu probes with four stamps; clocks off by up to %.0f ns\n", whole, worst_ns);
    close_both();
}

/* Attached again, it is stamped by the engine. */
static void falls_back(int at, const char *word)
{
    char message[256] = "";
    (void)read_clock(at);
    CHECK(!syn_probe_check(ends[at].verbs, 0, message));
    if (strstr(message, word) == NULL)
        fprintf(stderr, "%s\n", message);
    CHECK(strstr(message, word) != NULL);
    CHECK_EQUAL(attach(at, message), SYN_OK);
    int64_t attached_ns = real_ns();
    struct syn_probe_nic_status status;
    CHECK_EQUAL(syn_probe_read_nic_status(ends[at].verbs, &status, 1), 1);
    CHECK(!status.hardware && strstr(status.reason, "stamped by the engine"));
    struct syn_verbs_clock_reading reading = read_clock(at);
    CHECK(reading.epoch_ns == 0 && strstr(reading.fault, word) != NULL);
    CHECK(syn_probe_check(ends[at].verbs, 0, message));
    for (int each = 0; each < ENDS; each++) /* with other queue pairs than before */
        meet(each);
    for (size_t answered = 0, tries = 0; answered < 50; tries++) {
        CHECK(tries < HANG_S * 10);
        rest(100 * MS);
        size_t count = drain_records(at);
        for (size_t i = 0; i < count; i++) {
            if (records[i].sent_ns < attached_ns)
                continue;
            CHECK(!(records[i].flags & SYN_HW_LOCAL));
            int64_t off_ns = records[i].t1_ns - records[i].sent_ns;
            /* On the host's clock, unless this process stopped in between. */
            CHECK(records[i].t1_ns == 0 || llabs(off_ns) < 1000 * MS || records[i].flags & SYN_STALL_LOCAL);
            answered += records[i].t4_ns != 0;
        }
    }
}

/* Forwards or backwards: from the reading on that shows it nothing is stamped by it. */
static void jump(void)
{
    for (int way = -1; way <= 1; way += 2) {
        struct fake_machine machine = {.stamps = 1};
        for (int at = 0; at < ENDS; at++)
            fake.set_machine(at, &machine);
        open_both();
        for (int i = 0; i < 4; i++) { /* its rate is known to within some ppm */
            rest(400 * MS);
            CHECK(read_clock(0).epoch_ns != 0);
        }
        until(0, 0, 50);
        machine.offset = way * INT64_C(1000) * KHZ;
        fake.set_machine(0, &machine);
        struct syn_verbs_clock_reading reading = read_clock(0);
        printf("%s\n", reading.fault);
        CHECK(reading.epoch_ns == 0 && reading.device_ns == 0);
        CHECK(strstr(reading.fault, way > 0 ? "jumped by +" : "jumped by -") != NULL);
        int64_t jumped_ns = real_ns();
        for (size_t answered = 0, tries = 0; answered == 0; tries++) { /* it is missing stamps, not probes */
            CHECK(tries < HANG_S * 4);
            rest(250 * MS);
            size_t count = drain_records(0);
            for (size_t i = 0; i < count; i++) {
                if (records[i].sent_ns < jumped_ns)
                    continue;
                CHECK(records[i].t1_ns == 0 && records[i].t4_ns == 0);
                answered += records[i].t2_ns != 0;
            }
        }
        falls_back(0, "jumped");
        close_both();
    }
}

/* It is watched meanwhile, and used again when it has been in order for long. */
static void recovery(void)
{
    struct fake_machine machine = {.stamps = 1};
    char message[256] = "";
    for (int at = 0; at < ENDS; at++)
        fake.set_machine(at, &machine);
    open_both();
    struct syn_verbs_clock_reading before = read_clock(0);
    machine.offset = INT64_C(1000) * KHZ;
    fake.set_machine(0, &machine);
    falls_back(0, "its clock"); /* too new to distinguish a jump from a wrong frequency */
    syn_verbs_probation_ns = 2000 * MS;
    rest(1000 * MS);
    CHECK_EQUAL(read_clock(0).epoch_ns, 0);
    machine.offset = 0; /* again */
    fake.set_machine(0, &machine);
    int64_t jumped_ns = real_ns();
    for (int is_whole = 1; is_whole; rest(50 * MS)) {
        CHECK(read_clock(0).fault[0] != '\0'); /* what was wrong with it, until it is used */
        is_whole = syn_probe_check(ends[0].verbs, 0, message);
        CHECK(real_ns() - jumped_ns < INT64_C(1000) * HANG_S * MS);
    }
    CHECK(real_ns() - jumped_ns >= 1900 * MS);
    CHECK(strstr(message, "whole again") != NULL);
    CHECK_EQUAL(attach(0, message), SYN_OK);
    struct syn_verbs_clock_reading after = read_clock(0);
    CHECK(after.epoch_ns > before.epoch_ns && after.fault[0] == '\0');
    CHECK(syn_probe_check(ends[0].verbs, 0, message));
    close_both();
}

/* Its time goes on while it is detached, unless the device was reset meanwhile. */
static void reset(void)
{
    struct fake_machine machine = {.stamps = 1};
    char message[256] = "";
    fake.set_machine(0, &machine);
    fake.set_machine(1, &machine);
    open_both();
    struct syn_verbs_clock_reading before = read_clock(0);
    syn_probe_detach(ends[0].verbs, 0);
    CHECK_EQUAL(read_clock(0).epoch_ns, 0);
    rest(50 * MS);
    CHECK_EQUAL(attach(0, message), SYN_OK);
    struct syn_verbs_clock_reading after = read_clock(0);
    CHECK_EQUAL(after.epoch_ns, before.epoch_ns);
    CHECK(fabs(error_ns(0, &before, &after)) <=
          (double)(before.uncertainty_ns + after.uncertainty_ns) + 10);
    syn_probe_detach(ends[0].verbs, 0);
    machine.offset = -fake.ticks_at(0, real_ns());
    fake.set_machine(0, &machine);
    CHECK_EQUAL(attach(0, message), SYN_OK);
    after = read_clock(0);
    CHECK(after.epoch_ns > before.epoch_ns && after.fault[0] == '\0');
    close_both();
}

/* A clock that is none costs its stamps, and says why; probing goes on. */
static void unusable(void)
{
    const struct {
        struct fake_machine machine;
        const char *fault;
    } cases[] = {
        {{.stamps = 1, .named_khz = -1}, "a frequency of 0 kHz"},
        {{.stamps = 1, .named_khz = 156}, "a frequency of 156 kHz"}, /* it was MHz */
        {{.stamps = 1, .named_khz = 156250000}, "a frequency of 156250000 kHz"},
        {{.stamps = 1, .named_khz = 200000}, "does not run at the 200000 kHz"},
        {{.stamps = 1, .bits = 24}, "wraps every 107 ms"},
        {{.stamps = 1, .unreadable = 1}, "cannot be read"},
        {{.stamps = 0}, ""}, /* that it has none is no fault */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char message[256] = "";
        for (int at = 0; at < ENDS; at++)
            fake.set_machine(at, &cases[i].machine);
        open_both();
        struct syn_verbs_clock_reading reading = read_clock(0);
        printf("%s\n", reading.fault);
        CHECK_EQUAL(reading.epoch_ns, 0);
        CHECK(strstr(reading.fault, cases[i].fault) && !reading.fault[0] == !cases[i].fault[0]);
        CHECK(syn_probe_check(ends[0].verbs, 0, message)); /* it need not be attached again */
        until(0, 0, 50);
        close_both();
    }
    struct fake_machine machine = {.stamps = 1};
    for (int at = 0; at < ENDS; at++)
        fake.set_machine(at, &machine);
    open_both();
    CHECK(read_clock(0).epoch_ns != 0);
    machine.unreadable = 1;
    fake.set_machine(0, &machine);
    CHECK_EQUAL(read_clock(0).epoch_ns, 0);
    falls_back(0, "cannot be read");
    close_both();
}

int main(int count, char **words)
{
    CHECK(count == 4);
    load_fake(words[1]);
    setenv("SYNTONY_IBVERBS", words[1], 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    uint64_t seed = strtoull(words[3], NULL, 10);
    seed = seed ? seed : (uint64_t)time(NULL);
    state = seed * 0x9e3779b97f4a7c15u | 1;
    printf("seed %" PRIu64 "\n", seed);
    const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"truth", truth}, {"jump", jump}, {"recovery", recovery}, {"reset", reset},
                 {"unusable", unusable}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(words[2], cases[i].name) == 0) {
            cases[i].run();
            CHECK_EQUAL(fake.objects(), 0);
            return 0;
        }
    CHECK(0);
    return 0;
}
