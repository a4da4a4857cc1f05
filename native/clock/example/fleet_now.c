/* Prints fleet time and its bound:
 *     cc -O2 fleet_now.c syn_clock_reader.c -lm -o fleet_now && ./fleet_now /run/syntony/clock */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "syn_clock_page.h"

int main(int count, char **words)
{
    static const char *const states[] = {"UNKNOWN", "SYNCHRONIZED", "HOLDOVER", "DISRUPTED"};
    const char *path = count > 1 ? words[1] : "/run/syntony/clock";
    struct syn_clock_reader reader;
    struct syn_clock_reading now;
    int failed = syn_clock_reader_open(&reader, path);
    if (!failed)
        failed = syn_clock_reader_now(&reader, &now);
    if (failed) {
        fprintf(stderr, "%s: %s (does syntony-agent run?)\n", path, strerror(failed));
        return 3;
    }
    printf("%s", states[now.status & 3]);
    if (now.latest_ns != INT64_MAX)
        printf(" %" PRId64 " ± %" PRId64 " ns", now.fleet_ns, (now.latest_ns - now.earliest_ns) / 2);
    puts("");
    syn_clock_reader_close(&reader);
    return now.status == SYN_CLOCK_SYNCHRONIZED ? 0 : 1;
}
