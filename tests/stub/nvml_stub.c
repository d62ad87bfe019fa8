/* A stand-in for NVIDIA's management library: answers the calls vramtui makes from a small text file.
 *
 * The file is named by VRAMTUI_STUB_STATE and is read again whenever it is replaced, so a test can change the world
 * while a program looks at it. world.py writes it; one line is one fact, the first word says which:
 *
 *   driver 580.95.05      cuda 13000      init 0          (the code that nvmlInit answers)
 *   gpu NVIDIA H200                                       (the lines below, up to the next gpu, are about it)
 *     uuid U  memory TOTAL USED RESERVED FREE  and so on: see `words` in read_line()
 *     records STRIDE                                      (bytes per process record; 0 scrambles them)
 *     process PID BYTES C|G GPU_INSTANCE COMPUTE_INSTANCE [SM]
 *     accounted PID PEAK                                  (with `accounting 1`: the most the process ever held)
 *     xid CODE                                            (an error, for those who registered before it stood here)
 *     mig PROFILE UUID GPU_INSTANCE COMPUTE_INSTANCE TOTAL USED RESERVED FREE GPU_SLICES COMPUTE_SLICES
 *   fault FUNCTION CODE   hang FUNCTION SECONDS           (of that gpu, or of every one when before the first;
 *                                                          FUNCTION * is every call, SECONDS -1 is for ever)
 *   spoil FUNCTION HOW                                    (it succeeds, and what it writes is wrong: see spoil())
 * A number of -1 is NVML's "not available".
 *
 * Built with -DWITHOUT_V2, the calls that came with drivers 510 and later do not exist.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef unsigned long long u64;
typedef unsigned int u32;

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, NOT_LOADED = 9 };
enum { GPUS = 64, MIGS = 8, FAULTS = 1024, ACCOUNTS = 128, TEXT = 96, NONE = 0xFFFFFFFFu };

typedef struct { u64 total, used, reserved, free; } Memory;
typedef struct { u32 pid; u64 used; char type; u32 instance, compute; int sm; } Row;
typedef struct { char function[64], how[16]; int gpu, code; double seconds; } Fault;

typedef struct Device {
    int gpu, is_mig;
    char name[TEXT], uuid[TEXT], bus[32], profile[32];
    Memory memory;
    u32 instance, compute, gpu_slices, compute_slices;
    int records, major, minor, mig_mode, accounted;
    struct { u32 pid; u64 peak; } account[ACCOUNTS];
    u64 power, power_limit, temperature, utilization, memory_utilization, sm_clock, memory_clock, fan;
    u64 pcie_generation, pcie_width, ecc, throttle, accounting;
    u64 encoder, decoder, nvlink_sent, nvlink_received, pcie_sent, pcie_received, remapped, remap_pending, retired;
    u64 pcie_narrow, pcie_throughput;
    int xids;
    u32 xid[MIGS];
    int first_row, rows, migs;
    struct Device *mig[MIGS];
} Device;

static struct {
    char driver[TEXT];
    int cuda, init, gpus, faults, rows, capacity;
    Fault fault[FAULTS];
    Row *row;
} world;
static Device devices[GPUS], instances[GPUS][MIGS];
static int initialized;
static struct stat seen;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { const char *function; long count; } calls[128];

/* ---- reading the world ---- */

static u64 number(char **cursor) { return strtoull(*cursor, cursor, 10); }

static void word(char **cursor, char *out, size_t size) {
    while (**cursor == ' ') ++*cursor;
    size_t length = strcspn(*cursor, " ");
    snprintf(out, size, "%.*s", (int)length, *cursor);
    *cursor += length;
}

static Memory read_memory(char **cursor) {
    Memory memory;
    memory.total = number(cursor);
    memory.used = number(cursor);
    memory.reserved = number(cursor);
    memory.free = number(cursor);
    return memory;
}

static void read_row(char *rest, Device *device) {
    if (world.rows == world.capacity) {
        world.capacity = world.capacity ? 2 * world.capacity : 1024;
        world.row = realloc(world.row, (size_t)world.capacity * sizeof(Row));
    }
    Row *row = &world.row[world.rows++];
    char type[4];
    row->pid = (u32)number(&rest);
    row->used = number(&rest);
    word(&rest, type, sizeof type);
    row->type = type[0];
    row->instance = (u32)number(&rest);
    row->compute = (u32)number(&rest);
    row->sm = *rest ? atoi(rest) : -1;
    device->rows++;
}

static void read_mig(char *rest, Device *parent) {
    if (parent->migs == MIGS) return;
    Device *device = &instances[parent->gpu][parent->migs];
    memset(device, 0, sizeof *device);
    device->gpu = parent->gpu;
    device->is_mig = 1;
    device->records = parent->records;
    word(&rest, device->profile, sizeof device->profile);
    word(&rest, device->uuid, sizeof device->uuid);
    device->instance = (u32)number(&rest);
    device->compute = (u32)number(&rest);
    device->memory = read_memory(&rest);
    device->gpu_slices = (u32)number(&rest);
    device->compute_slices = (u32)number(&rest);
    snprintf(device->name, sizeof device->name, "%.50s MIG %.30s", parent->name, device->profile);
    parent->mig[parent->migs++] = device;
}

static void read_fault(char *rest, int gpu, char kind) {
    if (world.faults == FAULTS) return;
    Fault *fault = &world.fault[world.faults++];
    memset(fault, 0, sizeof *fault);
    fault->gpu = gpu;
    word(&rest, fault->function, sizeof fault->function);
    if (kind == 'h') fault->seconds = strtod(rest, NULL);
    else if (kind == 's') word(&rest, fault->how, sizeof fault->how);
    else fault->code = atoi(rest);
}

static Device *new_gpu(const char *name) {
    if (world.gpus == GPUS) return &devices[GPUS - 1];
    Device *device = &devices[world.gpus];
    memset(device, 0, sizeof *device);
    device->gpu = world.gpus++;
    device->first_row = world.rows;
    device->records = 24;
    snprintf(device->name, sizeof device->name, "%s", name);
    return device;
}

static Device *read_line(char *line, Device *device) {
    char key[32];
    char *rest = line;
    word(&rest, key, sizeof key);
    while (*rest == ' ') ++rest;
    int gpu = device ? device->gpu : -1;
    if (!strcmp(key, "gpu")) return new_gpu(rest);
    if (!strcmp(key, "fault") || !strcmp(key, "hang") || !strcmp(key, "spoil")) read_fault(rest, gpu, key[0]);
    else if (!strcmp(key, "driver")) snprintf(world.driver, sizeof world.driver, "%s", rest);
    else if (!strcmp(key, "cuda")) world.cuda = atoi(rest);
    else if (!strcmp(key, "init")) world.init = atoi(rest);
    if (!device) return NULL;
    struct { const char *key; u64 *value; } words[] = {
        {"power", &device->power}, {"power_limit", &device->power_limit}, {"temperature", &device->temperature},
        {"utilization", &device->utilization}, {"memory_utilization", &device->memory_utilization},
        {"sm_clock", &device->sm_clock}, {"memory_clock", &device->memory_clock}, {"fan", &device->fan},
        {"pcie_generation", &device->pcie_generation}, {"pcie_width", &device->pcie_width}, {"ecc", &device->ecc},
        {"throttle", &device->throttle}, {"accounting", &device->accounting}, {"encoder", &device->encoder},
        {"decoder", &device->decoder}, {"nvlink_sent", &device->nvlink_sent}, {"pcie_sent", &device->pcie_sent},
        {"nvlink_received", &device->nvlink_received}, {"pcie_received", &device->pcie_received},
        {"remapped", &device->remapped}, {"remap_pending", &device->remap_pending}, {"retired", &device->retired},
        {"pcie_narrow", &device->pcie_narrow}, {"pcie_throughput", &device->pcie_throughput},
    };
    if (!strcmp(key, "process")) read_row(rest, device);
    else if (!strcmp(key, "mig")) read_mig(rest, device);
    else if (!strcmp(key, "accounted") && device->accounted < ACCOUNTS) {
        device->account[device->accounted].pid = (u32)number(&rest);
        device->account[device->accounted++].peak = number(&rest);
    }
    else if (!strcmp(key, "xid") && device->xids < MIGS) device->xid[device->xids++] = (u32)number(&rest);
    else if (!strcmp(key, "uuid")) word(&rest, device->uuid, sizeof device->uuid);
    else if (!strcmp(key, "bus")) word(&rest, device->bus, sizeof device->bus);
    else if (!strcmp(key, "memory")) device->memory = read_memory(&rest);
    else if (!strcmp(key, "records")) device->records = atoi(rest);
    else if (!strcmp(key, "mig_mode")) device->mig_mode = atoi(rest);
    else if (!strcmp(key, "capability")) { device->major = (int)number(&rest); device->minor = (int)number(&rest); }
    for (size_t i = 0; i < sizeof words / sizeof *words; ++i)
        if (!strcmp(key, words[i].key)) *words[i].value = number(&rest);
    return device;
}

static void look(void) {
    const char *path = getenv("VRAMTUI_STUB_STATE");
    struct stat now;
    if (!path || stat(path, &now)) { world.init = NOT_LOADED; return; }
    if (now.st_ino == seen.st_ino && now.st_size == seen.st_size && now.st_dev == seen.st_dev
        && now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    seen = now;
    world.gpus = world.faults = world.rows = world.init = world.cuda = 0;
    Device *device = NULL;
    char line[512];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        device = read_line(line, device);
    }
    fclose(file);
}

/* ---- entering a call: count it, hang in it, fail it ---- */

static const Fault *find(const char *function, int gpu, char kind) {
    for (int i = 0; i < world.faults; ++i) {
        const Fault *fault = &world.fault[i];
        if (fault->gpu != -1 && fault->gpu != gpu) continue;
        if ((fault->how[0] ? 's' : fault->seconds != 0 ? 'h' : 'f') != kind) continue;
        if (!strcmp(fault->function, function) || (!strcmp(fault->function, "*") && gpu != -1)) return fault;
    }
    return NULL;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void count(const char *function) {
    size_t i = 0;
    while (i < 127 && calls[i].function && strcmp(calls[i].function, function)) ++i;
    calls[i].function = function;
    calls[i].count++;
}

/* How often a function was called since the library was loaded. For tests. */
long stub_calls(const char *function) {
    long found = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < 128 && calls[i].function; ++i)
        if (!strcmp(calls[i].function, function)) found = calls[i].count;
    pthread_mutex_unlock(&lock);
    return found;
}

static int enter(const char *function, int gpu) {
    double begin = seconds();
    pthread_mutex_lock(&lock);
    count(function);
    for (;;) {
        look();
        const Fault *hang = find(function, gpu, 'h');
        if (!hang || (hang->seconds > 0 && seconds() - begin >= hang->seconds)) break;
        pthread_mutex_unlock(&lock);
        nanosleep(&(struct timespec){0, 10000000}, NULL);
        pthread_mutex_lock(&lock);
    }
    if (!initialized && strncmp(function, "nvmlInit", 8)) return UNINITIALIZED;
    const Fault *fault = find(function, gpu, 'f');
    return fault ? fault->code : OK;
}

/* What the call under way writes, and how that is spoilt when it is over; the lock is held from here to there. */
static struct { const char *how; unsigned char *out; size_t size; unsigned char before[8192]; } spoilt;

static void gives(const char *function, int gpu, void *out, size_t size) {
    const Fault *fault = find(function, gpu, 's');
    spoilt.how = fault ? fault->how : "";
    spoilt.out = out;
    spoilt.size = size > sizeof spoilt.before ? sizeof spoilt.before : size;
    if (fault && out) memcpy(spoilt.before, out, spoilt.size);
}

/* absurd: all bits are set; zero: none is; short: the second half is left as it was; garbage: bytes that are no
 * number, no text and a terminal's command; many: a process list of more records than there can be. */
static void spoil(void) {
    static const unsigned char bytes[] = "\x1b[2J\xff\x9b\r\n\xe2\x80\xae\x7f";
    size_t size = spoilt.size, half = size / 2;
    if (!spoilt.out) return;
    if (!strcmp(spoilt.how, "absurd")) memset(spoilt.out, 0xFF, size);
    if (!strcmp(spoilt.how, "zero")) memset(spoilt.out, 0, size);
    if (!strcmp(spoilt.how, "short")) memcpy(spoilt.out + half, spoilt.before + half, size - half);
    if (!strcmp(spoilt.how, "garbage"))
        for (size_t i = 0; i < size; ++i) spoilt.out[i] = bytes[i % (sizeof bytes - 1)];
}

static void leave(int *unused) {
    (void)unused;
    spoil();
    spoilt.out = NULL;
    pthread_mutex_unlock(&lock);
}

#define BEGIN(gpu)                                                             \
    __attribute__((cleanup(leave))) int code = enter(__func__, gpu);           \
    if (code != OK) return code
#define BEGIN_DEVICE                                                           \
    if (!device) return INVALID;                                               \
    BEGIN(device->gpu)
#define GIVES(pointer, bytes) gives(__func__, -1, pointer, bytes)
#define GIVES_OF_DEVICE(pointer, bytes) gives(__func__, device->gpu, pointer, bytes)
#define NUMBER(function, field)                                                \
    int function(Device *device, u32 *out) {                                   \
        BEGIN_DEVICE;                                                          \
        if (device->is_mig) return UNSUPPORTED;                                \
        GIVES_OF_DEVICE(out, sizeof *out);                                     \
        *out = (u32)device->field;                                             \
        return OK;                                                             \
    }

static int give(const char *text, char *out, u32 size) {
    if (strlen(text) + 1 > size) return SMALL;
    strcpy(out, text);
    return OK;
}

/* ---- the library ---- */

static int initialize(void) {
    if (world.init != OK) return world.init;
    initialized++;
    return OK;
}
int nvmlInitWithFlags(u32 flags) { (void)flags; BEGIN(-1); return initialize(); }
int nvmlInit_v2(void) { BEGIN(-1); return initialize(); }
int nvmlShutdown(void) { BEGIN(-1); initialized--; return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stub"; }
int nvmlSystemGetDriverVersion(char *out, u32 size) { BEGIN(-1); GIVES(out, size); return give(world.driver, out, size); }
int nvmlSystemGetNVMLVersion(char *out, u32 size) { BEGIN(-1); GIVES(out, size); return give(world.driver, out, size); }
int nvmlSystemGetCudaDriverVersion(int *out) { BEGIN(-1); GIVES(out, sizeof *out); *out = world.cuda; return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { BEGIN(-1); GIVES(out, sizeof *out); *out = world.cuda; return OK; }
int nvmlDeviceGetCount_v2(u32 *out) { BEGIN(-1); GIVES(out, sizeof *out); *out = (u32)world.gpus; return OK; }

int nvmlDeviceGetHandleByIndex_v2(u32 index, Device **out) {
    BEGIN((int)index);
    if (index >= (u32)world.gpus) return INVALID;
    *out = &devices[index];
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **out) {
    BEGIN(-1);
    for (int i = 0; i < world.gpus; i++) {
        Device *card = &devices[i];
        *out = card;
        if (!strcmp(card->uuid, uuid)) return OK;
        for (int j = 0; j < card->migs; j++) {
            *out = card->mig[j];
            if (!strcmp(card->mig[j]->uuid, uuid)) return OK;
        }
    }
    *out = NULL;
    return NOT_FOUND;
}

/* ---- what does not change ---- */

int nvmlDeviceGetName(Device *device, char *out, u32 size) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, size);
    return give(device->name, out, size);
}
int nvmlDeviceGetUUID(Device *device, char *out, u32 size) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, size);
    return give(device->uuid, out, size);
}
int nvmlDeviceGetIndex(Device *device, u32 *out) { BEGIN_DEVICE; *out = (u32)device->gpu; return OK; }

typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char busId[32]; } PciInfo;
int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    memset(out, 0, sizeof *out);
    return give(device->bus, out->busId, sizeof out->busId);
}
int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(major, sizeof *major);
    *major = device->major;
    *minor = device->minor;
    return OK;
}

/* ---- memory ---- */

int nvmlDeviceGetMemoryInfo(Device *device, u64 *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, 3 * sizeof *out);
    Memory *memory = &device->memory;
    out[0] = memory->total;
    out[1] = memory->free;
    out[2] = memory->total - memory->free;
    return OK;
}
#ifndef WITHOUT_V2
typedef struct { u32 version; u64 total, reserved, free, used; } MemoryV2;
int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    if (out->version != (sizeof(MemoryV2) | 2u << 24)) return 25; /* ARGUMENT_VERSION_MISMATCH */
    out->total = device->memory.total;
    out->reserved = device->memory.reserved;
    out->free = device->memory.free;
    out->used = device->memory.used;
    return OK;
}
#endif

/* ---- what changes ---- */

NUMBER(nvmlDeviceGetPowerUsage, power)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, power_limit)
NUMBER(nvmlDeviceGetPowerManagementLimit, power_limit)
NUMBER(nvmlDeviceGetFanSpeed, fan)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
/* nvtop ends without these two and the two that end in Threshold and MaxClockInfo. */
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, pcie_generation)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, pcie_width)

int nvmlDeviceGetUtilizationRates(Device *device, u32 *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, 2 * sizeof *out);
    if (device->is_mig || device->mig_mode) return UNSUPPORTED;
    out[0] = (u32)device->utilization;
    out[1] = (u32)device->memory_utilization;
    return OK;
}
int nvmlDeviceGetTemperature(Device *device, u32 sensor, u32 *out) {
    (void)sensor;
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    if (device->is_mig) return UNSUPPORTED;
    *out = (u32)device->temperature;
    return OK;
}
int nvmlDeviceGetClockInfo(Device *device, u32 which, u32 *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    if (device->is_mig) return UNSUPPORTED;
    *out = (u32)(which == 2 ? device->memory_clock : device->sm_clock);
    return OK;
}
int nvmlDeviceGetMaxClockInfo(Device *device, u32 which, u32 *out) { return nvmlDeviceGetClockInfo(device, which, out); }
int nvmlDeviceGetTemperatureThreshold(Device *device, u32 which, u32 *out) { /* 0: it shuts down, 1: it slows down */
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    if (device->is_mig) return UNSUPPORTED;
    *out = which ? 87 : 92;
    return OK;
}
int nvmlDeviceGetPcieThroughput(Device *device, u32 counter, u32 *out) { /* 0: sent, 1: received */
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    if (device->is_mig || device->pcie_throughput == (u64)-1) return UNSUPPORTED;
    *out = (u32)(device->pcie_throughput * (counter + 1));
    return OK;
}
int nvmlDeviceGetTotalEccErrors(Device *device, u32 error, u32 counter, u64 *out) {
    (void)counter;
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    if (device->is_mig) return UNSUPPORTED;
    *out = error == 1 ? device->ecc : 0;
    return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, u64 *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    if (device->is_mig) return UNSUPPORTED;
    *out = device->throttle;
    return OK;
}
#ifndef WITHOUT_V2
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, u64 *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    if (device->is_mig) return UNSUPPORTED;
    *out = device->throttle;
    return OK;
}
#endif

static int engine(const Device *device, u64 percent, u32 *out, u32 *period) {
    if (device->is_mig) return UNSUPPORTED;
    *out = (u32)percent;
    *period = 1000000;
    return OK;
}
int nvmlDeviceGetEncoderUtilization(Device *device, u32 *out, u32 *period) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    return engine(device, device->encoder, out, period);
}
int nvmlDeviceGetDecoderUtilization(Device *device, u32 *out, u32 *period) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    return engine(device, device->decoder, out, period);
}

typedef struct { u32 field, scope; long long timestamp, latency; int kind, code; u64 value; } FieldValue;
int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, (size_t)count * sizeof *out);
    if (device->is_mig) return UNSUPPORTED;
    struct { u32 field; const u64 *value; int kind; } known[] = {
        {138, &device->nvlink_sent, 3}, {139, &device->nvlink_received, 3}, {197, &device->pcie_sent, device->pcie_narrow ? 1 : 3},
        {198, &device->pcie_received, device->pcie_narrow ? 1 : 3}, {142, &device->remapped, 1}, {144, &device->remap_pending, 1},
        {29, &device->retired, 3},
    };
    for (int i = 0; i < count; ++i) {
        out[i].code = UNSUPPORTED;
        for (size_t j = 0; j < sizeof known / sizeof *known; ++j)
            if (known[j].field == out[i].field && *known[j].value != (u64)-1) {
                out[i].code = OK;
                out[i].kind = known[j].kind;
                out[i].value = *known[j].value;
            }
    }
    return OK;
}

/* ---- events: those of a device's line `xid`, each once for each set ---- */

typedef struct { Device *device; int told; } Events;
typedef struct { Device *device; u64 type, data; u32 instance, compute; } EventData;
int nvmlEventSetCreate(Events **out) { BEGIN(-1); *out = calloc(1, sizeof **out); return OK; }
int nvmlEventSetFree(Events *events) { BEGIN(-1); free(events); return OK; }
int nvmlDeviceRegisterEvents(Device *device, u64 types, Events *events) {
    BEGIN_DEVICE;
    if (device->is_mig || types != 8) return UNSUPPORTED;
    events->device = device;
    events->told = device->xids;
    return OK;
}
int nvmlEventSetWait_v2(Events *events, EventData *out, u32 milliseconds) {
    (void)milliseconds;
    BEGIN(events->device->gpu);
    if (events->told >= events->device->xids) return 10; /* TIMEOUT */
    memset(out, 0, sizeof *out);
    out->device = events->device;
    out->type = 8;
    out->data = events->device->xid[events->told++];
    return OK;
}

/* ---- processes ---- */

static int listed(const Row *row, const Device *device, char type) {
    return row->type == type
        && (!device->is_mig || (row->instance == device->instance && row->compute == device->compute));
}

/* Writes `stride` bytes per record: 16 (pid, used), 24 (instances too) or 32 (drivers 535.43 to 535.98). */
static int list(Device *device, char type, u32 *capacity, char *out, int stride) {
    const Row *rows = world.row + devices[device->gpu].first_row;
    int total = devices[device->gpu].rows;
    u32 found = 0;
    for (int i = 0; i < total; ++i) found += (u32)listed(&rows[i], device, type);
    u32 room = *capacity;
    *capacity = found;
    if (!strcmp(spoilt.how, "many")) *capacity = 0x7FFFFFFFu;
    if (!strcmp(spoilt.how, "many") || found == 0) return OK;
    if (!out || room < found) return SMALL;
    int scrambled = stride == 0;
    if (scrambled) stride = 24;
    for (int i = 0; i < total; ++i) {
        if (!listed(&rows[i], device, type)) continue;
        memset(out, 0, (size_t)stride);
        memcpy(out, &rows[i].pid, 4);
        memcpy(out + 8, &rows[i].used, 8);
        if (stride >= 24) {
            memcpy(out + 16, &rows[i].instance, 4);
            memcpy(out + 20, &rows[i].compute, 4);
        }
        if (scrambled) memset(out, 0x5A, (size_t)stride);
        out += stride;
    }
    return OK;
}

#define LISTS(suffix, stride)                                                                        \
    int nvmlDeviceGetComputeRunningProcesses##suffix(Device *device, u32 *capacity, char *out) {     \
        BEGIN_DEVICE;                                                                                \
        GIVES_OF_DEVICE(out, (size_t)*capacity * (stride ? stride : 24));                            \
        return list(device, 'C', capacity, out, stride);                                             \
    }                                                                                                \
    int nvmlDeviceGetGraphicsRunningProcesses##suffix(Device *device, u32 *capacity, char *out) {    \
        BEGIN_DEVICE;                                                                                \
        GIVES_OF_DEVICE(out, (size_t)*capacity * (stride ? stride : 24));                            \
        return list(device, 'G', capacity, out, stride);                                             \
    }                                                                                                \
    int nvmlDeviceGetMPSComputeRunningProcesses##suffix(Device *device, u32 *capacity, char *out) {  \
        BEGIN_DEVICE;                                                                                \
        GIVES_OF_DEVICE(out, (size_t)*capacity * (stride ? stride : 24));                            \
        return list(device, 'M', capacity, out, stride);                                             \
    }
LISTS(, 16)
#ifndef WITHOUT_V2
LISTS(_v2, 24)
LISTS(_v3, device->records)
#endif

/* A sample of now for each process of which the world says how busy it is. */
typedef struct { u32 pid; u64 time; u32 sm, memory, encoder, decoder; } Busy;
int nvmlDeviceGetProcessUtilization(Device *device, Busy *out, u32 *count, u64 since) {
    (void)since;
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, *count * sizeof *out);
    if (device->is_mig || device->mig_mode > 0) return UNSUPPORTED;
    const Row *rows = world.row + device->first_row;
    u32 found = 0;
    for (int i = 0; i < device->rows; ++i) found += rows[i].sm >= 0;
    u32 room = *count;
    *count = found;
    if (!found) return NOT_FOUND;
    if (!out || room < found) return SMALL;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < device->rows; ++i)
        if (rows[i].sm >= 0)
            *out++ = (Busy){rows[i].pid, (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000, (u32)rows[i].sm, 0, 0, 0};
    return OK;
}

/* ---- accounting ---- */

NUMBER(nvmlDeviceGetAccountingMode, accounting)

typedef struct { u32 gpu, memory; u64 peak, time, start; u32 running, reserved[5]; } AccountingStats;
int nvmlDeviceGetAccountingStats(Device *device, u32 pid, AccountingStats *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    if (!device->accounting) return UNSUPPORTED;
    for (int i = 0; i < device->accounted; ++i)
        if (device->account[i].pid == pid) {
            memset(out, 0, sizeof *out);
            out->peak = device->account[i].peak;
            return OK;
        }
    return NOT_FOUND;
}

/* ---- MIG ---- */

int nvmlDeviceGetMigMode(Device *device, u32 *current, u32 *pending) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(current, sizeof *current);
    if (device->is_mig || device->mig_mode < 0) return UNSUPPORTED;
    *current = *pending = (u32)device->mig_mode;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, u32 *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    *out = device->mig_mode > 0 ? 7 : 0;
    return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, u32 index, Device **out) {
    BEGIN_DEVICE;
    if (index >= (u32)device->migs) return NOT_FOUND;
    *out = device->mig[index];
    return OK;
}
NUMBER(nvmlDeviceGetMinorNumber, gpu)
int nvmlDeviceGetGpuInstanceId(Device *device, u32 *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    *out = device->instance;
    return OK;
}
int nvmlDeviceGetComputeInstanceId(Device *device, u32 *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    *out = device->compute;
    return OK;
}

typedef struct { u32 multiprocessors, copy, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices; u64 mib; } Attributes;
int nvmlDeviceGetAttributes_v2(Device *device, Attributes *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    if (!device->is_mig) return UNSUPPORTED;
    memset(out, 0, sizeof *out);
    out->multiprocessors = 16 * device->gpu_slices;
    out->gpu_slices = device->gpu_slices;
    out->compute_slices = device->compute_slices;
    out->mib = device->memory.total >> 20;
    return OK;
}

/* What nvitop asks besides, without which it draws no card that is cut into MIG instances. */
typedef struct { u64 total, free, used; } Bar1;
int nvmlDeviceGetBAR1MemoryInfo(Device *device, Bar1 *out) {
    BEGIN_DEVICE;
    GIVES_OF_DEVICE(out, sizeof *out);
    *out = (Bar1){1ull << 37, (1ull << 37) - (1 << 20), 1 << 20};
    return OK;
}
#define ALWAYS(function, value)                                                \
    int function(Device *device, u32 *out) {                                   \
        BEGIN_DEVICE;                                                          \
        GIVES_OF_DEVICE(out, sizeof *out);                                     \
        *out = value;                                                          \
        return OK;                                                             \
    }
ALWAYS(nvmlDeviceGetComputeMode, 0)
ALWAYS(nvmlDeviceGetDisplayActive, 0)
ALWAYS(nvmlDeviceGetDisplayMode, 0)
ALWAYS(nvmlDeviceGetPerformanceState, 0)
ALWAYS(nvmlDeviceGetPersistenceMode, 1)
