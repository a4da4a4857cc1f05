/* Lines that keep the two clouds furthest apart; see syntony/clock/envelope.py. */
#ifndef SYN_CLOCK_ENVELOPE_H
#define SYN_CLOCK_ENVELOPE_H

#include <stddef.h>

struct fit_cloud {
    const double *t;
    const double *y;
    size_t forward;
    size_t count;
    double span_ns;
};

struct fit_line {
    double slope;
    double forward_ns;
    double reverse_ns;
};

/* Arrays of as many elements as there are points. */
struct fit_room {
    double *heights;
    double *scratch;
    double *t;
    double *y;
    double *pure;
    double *delayed;
};

/* Delays up to a constant per direction. */
void fit_heights(const struct fit_cloud *cloud, double slope, double *heights);
double fit_minimum(const double *values, size_t count);
/* Mean of the k lowest; reorders. */
double fit_lowest(double *values, size_t count, size_t k);
/* Reorders so that values[place] is the one that would be there if sorted. */
void fit_select(double *values, size_t count, size_t place);
struct fit_line fit_line_at(const struct fit_cloud *cloud, double slope, size_t k, double *heights);
struct fit_line fit_widest(const struct fit_cloud *cloud, size_t k, double low, double high,
                           int steps, double *heights);
struct fit_line fit_soft(const struct fit_cloud *cloud, size_t k, double near, double range,
                         int steps, struct fit_room *room);

#endif
