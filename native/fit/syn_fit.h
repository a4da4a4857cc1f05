/* The line between the two clouds of one window: what syntony/clock/fit.py does, where the agent
 * spends its time. Everything between the two markers is read by Python's cffi. */
#ifndef SYN_FIT_H
#define SYN_FIT_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* --- declarations --- */
/* The numbers that decide something have their home, with reasons, in syntony/clock/fit.py,
 * envelope.py and mixture.py; the names here are theirs. */
struct syn_fit_options {
    double max_drift;
    double soft_range;
    int32_t hard_steps;
    int32_t soft_steps;
    int32_t depths[3];
    int32_t floor_probes;
    int32_t depth_spread;
    double soft_sigmas;
    double pile_share;
    double same_start_ns;
    double min_pile;
    double sharp_pile;
    double sharp_contrast;
    double min_sigma_ns;
    double stamp_correlation;
    double thin_pile;
    double min_noise_ns;
    double max_noise_ns;
    double start_noise_ns;
    double early_ns;
    double early_share;
    double settled;
    double min_pure;
    double prior_pure;
    int32_t rounds;
    int32_t classes;
};

struct syn_fit_points {
    const double *t;       /* ns since the window's middle, forward points first */
    const double *y;       /* apparent offset, ns */
    const uint8_t *purity; /* class of each point, below options.classes */
    size_t forward;        /* of them, at least 1 */
    size_t count;          /* of both directions, more than forward */
    double span_ns;        /* positive */
};

struct syn_fit {
    double slope;
    double forward_ns;
    double reverse_ns;
    double theta_var;
    double slope_var; /* infinite where the slope is the prior's */
    double covariance;
    double noise_ns;
    double apart;
    int32_t piled;
    int32_t sharp;
};

/* Fits. prior_sigma is infinite where nothing is known of the slope. Returns 0, or ENOMEM, or
 * EINVAL for points or options out of range. Thread-safe. */
int syn_fit_window(const struct syn_fit_points *points, double prior_slope, double prior_sigma,
                   const struct syn_fit_options *options, struct syn_fit *found);
/* --- end of declarations --- */

#pragma GCC visibility pop

#endif
