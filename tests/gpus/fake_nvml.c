/* A libnvidia-ml.so.1 that says what the file $FAKE_NVML says, in NVML's ABI (nvml.h of CUDA 12):
 * lines "KEY VALUE", read anew at each call. A key of a GPU begins with its index, "0.sm_clock".
 * What the file does not have is not supported. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, TIMEOUT = 10, NO_FUNCTION = 13, LOST = 15, TOO_SMALL = 7 };
enum { EVENT_XID = 0x8, GPUS = 16 };

typedef struct {
	int index;
} Device;

typedef struct {
	char bus_legacy[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
} PciInfo;

typedef struct {
	unsigned field, scope;
	long long timestamp, latency_us;
	unsigned type, status;
	union {
		double real;
		unsigned long long whole;
	} value;
} FieldValue;

typedef struct {
	unsigned pid;
	unsigned long long memory;
	unsigned gpu_instance, compute_instance;
} ProcessInfo;

typedef struct {
	Device *device;
	unsigned long long type, data;
	unsigned gpu_instance, compute_instance;
} EventData;

static Device devices[GPUS];
static unsigned long long events_told;

static bool lookup(const char *key, char *text, size_t size)
{
	const char *path = getenv("FAKE_NVML");
	FILE *file = path != NULL ? fopen(path, "r") : NULL;
	char line[256];
	bool found = false;

	if (file == NULL)
		return false;
	while (!found && fgets(line, sizeof line, file) != NULL) {
		char *value = strchr(line, ' ');

		line[strcspn(line, "\n")] = '\0';
		if (value == NULL)
			continue;
		*value++ = '\0';
		found = strcmp(line, key) == 0;
		if (found)
			snprintf(text, size, "%s", value);
	}
	fclose(file);
	return found;
}

static unsigned long long number(const char *key, unsigned long long otherwise)
{
	char text[64];

	return lookup(key, text, sizeof text) ? strtoull(text, NULL, 0) : otherwise;
}

static bool text_of(const Device *device, const char *key, char *text, size_t size)
{
	char full[64];

	snprintf(full, sizeof full, "%d.%s", device->index, key);
	return lookup(full, text, size);
}

static int whole(const Device *device, const char *key, unsigned long long *value)
{
	char text[64];

	if (text_of(device, "lost", text, sizeof text))
		return LOST;
	if (!text_of(device, key, text, sizeof text))
		return NOT_SUPPORTED;
	*value = strtoull(text, NULL, 0);
	return SUCCESS;
}

static int narrow(const Device *device, const char *key, unsigned *value)
{
	unsigned long long wide = 0;
	int status = whole(device, key, &wide);

	*value = (unsigned)wide;
	return status;
}

int nvmlInitWithFlags(unsigned flags)
{
	(void)flags;
	return (int)number("init", SUCCESS);
}

int nvmlShutdown(void)
{
	return SUCCESS;
}

const char *nvmlErrorString(int status)
{
	static char text[32];

	snprintf(text, sizeof text, "fake error %d", status);
	return text;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
	*count = (unsigned)number("count", 0);
	return (int)number("gone", SUCCESS);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device)
{
	char text[64];

	if (index >= GPUS)
		return 2;
	devices[index].index = (int)index;
	*device = &devices[index];
	return text_of(*device, "lost", text, sizeof text) ? LOST : SUCCESS;
}

int nvmlDeviceGetUUID(const Device *device, char *text, unsigned size)
{
	return text_of(device, "uuid", text, size) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetName(const Device *device, char *text, unsigned size)
{
	return text_of(device, "name", text, size) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetPciInfo_v3(const Device *device, PciInfo *info)
{
	memset(info, 0, sizeof *info);
	return text_of(device, "bus", info->bus_id, sizeof info->bus_id) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetClockInfo(const Device *device, unsigned kind, unsigned *mhz)
{
	if (number("hang", 0))
		for (;;)
			pause();
	if (number("crash", 0))
		raise(11);
	return narrow(device, kind == 1 ? "sm_clock" : kind == 2 ? "memory_clock" : "no_clock", mhz);
}

int nvmlDeviceGetCurrentClocksEventReasons(const Device *device, unsigned long long *reasons)
{
	return number("old", 0) ? NO_FUNCTION : whole(device, "reasons", reasons);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(const Device *device, unsigned long long *reasons)
{
	return whole(device, "reasons", reasons);
}

int nvmlDeviceGetTemperature(const Device *device, unsigned sensor, unsigned *celsius)
{
	return sensor == 0 ? narrow(device, "celsius", celsius) : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerUsage(const Device *device, unsigned *milliwatts)
{
	return narrow(device, "milliwatts", milliwatts);
}

int nvmlDeviceGetTotalEccErrors(const Device *device, unsigned kind, unsigned counter,
				unsigned long long *count)
{
	if (counter != 0)
		return NOT_SUPPORTED;
	return whole(device, kind == 0 ? "ecc_corrected" : "ecc_uncorrected", count);
}

int nvmlDeviceGetCurrPcieLinkGeneration(const Device *device, unsigned *generation)
{
	return narrow(device, "pcie_generation", generation);
}

int nvmlDeviceGetMaxPcieLinkGeneration(const Device *device, unsigned *generation)
{
	return narrow(device, "pcie_max_generation", generation);
}

int nvmlDeviceGetCurrPcieLinkWidth(const Device *device, unsigned *width)
{
	return narrow(device, "pcie_width", width);
}

int nvmlDeviceGetMaxPcieLinkWidth(const Device *device, unsigned *width)
{
	return narrow(device, "pcie_max_width", width);
}

int nvmlDeviceGetPcieThroughput(const Device *device, unsigned way, unsigned *kb_per_s)
{
	return narrow(device, way == 0 ? "pcie_tx" : "pcie_rx", kb_per_s);
}

int nvmlDeviceGetPcieReplayCounter(const Device *device, unsigned *count)
{
	return narrow(device, "pcie_replays", count);
}

int nvmlDeviceGetFieldValues(const Device *device, int count, FieldValue *values)
{
	for (int at = 0; at < count; at++) {
		FieldValue *value = &values[at];
		char key[32];

		snprintf(key, sizeof key, "field.%u", value->field);
		if ((value->field == 138 || value->field == 139) && value->scope != 0xFFFFFFFF)
			value->status = 2;
		else
			value->status = (unsigned)whole(device, key, &value->value.whole);
		if (value->status == LOST)
			return LOST;
	}
	return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const Device *device, unsigned *count,
					    ProcessInfo *found)
{
	char text[256] = "", *save = NULL;
	unsigned room = *count;

	*count = 0;
	if (!text_of(device, "pids", text, sizeof text))
		return NOT_SUPPORTED;
	for (char *word = strtok_r(text, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
		if (found != NULL && *count < room)
			found[*count] = (ProcessInfo){.pid = (unsigned)atoi(word), .memory = 1};
		++*count;
	}
	return *count > room ? TOO_SMALL : SUCCESS;
}

int nvmlEventSetCreate(void **set)
{
	*set = &events_told;
	return SUCCESS;
}

int nvmlDeviceRegisterEvents(const Device *device, unsigned long long kinds, void *set)
{
	(void)set;
	(void)device;
	return kinds == EVENT_XID ? SUCCESS : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(void *set, EventData *data, unsigned timeout_ms)
{
	(void)set;
	for (unsigned waited_ms = 0; waited_ms <= timeout_ms; waited_ms += 10) {
		unsigned long long events = number("events", 0);

		if (events > events_told) {
			events_told = events;
			*data = (EventData){.device = &devices[number("xid_gpu", 0)],
					    .type = EVENT_XID,
					    .data = number("xid", 0)};
			return SUCCESS;
		}
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return TIMEOUT;
}
