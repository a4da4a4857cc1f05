#include "envelope.h"

#include <math.h>
#include <string.h>

#define GOLDEN 0.6180339887498949

void fit_heights(const struct fit_cloud *cloud, double slope, double *heights)
{
    size_t i = 0;
    for (; i < cloud->forward; i++)
        heights[i] = cloud->y[i] - slope * cloud->t[i];
    for (; i < cloud->count; i++)
        heights[i] = slope * cloud->t[i] - cloud->y[i];
}

double fit_minimum(const double *values, size_t count)
{
    double least = values[0];
    for (size_t i = 1; i < count; i++)
        if (values[i] < least)
            least = values[i];
    return least;
}

/* Hoare's selection: afterwards values[0..place] are the lowest place + 1. */
void fit_select(double *values, size_t count, size_t place)
{
    size_t low = 0, high = count - 1;
    while (low < high) {
        double pivot = values[low + (high - low) / 2];
        size_t i = low, j = high;
        for (;;) {
            while (values[i] < pivot)
                i++;
            while (pivot < values[j])
                j--;
            if (i >= j)
                break;
            double swap = values[i];
            values[i++] = values[j];
            values[j--] = swap;
        }
        /* Everything up to j is at most the pivot, everything from j + 1 on at least. */
        if (place <= j)
            high = j;
        else
            low = j + 1;
    }
}

double fit_lowest(double *values, size_t count, size_t k)
{
    if (k <= 1)
        return fit_minimum(values, count);
    if (k > count)
        k = count;
    fit_select(values, count, k - 1);
    double sum = 0;
    for (size_t i = 0; i < k; i++)
        sum += values[i];
    return sum / (double)k;
}

struct fit_line fit_line_at(const struct fit_cloud *cloud, double slope, size_t k, double *heights)
{
    fit_heights(cloud, slope, heights);
    struct fit_line line = {slope, 0, 0};
    line.forward_ns = fit_lowest(heights, cloud->forward, k);
    line.reverse_ns = fit_lowest(heights + cloud->forward, cloud->count - cloud->forward, k);
    return line;
}

static double gap(const struct fit_cloud *cloud, double slope, size_t k, double *heights)
{
    struct fit_line line = fit_line_at(cloud, slope, k, heights);
    return line.forward_ns + line.reverse_ns;
}

struct fit_line fit_widest(const struct fit_cloud *cloud, size_t k, double low, double high,
                           int steps, double *heights)
{
    double left = high - GOLDEN * (high - low), right = low + GOLDEN * (high - low);
    double gap_left = gap(cloud, left, k, heights), gap_right = gap(cloud, right, k, heights);
    for (int step = 0; step < steps; step++) {
        if (gap_left > gap_right) {
            high = right, right = left, gap_right = gap_left;
            left = high - GOLDEN * (high - low);
            gap_left = gap(cloud, left, k, heights);
        } else {
            low = left, left = right, gap_left = gap_right;
            right = low + GOLDEN * (high - low);
            gap_right = gap(cloud, right, k, heights);
        }
    }
    return fit_line_at(cloud, (low + high) / 2, k, heights);
}

static size_t keep_low(const double *heights, size_t from, size_t to, double limit,
                       const struct fit_cloud *cloud, struct fit_room *room, size_t kept)
{
    for (size_t i = from; i < to; i++) {
        if (heights[i] > limit)
            continue;
        room->t[kept] = cloud->t[i];
        room->y[kept++] = cloud->y[i];
    }
    return kept;
}

struct fit_line fit_soft(const struct fit_cloud *cloud, size_t k, double near, double range,
                         int steps, struct fit_room *room)
{
    double reach = range * 1e9 / fmax(cloud->span_ns, 1e9);
    double slack = reach * cloud->span_ns;
    size_t ends[3] = {0, cloud->forward, cloud->count}, kept = 0, forward = 0;
    fit_heights(cloud, near, room->heights);
    for (int part = 0; part < 2; part++) {
        size_t from = ends[part], count = ends[part + 1] - from;
        size_t place = (k < count ? k : count) - 1;
        memcpy(room->scratch, room->heights + from, count * sizeof(double));
        fit_select(room->scratch, count, place);
        double limit = room->scratch[place] + slack;
        kept = keep_low(room->heights, from, ends[part + 1], limit, cloud, room, kept);
        if (part == 0)
            forward = kept;
    }
    struct fit_cloud low = {room->t, room->y, forward, kept, cloud->span_ns};
    return fit_widest(&low, k, near - reach, near + reach, steps, room->scratch);
}
