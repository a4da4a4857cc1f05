/* Expectation-maximisation over pure, delayed and early probes; see syntony/clock/mixture.py. */
#ifndef SYN_CLOCK_MIXTURE_H
#define SYN_CLOCK_MIXTURE_H

#include "envelope.h"
#include "syn_fit.h"

#include <stdint.h>

enum { FIT_MAX_CLASSES = 32 };

struct fit_mixture {
    struct fit_line line;
    double noise_ns;
    double pure[2]; /* expected number of pure probes, forward and reverse */
    double contrast;
    double apart;
    double log_likelihood;
    double theta_var;
    double slope_var;
    double covariance;
};

/* From a starting line; 0 when there is no pile-up in one of the directions. */
int fit_mixture(const struct fit_cloud *cloud, const uint8_t *purity, struct fit_line start,
                double noise_ns, const struct syn_fit_options *options, struct fit_room *room,
                struct fit_mixture *found);

#endif
