/* NCCL's log. */
#ifndef NET_LOG_H
#define NET_LOG_H

typedef void log_function(int level, unsigned long subsystems, const char *file, int line,
                          const char *format, ...);
extern log_function *nccl_log;

/* NCCL shows lines of INIT unless it is told otherwise, those of NET only if asked for. */
enum { LOG_WARN = 2, LOG_INFO = 3, LOG_INIT_NET = 0x11 };

#define SAY(level, ...)                                                                        \
    (nccl_log ? nccl_log(level, LOG_INIT_NET, __func__, __LINE__, "NET/Syntony: " __VA_ARGS__) \
              : (void)0)
#define WARN(...) SAY(LOG_WARN, __VA_ARGS__)
#define INFO(...) SAY(LOG_INFO, __VA_ARGS__)

#endif
