/* The pure parts: what the environment says, and a rate that flows keep together. */
#include "check.h"
#include "config.h"
#include "pacer.h"

#include <string.h>

static const char *const NAMES[] = {
    "SYNTONY_NCCL_QPS", "SYNTONY_NCCL_CHUNK", "SYNTONY_NCCL_TIMEOUT", "SYNTONY_NCCL_RETRIES",
    "SYNTONY_NCCL_TC", "NCCL_IB_TC", "SYNTONY_NCCL_SL", "NCCL_IB_SL", "SYNTONY_NCCL_GID_INDEX",
    "NCCL_IB_GID_INDEX", "SYNTONY_NCCL_SURVIVE_MS", "SYNTONY_NCCL_OBSERVE", "SYNTONY_NCCL_GPU_MEMORY",
    "SYNTONY_NCCL_HCA", "NCCL_IB_HCA", "SYNTONY_NCCL_RAILS", "SYNTONY_AGENT",
    "SYNTONY_NCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"};

static void forget(void)
{
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        unsetenv(NAMES[i]);
}

static void lists_are_nccls(void)
{
    static const struct { const char *list, *name; int number; bool listed; } CASES[] = {
        {"mlx5_0", "mlx5_0", 1, true}, {"mlx5", "mlx5_0", 1, true}, {"mlx5_0", "mlx5", 1, false},
        {"mlx5_1", "mlx5_10", 1, true}, {"=mlx5_1", "mlx5_10", 1, false},
        {"=mlx5_1,mlx5_10", "mlx5_10", 1, true}, {"mlx4,mlx5", "mlx5_0", 1, true},
        {"^mlx5", "mlx5_0", 1, false}, {"^mlx5", "rxe0", 1, true},
        {"^=mlx5_1", "mlx5_1", 1, false}, {"^=mlx5_1", "mlx5_10", 1, true},
        {"=^mlx5_1", "mlx5_1", 1, false}, /* that is a name */
        {"mlx5_0:2", "mlx5_0", 2, true}, {"mlx5_0:2", "mlx5_0", 1, false},
        {"mlx5_0:2", "mlx5_0", 0, true}, {"=mlx5_0:1,mlx5_1:2", "mlx5_1", 2, true},
        {"=mlx5_0:1,mlx5_1:2", "mlx5_1", 1, false}, {"^mlx5_0:1", "mlx5_0", 2, true},
        {"", "mlx5_0", 1, false}, {"^", "mlx5_0", 1, true}, {",,", "mlx5_0", 1, false},
        {",mlx5_0,", "mlx5_0", 1, true}, {":1", "mlx5_0", 1, false}, {"a,b:3", "a", 3, true}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        if (config_is_listed(CASES[i].list, CASES[i].name, CASES[i].number) == CASES[i].listed)
            continue;
        fprintf(stderr, "%s %s:%d\n", CASES[i].list, CASES[i].name, CASES[i].number);
        CHECK(!"is listed as it should be");
    }
}

static void numbers_have_bounds(void)
{
    static const struct { const char *name; long long low, high; } BOUNDS[] = {
        {"SYNTONY_NCCL_QPS", 1, 8}, {"SYNTONY_NCCL_CHUNK", 4096, 1 << 30},
        {"SYNTONY_NCCL_TIMEOUT", 1, 31}, {"SYNTONY_NCCL_RETRIES", 0, 7}, {"SYNTONY_NCCL_TC", 0, 255},
        {"NCCL_IB_TC", 0, 255}, {"SYNTONY_NCCL_SL", 0, 15}, {"NCCL_IB_SL", 0, 15},
        {"SYNTONY_NCCL_GID_INDEX", 0, 255}, {"NCCL_IB_GID_INDEX", 0, 255},
        {"SYNTONY_NCCL_SURVIVE_MS", 0, 86400000}, {"SYNTONY_NCCL_OBSERVE", 0, 1},
        {"SYNTONY_NCCL_GPU_MEMORY", 0, 1}};
    for (size_t i = 0; i < sizeof BOUNDS / sizeof *BOUNDS; i++)
        for (long long value = BOUNDS[i].low - 2; value <= BOUNDS[i].high + 2; value++) {
            char text[32];
            bool is_good = value >= BOUNDS[i].low && value <= BOUNDS[i].high;
            is_good |= value == -1 && strncmp(BOUNDS[i].name, "NCCL", 4) == 0; /* not set */
            snprintf(text, sizeof text, "%lld", value);
            forget();
            setenv(BOUNDS[i].name, text, 1);
            const char *problem = config_read();
            CHECK_EQUAL(problem == NULL, is_good);
            CHECK(is_good || (strstr(problem, BOUNDS[i].name) && strstr(problem, text)));
            if (value == BOUNDS[i].low)
                value = BOUNDS[i].high - 1;
        }
    static const char *const WRONG[] = {"x", "1x", "1 ", "99999999999999999999"};
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        forget();
        setenv("SYNTONY_NCCL_SURVIVE_MS", WRONG[i], 1);
        CHECK(config_read() != NULL);
    }
}

static void what_is_not_set_has_a_default(void)
{
    forget();
    setenv("SYNTONY_NCCL_QPS", "", 1); /* as if it were not set */
    setenv("SYNTONY_NCCL_HCA", "", 1);
    CHECK(config_read() == NULL);
    CHECK(config.qps == 2 && config.timeout == 14 && config.retries == 3);
    CHECK(config.least_chunk == 1 << 18 && config.most_chunk == 1 << 20);
    CHECK(config.traffic_class == 0 && config.service_level == 0 && config.gid_index == -1);
    CHECK(config.survive_ns == INT64_C(60000000000) && !config.observe && config.gpu_memory == -1);
    CHECK(!config.devices && !config.rails && !config.agent && !config.interface);
}

static void ours_take_precedence(void)
{
    forget();
    setenv("NCCL_IB_TC", "104", 1);
    setenv("NCCL_IB_SL", "3", 1);
    setenv("NCCL_IB_HCA", "mlx5", 1);
    setenv("NCCL_SOCKET_IFNAME", "eth0", 1);
    setenv("NCCL_IB_GID_INDEX", "5", 1);
    CHECK(config_read() == NULL);
    CHECK(config.traffic_class == 104 && config.service_level == 3 && config.gid_index == 5);
    CHECK(strcmp(config.devices, "mlx5") == 0 && strcmp(config.interface, "eth0") == 0);
    setenv("SYNTONY_NCCL_TC", "8", 1);
    setenv("SYNTONY_NCCL_HCA", "rxe", 1);
    setenv("SYNTONY_NCCL_SOCKET_IFNAME", "eth1", 1);
    setenv("SYNTONY_NCCL_GID_INDEX", "0", 1);
    setenv("SYNTONY_NCCL_CHUNK", "8192", 1);
    setenv("SYNTONY_NCCL_OBSERVE", "1", 1);
    CHECK(config_read() == NULL);
    CHECK(config.traffic_class == 8 && config.service_level == 3 && config.gid_index == 0);
    CHECK(strcmp(config.devices, "rxe") == 0 && strcmp(config.interface, "eth1") == 0);
    CHECK(config.least_chunk == 8192 && config.most_chunk == 8192 && config.observe);
}

static const uint64_t BYTE_A_NS = UINT64_C(8000000000);
enum { NOW_NS = 1000000000, BURST = 200000 /* ns, and at that rate bytes */ };

static void a_rate_is_kept(void)
{
    struct pacer pacer = {0};
    pacer_sent(&pacer, 1 << 30, NOW_NS); /* without a rate nothing counts */
    CHECK(pacer_allows(&pacer, NOW_NS));
    pacer_set(&pacer, BYTE_A_NS, 0, NOW_NS);
    CHECK(pacer_allows(&pacer, NOW_NS));
    pacer_sent(&pacer, BURST, NOW_NS); /* what could have been sent just before */
    CHECK(pacer_allows(&pacer, NOW_NS));
    pacer_sent(&pacer, 1000, NOW_NS);
    CHECK(!pacer_allows(&pacer, NOW_NS + 999));
    CHECK(pacer_allows(&pacer, NOW_NS + 1000));
    pacer_sent(&pacer, 500, NOW_NS + 1000);
    CHECK(!pacer_allows(&pacer, NOW_NS + 1499));
    CHECK(pacer_allows(&pacer, NOW_NS + 1500));
    pacer_set(&pacer, BYTE_A_NS / 2, 0, NOW_NS + 1500);
    pacer_sent(&pacer, BURST / 2 + 100, NOW_NS + 1500);
    CHECK(!pacer_allows(&pacer, NOW_NS + 1699));
    CHECK(pacer_allows(&pacer, NOW_NS + 1700));
}

static void a_rate_ends_and_is_renewed(void)
{
    struct pacer pacer = {0};
    pacer_set(&pacer, 1, NOW_NS + 100, NOW_NS);
    pacer_sent(&pacer, UINT64_C(1) << 40, NOW_NS);
    pacer_set(&pacer, 1, NOW_NS + 200, NOW_NS + 99); /* renewed: what was sent still counts */
    CHECK(!pacer_allows(&pacer, NOW_NS + 199));
    CHECK(pacer_allows(&pacer, NOW_NS + 200));
    pacer_set(&pacer, 1, 0, NOW_NS + 200); /* another one, after it */
    CHECK(pacer_allows(&pacer, NOW_NS + 201));
    pacer_sent(&pacer, UINT64_C(1) << 40, NOW_NS);
    const int64_t longest_ns = INT64_C(1000000000000); /* however much, however slow */
    CHECK(!pacer_allows(&pacer, NOW_NS + longest_ns - BURST - 1));
    CHECK(pacer_allows(&pacer, NOW_NS + longest_ns - BURST));
    pacer_set(&pacer, 2, 0, NOW_NS + 300); /* another rate begins anew */
    CHECK(pacer_allows(&pacer, NOW_NS + 300));
    pacer_sent(&pacer, 1 << 20, NOW_NS + 300);
    CHECK(!pacer_allows(&pacer, NOW_NS + 300));
    pacer_set(&pacer, 0, 0, NOW_NS + 300); /* none */
    CHECK(pacer_allows(&pacer, NOW_NS + 300));
}

int main(void)
{
    lists_are_nccls();
    numbers_have_bounds();
    what_is_not_set_has_a_default();
    ours_take_precedence();
    a_rate_is_kept();
    a_rate_ends_and_is_renewed();
    return 0;
}
