/* Max-min fair rates by filling the tightest link first; see syntony/traffic/fair.py. */
#include "syn_place.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Relative difference below which two levels are equal, as TIE in fair.py. */
static const double TIE = 1e-9;

/* A link, or (from `links` on) the demand of a flow, with the level at which it binds. */
struct entry {
    double level;
    size_t what;
};

struct room {
    size_t *first;  /* of each link in `on`, links + 1 */
    size_t *on;     /* flows by link */
    double *left;   /* capacity of each link not yet given away */
    double *pull;   /* weight of the flows on each link that are not settled */
    struct entry *heap;
    size_t heaped;
    unsigned char *done; /* of each flow */
};

static void sink(struct entry *heap, size_t count, size_t at)
{
    struct entry moving = heap[at];
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && heap[child + 1].level < heap[child].level)
            child++;
        if (moving.level <= heap[child].level)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

static void drop_first(struct room *r)
{
    r->heap[0] = r->heap[--r->heaped];
    if (r->heaped)
        sink(r->heap, r->heaped, 0);
}

static int list_flows(const int32_t *links, size_t flows, size_t hops, size_t count,
                      const double *weight, struct room *r)
{
    for (size_t i = 0; i < flows * hops; i++) {
        if (links[i] < -1 || (links[i] >= 0 && (size_t)links[i] >= count))
            return EINVAL;
        if (links[i] >= 0) {
            r->first[links[i] + 1]++;
            r->pull[links[i]] += weight ? weight[i / hops] : 1;
        }
    }
    for (size_t link = 0; link < count; link++)
        r->first[link + 1] += r->first[link];
    size_t *at = malloc((count + 1) * sizeof *at);
    if (!at)
        return ENOMEM;
    for (size_t link = 0; link < count; link++)
        at[link] = r->first[link];
    for (size_t i = 0; i < flows * hops; i++)
        if (links[i] >= 0)
            r->on[at[links[i]]++] = i / hops;
    free(at);
    return 0;
}

static void heap_up(size_t flows, size_t count, const double *weight, const double *demand,
                    struct room *r)
{
    for (size_t link = 0; link < count; link++)
        if (r->pull[link] > 0)
            r->heap[r->heaped++] = (struct entry){r->left[link] / r->pull[link], link};
    for (size_t flow = 0; demand && flow < flows; flow++)
        if (demand[flow] < INFINITY)
            r->heap[r->heaped++] =
                (struct entry){demand[flow] / (weight ? weight[flow] : 1), count + flow};
    for (size_t at = r->heaped / 2; at-- > 0;)
        sink(r->heap, r->heaped, at);
}

static void settle(const int32_t *links, size_t hops, double weight, size_t flow, double got,
                   struct room *r)
{
    r->done[flow] = 1;
    for (size_t hop = 0; hop < hops; hop++) {
        int32_t link = links[flow * hops + hop];
        if (link < 0)
            continue;
        r->left[link] = fmax(r->left[link] - got, 0);
        r->pull[link] = fmax(r->pull[link] - weight, 0);
    }
}

static void fill(const int32_t *links, size_t hops, size_t count, const double *weight,
                 const double *demand, double *rate, struct room *r)
{
    while (r->heaped) {
        struct entry top = r->heap[0];
        if (top.what >= count) {
            size_t flow = top.what - count;
            if (!r->done[flow]) {
                rate[flow] = demand[flow];
                settle(links, hops, weight ? weight[flow] : 1, flow, rate[flow], r);
            }
            drop_first(r);
            continue;
        }
        size_t link = top.what;
        double pull = r->pull[link];
        double level = pull > 0 ? r->left[link] / pull : INFINITY;
        if (level > top.level * (1 + TIE)) {
            /* Others have been settled since: it binds later, or never. */
            r->heap[0].level = level;
            if (level < INFINITY)
                sink(r->heap, r->heaped, 0);
            else
                drop_first(r);
            continue;
        }
        for (size_t i = r->first[link]; i < r->first[link + 1]; i++) {
            size_t flow = r->on[i];
            if (r->done[flow])
                continue;
            double each = weight ? weight[flow] : 1;
            rate[flow] = level * each;
            settle(links, hops, each, flow, rate[flow], r);
        }
        drop_first(r);
    }
}

static void discard(struct room *r)
{
    free(r->first), free(r->on), free(r->left), free(r->pull), free(r->heap), free(r->done);
}

int syn_max_min(const int32_t *links, size_t flows, size_t hops, const double *capacity,
                size_t count, const double *weight, const double *demand, double *rate)
{
    struct room r = {
        .first = calloc(count + 2, sizeof(size_t)),
        .on = malloc((flows * hops + 1) * sizeof(size_t)),
        .left = malloc((count + 1) * sizeof(double)),
        .pull = calloc(count + 1, sizeof(double)),
        .heap = malloc((count + flows + 1) * sizeof(struct entry)),
        .done = calloc(flows + 1, 1),
    };
    int error = ENOMEM;
    if (r.first && r.on && r.left && r.pull && r.heap && r.done) {
        error = 0;
        for (size_t flow = 0; flow < flows; flow++) {
            rate[flow] = INFINITY;
            if (weight && !(weight[flow] > 0))
                error = EINVAL;
        }
        for (size_t link = 0; link < count; link++)
            r.left[link] = capacity[link];
        if (!error)
            error = list_flows(links, flows, hops, count, weight, &r);
        if (!error) {
            heap_up(flows, count, weight, demand, &r);
            fill(links, hops, count, weight, demand, rate, &r);
        }
    }
    discard(&r);
    return error;
}
