/* NVML for the card that is not there: what programs ask of it before they use CUDA. Built as a library of its own. */
#include "driver.h"

enum { NVML_SUCCESS, NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6, NVML_INSUFFICIENT_SIZE = 7 };

typedef struct handle *nvml_device; /* the device's number and one more */

static CUdevice number_of(nvml_device device) { return (CUdevice)((intptr_t)device - 1); }
NOTHING(nvmlInit) /* by which torch.cuda.device_count asks */
NOTHING(nvmlInit_v2) NOTHING(nvmlInitWithFlags) NOTHING(nvmlShutdown)
API const char *nvmlErrorString(int code) { return code == NVML_SUCCESS ? "Success" : "Not available on this card"; }
/* A text of a device or of all. */
#define TEXT(name, parameters, ...)        \
  API int name parameters {                \
    RETURN_IF(is_wrong(text), NVML_INVALID_ARGUMENT); \
    snprintf(text, length, __VA_ARGS__);   \
    return NVML_SUCCESS;                   \
  }
TEXT(nvmlSystemGetDriverVersion, (char *text, unsigned length), "580.00")
TEXT(nvmlSystemGetNVMLVersion, (char *text, unsigned length), "13.580.00")
TEXT(nvmlDeviceGetName, (nvml_device device UNUSED, char *text, unsigned length), "%s", the_card()->name)
/* The same bytes as cuDeviceGetUuid's. */
TEXT(nvmlDeviceGetUUID, (nvml_device device, char *text, unsigned length), "GPU-7672616d-7475-692d-6361-72642d0000%02x",
     (unsigned)number_of(device))
ANSWER(nvmlSystemGetCudaDriverVersion_v2, (int *version), version, 13000)
ALSO(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2)
ANSWER(nvmlDeviceGetCount_v2, (unsigned *count), count, (unsigned)the_card()->devices)
ANSWER_OF(index < (unsigned)the_card()->devices, NVML_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2,
          (unsigned index, nvml_device *device), device, (nvml_device)((intptr_t)index + 1))
ANSWER(nvmlDeviceGetIndex, (nvml_device device, unsigned *index), index, (unsigned)number_of(device))
API int nvmlDeviceGetHandleByUUID(const char *text, nvml_device *device) {
  for (int at = 0; at < the_card()->devices; at++) {
    char own[64];
    *device = (nvml_device)(intptr_t)(at + 1);
    nvmlDeviceGetUUID(*device, own, sizeof own);
    RETURN_IF(strcmp(own, text) == 0, NVML_SUCCESS);
  }
  return NVML_NOT_FOUND;
}
API int nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvml_device *device) {
  unsigned domain, bus;
  RETURN_IF(sscanf(text, "%x:%x", &domain, &bus) != 2 || bus < 1 || (int)bus > the_card()->devices, NVML_NOT_FOUND);
  *device = (nvml_device)(intptr_t)bus;
  return NVML_SUCCESS;
}
ANSWER_TWO(true, 0, nvmlDeviceGetCudaComputeCapability, (nvml_device device UNUSED, int *major, int *minor), major,
           the_card()->major, minor, the_card()->minor)

struct memory {
  unsigned long long total, unused, used;
};
struct memory_v2 {
  unsigned version;
  unsigned long long total, reserved, unused, used;
};

API int nvmlDeviceGetMemoryInfo(nvml_device device, struct memory *memory) {
  memory->total = the_card()->memory;
  memory->used = (unsigned long long)used_on(number_of(device), 0);
  memory->unused = memory->total > memory->used ? memory->total - memory->used : 0;
  return NVML_SUCCESS;
}
API int nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct memory_v2 *memory) {
  struct memory plain;
  nvmlDeviceGetMemoryInfo(device, &plain);
  *memory = (struct memory_v2){memory->version, plain.total, 0, plain.unused, plain.used};
  return NVML_SUCCESS;
}

#define MOST_USERS 65536u

struct process {
  unsigned pid;
  unsigned long long used;
  unsigned instance, compute_instance;
};

API int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count, struct process *processes) {
  unsigned room = *count < MOST_USERS ? *count : MOST_USERS;
  struct user *users = calloc(room + 1, sizeof *users);
  int64_t sum = 0;
  *count = users == NULL ? 0 : (unsigned)users_of(number_of(device), users, (int)room, 0, &sum);
  for (unsigned at = 0; at < *count && *count <= room; at++) {
    processes[at] = (struct process){(unsigned)users[at].pid, (unsigned long long)users[at].used, -1u, -1u};
  }
  free(users);
  return *count > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
ANSWER(nvmlDeviceGetGraphicsRunningProcesses_v3, (nvml_device device UNUSED, unsigned *count), count, 0)

struct process_v1 {
  unsigned pid;
  unsigned long long used;
};

API int nvmlDeviceGetComputeRunningProcesses(nvml_device device, unsigned *count, struct process_v1 *processes) {
  unsigned room = *count < MOST_USERS ? *count : MOST_USERS;
  struct process *found = calloc(room + 1, sizeof *found);
  int result = found == NULL ? NVML_INSUFFICIENT_SIZE : nvmlDeviceGetComputeRunningProcesses_v3(device, count, found);
  for (unsigned at = 0; result == NVML_SUCCESS && at < *count; at++) {
    processes[at] = (struct process_v1){.pid = found[at].pid, .used = found[at].used};
  }
  free(found);
  return result;
}

/* nvmlGpuFabricInfoV_t behind its version, up to its state, of which 0 is "not supported". */
API int nvmlDeviceGetGpuFabricInfoV(nvml_device device UNUSED, unsigned *fabric) {
  memset(fabric + 1, 0, 28);
  return NVML_SUCCESS;
}
ANSWER(nvmlDeviceGetP2PStatus, (nvml_device one UNUSED, nvml_device other UNUSED, int how, int *status), status,
       !has_peers() || (how == 2 && !has_links()) ? 5 : 0) /* 2 is over NVLink */
/* The sensors of a card that rests, whose figures programs log: two of 32 bits or one of 64, and one of 32. */
ANSWER(nvmlDeviceGetUtilizationRates, (nvml_device device UNUSED, uint64_t *figures), figures, 0)
ALSO(nvmlDeviceGetTotalEnergyConsumption, nvmlDeviceGetUtilizationRates)
ANSWER(nvmlDeviceGetPowerUsage, (nvml_device device UNUSED, unsigned *figure), figure, 0)
ANSWER(nvmlDeviceGetTemperature, (nvml_device device UNUSED, int which UNUSED, unsigned *figure), figure, 0)
ALSO(nvmlDeviceGetClockInfo, nvmlDeviceGetTemperature) ALSO(nvmlDeviceGetMinorNumber, nvmlDeviceGetIndex)
/* What this card has not: links to others, fabrics. PyTorch and NCCL look for the functions themselves. */
#define NOT_SUPPORTED(name) \
  API int name(void) { return NVML_NOT_SUPPORTED; }
NOT_SUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType) NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
NOT_SUPPORTED(nvmlDeviceGetNvLinkState) NOT_SUPPORTED(nvmlDeviceGetNvLinkCapability)
NOT_SUPPORTED(nvmlDeviceGetFieldValues) NOT_SUPPORTED(nvmlDeviceGetMigMode) NOT_SUPPORTED(nvmlDeviceGetPciInfo_v3)
NOT_SUPPORTED(nvmlSystemGetConfComputeState) NOT_SUPPORTED(nvmlSystemGetConfComputeSettings)
NOT_SUPPORTED(nvmlDeviceGetAttributes_v2) NOT_SUPPORTED(nvmlDeviceGetPlatformInfo)
