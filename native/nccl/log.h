/* NCCL's log. A plug-in may define LOG_PREFIX and LOG_SUBSYSTEMS. */
#ifndef NCCL_LOG_H
#define NCCL_LOG_H

typedef void log_function(int level, unsigned long subsystems, const char *file, int line,
                          const char *format, ...);
extern log_function *nccl_log;

/* NCCL shows lines of INIT (0x1) unless set otherwise, those of NET (0x10) and PROFILE (0x4000)
 * only if asked for. */
enum { LOG_WARN = 2, LOG_INFO = 3 };

#ifndef LOG_PREFIX
#define LOG_PREFIX "NET/Syntony: "
#define LOG_SUBSYSTEMS 0x11
#endif

#define SAY(level, ...)                                                                    \
    (nccl_log ? nccl_log(level, LOG_SUBSYSTEMS, __func__, __LINE__, LOG_PREFIX __VA_ARGS__) \
              : (void)0)
#define WARN(...) SAY(LOG_WARN, __VA_ARGS__)
#define INFO(...) SAY(LOG_INFO, __VA_ARGS__)

#endif
