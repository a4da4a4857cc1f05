/* NCCL's log. */
#ifndef NET_LOG_H
#define NET_LOG_H

typedef void log_function(int level, unsigned long subsystems, const char *file, int line,
                          const char *format, ...);
extern log_function *nccl_log;

enum { LOG_WARN = 2, LOG_INFO = 3, LOG_NET = 0x10 };

#define WARN(...)                                                                            \
    (nccl_log ? nccl_log(LOG_WARN, LOG_NET, __func__, __LINE__, "NET/Syntony: " __VA_ARGS__) \
              : (void)0)
#define INFO(...)                                                                            \
    (nccl_log ? nccl_log(LOG_INFO, LOG_NET, __func__, __LINE__, "NET/Syntony: " __VA_ARGS__) \
              : (void)0)

#endif
