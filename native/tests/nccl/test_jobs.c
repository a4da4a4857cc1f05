/* Two jobs of a host, each a process of its own with its own connection to one agent: what happens to one is
 * nothing to the other. Each has the fake provider for itself, so NICs share nothing here.
 * test_jobs LIBRARY PROVIDER CASE */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edge.h"

enum { JOBS = 2, OTHER = 1, WORDS = sizeof from / sizeof(uint64_t), SOME = 100 };

static struct shared {
    atomic_bool ends;
    atomic_int messages[JOBS], left_by_notices[JOBS], left_otherwise[JOBS];
} *shared;
static pid_t processes[JOBS];

static uint64_t word(int job, int number, size_t i)
{
    return ((uint64_t)(job + 1) << 56 | (uint64_t)number << 16 | i) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Every word of it is this job's. `ahead` is the message's receive, and then the next one's. */
static void pass_message(int job, int number, void **ahead)
{
    int result = 0;
    void *request = *ahead;
    for (size_t i = 0; i < WORDS; i++)
        memcpy(from + i * sizeof(uint64_t), &(uint64_t){word(job, number, i)}, sizeof(uint64_t));
    *ahead = post_receive(sizeof to);
    void *sent = post_send(sizeof from, *ahead, &result);
    CHECK(sent != NULL);
    CHECK_EQUAL(results_of(request, sent, *ahead), 0);
    for (size_t i = 0; i < WORDS; i++) {
        uint64_t arrived;
        memcpy(&arrived, to + i * sizeof arrived, sizeof arrived);
        CHECK(arrived == word(job, number, i));
    }
}

static _Noreturn void run_job(int job)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    begin();
    connect_both();
    void *ahead = post_receive(sizeof to);
    for (int number = 0; !atomic_load(&shared->ends); number++) {
        pass_message(job, number, &ahead);
        atomic_fetch_add(&shared->messages[job], 1);
        int by_notices = drive_logged("is left: a notice");
        atomic_fetch_add(&shared->left_by_notices[job], by_notices);
        atomic_fetch_add(&shared->left_otherwise[job], drive_logged("is left: ") - by_notices -
                                                           drive_logged("is left: the peer left it"));
        drive_forget_log();
    }
    close_both();
    _exit(0);
}

static void begin_jobs(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 17 s: a busy machine is no failure of a rail */
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    faults_name_agent(JOBS);
    for (int job = 0; job < JOBS; job++) {
        processes[job] = fork();
        CHECK(processes[job] >= 0);
        if (processes[job] == 0)
            run_job(job);
    }
    faults_serve_agent();
}

static bool is_over(pid_t process)
{
    return waitpid(process, NULL, WNOHANG) != 0;
}

/* Notices come for either path in turn, to both jobs, until the job has passed so many messages more, and
 * for so long. */
static void notify_while_it_goes_on(int job, int messages, int64_t for_ms)
{
    int64_t begun = now_ms();
    int before = atomic_load(&shared->messages[job]);
    for (int rail = 0; now_ms() - begun < for_ms ||
                       atomic_load(&shared->messages[job]) - before < messages; rail = !rail) {
        CHECK(now_ms() - begun < HANG_MS);
        CHECK(!is_over(processes[job]));
        faults_notify(1, rail, rail + 2, 30000000);
        usleep(50000);
    }
}

static void until_both_obey(void)
{
    for (int job = 0; job < JOBS; job++)
        while (atomic_load(&shared->left_by_notices[job]) == 0)
            notify_while_it_goes_on(job, 1, 0);
}

static void end_job(int job)
{
    int status = -1;
    CHECK_EQUAL(waitpid(processes[job], &status, 0), processes[job]);
    CHECK_EQUAL(status, 0);
}

static void one_is_killed(void)
{
    begin_jobs();
    until_both_obey();
    int status = 0;
    CHECK_EQUAL(kill(processes[OTHER], SIGKILL), 0);
    CHECK_EQUAL(waitpid(processes[OTHER], &status, 0), processes[OTHER]);
    CHECK(WIFSIGNALED(status));
    int before = atomic_load(&shared->left_by_notices[0]);
    notify_while_it_goes_on(0, SOME, 500);
    CHECK(atomic_load(&shared->left_by_notices[0]) > before);
    atomic_store(&shared->ends, true);
    end_job(0);
    CHECK_EQUAL(atomic_load(&shared->left_otherwise[0]), 0);
}

static void one_is_paused(void)
{
    enum { PAUSE_MS = 3000 };
    begin_jobs();
    until_both_obey();
    CHECK_EQUAL(kill(processes[OTHER], SIGSTOP), 0);
    notify_while_it_goes_on(0, SOME, PAUSE_MS);
    CHECK_EQUAL(kill(processes[OTHER], SIGCONT), 0);
    notify_while_it_goes_on(OTHER, SOME, 500);
    notify_while_it_goes_on(0, SOME, 0);
    atomic_store(&shared->ends, true);
    for (int job = 0; job < JOBS; job++)
        end_job(job);
    CHECK_EQUAL(atomic_load(&shared->left_otherwise[0]), 0);
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {{"one_is_killed", one_is_killed},
                                             {"one_is_paused", one_is_paused}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
