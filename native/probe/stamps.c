#include "stamps.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/ethtool.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifndef IPV6_AUTOFLOWLABEL
#define IPV6_AUTOFLOWLABEL 70 /* linux/in6.h, which clashes with netinet/in.h */
#endif
#ifndef IPV6_FLOWINFO_SEND
#define IPV6_FLOWINFO_SEND 33
#endif

enum {
    /* Two thousand packets: what a full-rate mesh sends in the time of one scheduling hiccup. */
    RECEIVE_BYTES = 2 << 20,
};

socklen_t syn_sockaddr(struct sockaddr_storage *out, int family, const uint8_t address[16],
                       uint16_t port, unsigned ifindex)
{
    memset(out, 0, sizeof *out);
    if (family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)out;
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, address, 4);
        return sizeof *in;
    }
    if (family != 6)
        return 0;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    memcpy(&in6->sin6_addr, address, 16);
    if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
        in6->sin6_scope_id = ifindex;
    return sizeof *in6;
}

static struct ifreq request_for(const char *ifname, void *data)
{
    struct ifreq request;
    memset(&request, 0, sizeof request);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", ifname);
    request.ifr_data = data;
    return request;
}

/* PTP receive filters match UDP ports 319 and 320 only: probes need "all". */
static int hardware_can(int fd, const char *ifname, int32_t *phc_index)
{
    struct ethtool_ts_info info = {.cmd = ETHTOOL_GET_TS_INFO};
    struct ifreq request = request_for(ifname, &info);
    if (ioctl(fd, SIOCETHTOOL, &request) < 0)
        return 0;
    *phc_index = info.phc_index;
    uint32_t needed = SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_RX_HARDWARE |
                      SOF_TIMESTAMPING_RAW_HARDWARE;
    return (info.so_timestamping & needed) == needed && info.phc_index >= 0 &&
           info.tx_types & 1u << HWTSTAMP_TX_ON && info.rx_filters & 1u << HWTSTAMP_FILTER_ALL;
}

static int hardware_on(int fd, const char *ifname)
{
    struct hwtstamp_config config = {0};
    struct ifreq request = request_for(ifname, &config);
    if (ioctl(fd, SIOCGHWTSTAMP, &request) == 0 && config.tx_type == HWTSTAMP_TX_ON &&
        config.rx_filter == HWTSTAMP_FILTER_ALL)
        return 0;
    config = (struct hwtstamp_config){.tx_type = HWTSTAMP_TX_ON,
                                      .rx_filter = HWTSTAMP_FILTER_ALL};
    if (ioctl(fd, SIOCSHWTSTAMP, &request) < 0)
        return -errno;
    return config.rx_filter == HWTSTAMP_FILTER_ALL ? 0 : -EOPNOTSUPP;
}

static void say(struct syn_probe_nic_status *status, const char *reason)
{
    snprintf(status->reason, sizeof status->reason, "%s", reason);
}

void syn_stamps_prepare(const struct syn_probe_nic *nic, struct syn_probe_nic_status *status)
{
    *status = (struct syn_probe_nic_status){.nic_id = nic->nic_id, .phc_index = -1};
    if (nic->stamping == SYN_STAMP_KERNEL) {
        say(status, "kernel stamps, as configured");
        return;
    }
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || !hardware_can(fd, nic->ifname, &status->phc_index)) {
        say(status, "kernel stamps: the NIC cannot stamp every packet in hardware");
    } else {
        int failed = hardware_on(fd, nic->ifname);
        status->hardware = failed == 0;
        if (failed == 0)
            say(status, "hardware stamps");
        else
            snprintf(status->reason, sizeof status->reason,
                     "kernel stamps: hardware stamps refused (%s)", strerror(-failed));
    }
    if (fd >= 0)
        close(fd);
}

static int set_int(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value) < 0 ? -errno : 0;
}

int syn_stamps_arm(int fd, int hardware)
{
    int receive = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    int send = SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY;
    if (hardware) {
        receive |= SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE;
        send |= SOF_TIMESTAMPING_TX_HARDWARE;
    } else {
        send |= SOF_TIMESTAMPING_TX_SOFTWARE;
    }
    int failed = set_int(fd, SOL_SOCKET, SO_TIMESTAMPING, receive);
    return failed ? failed : set_int(fd, SOL_SOCKET, SO_TIMESTAMPING, receive | send);
}

static int take_labels(int fd, int family)
{
    if (family == 4)
        return 0;
    int failed = set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    failed = failed ? failed : set_int(fd, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0);
    return failed ? failed : set_int(fd, IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1);
}

static int configure(int fd, const struct syn_probe_nic *nic, int hardware)
{
    /* Bounded by net.core.rmem_max; a smaller buffer shows up as counted overflow. */
    (void)set_int(fd, SOL_SOCKET, SO_RCVBUF, RECEIVE_BYTES);
    int failed = set_int(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
    failed = failed ? failed : take_labels(fd, nic->family);
    if (!failed && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, nic->ifname,
                              (socklen_t)strnlen(nic->ifname, sizeof nic->ifname)) < 0)
        failed = -errno;
    return failed ? failed : syn_stamps_arm(fd, hardware);
}

static void explain(char *message, const struct syn_probe_nic *nic, uint16_t port, int failed)
{
    char address[INET6_ADDRSTRLEN] = "?";
    inet_ntop(nic->family == 4 ? AF_INET : AF_INET6, nic->address, address, sizeof address);
    if (failed == -EADDRINUSE)
        snprintf(message, SYN_MESSAGE_BYTES, "UDP port %u on %s is in use; stop its owner or choose "
                 "another port", port, address);
    else if (failed == -EADDRNOTAVAIL)
        snprintf(message, SYN_MESSAGE_BYTES, "%s is not an address of this host; give one of %s's",
                 address, nic->ifname);
    else
        snprintf(message, SYN_MESSAGE_BYTES, "no probe socket on %s (%s port %u): %s", nic->ifname,
                 address, port, strerror(-failed));
}

int syn_probe_socket(const struct syn_probe_nic *nic, uint16_t port, int hardware, char *message)
{
    unsigned ifindex = if_nametoindex(nic->ifname);
    if (ifindex == 0) {
        snprintf(message, SYN_MESSAGE_BYTES, "no network interface named %s; `ip link` lists them",
                 nic->ifname);
        return -ENODEV;
    }
    int domain = nic->family == 4 ? AF_INET : AF_INET6;
    int fd = socket(domain, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int failed = fd < 0 ? -errno : configure(fd, nic, hardware);
    struct sockaddr_storage address;
    socklen_t length = syn_sockaddr(&address, nic->family, nic->address, port, ifindex);
    if (!failed && bind(fd, (struct sockaddr *)&address, length) < 0)
        failed = -errno;
    if (!failed)
        return fd;
    if (fd >= 0)
        close(fd);
    explain(message, nic, port, failed);
    return failed;
}

static int64_t to_ns(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

static void read_extended_error(const struct cmsghdr *header, struct syn_stamps *out)
{
    struct sock_extended_err error;
    memcpy(&error, CMSG_DATA(header), sizeof error);
    if (error.ee_origin != SO_EE_ORIGIN_TIMESTAMPING || error.ee_info != SCM_TSTAMP_SND)
        return;
    out->id = error.ee_data;
    out->has_id = 1;
}

static void read_socket_level(const struct cmsghdr *header, struct syn_stamps *out)
{
    if (header->cmsg_type == SCM_TIMESTAMPING) {
        struct timespec times[3];
        memcpy(times, CMSG_DATA(header), sizeof times);
        out->software_ns = to_ns(&times[0]);
        out->hardware_ns = to_ns(&times[2]);
    } else if (header->cmsg_type == SO_RXQ_OVFL) {
        memcpy(&out->overflow, CMSG_DATA(header), sizeof out->overflow);
        out->has_overflow = 1;
    }
}

void syn_stamps_read(const struct msghdr *message, struct syn_stamps *out)
{
    *out = (struct syn_stamps){0};
    struct msghdr *walk = (struct msghdr *)message; /* CMSG_NXTHDR takes no const */
    for (struct cmsghdr *at = CMSG_FIRSTHDR(walk); at != NULL; at = CMSG_NXTHDR(walk, at)) {
        if (at->cmsg_level == SOL_SOCKET)
            read_socket_level(at, out);
        else if ((at->cmsg_level == SOL_IP && at->cmsg_type == IP_RECVERR) ||
                 (at->cmsg_level == SOL_IPV6 && at->cmsg_type == IPV6_RECVERR))
            read_extended_error(at, out);
    }
}
