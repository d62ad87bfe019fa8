/* The card: its attributes by compute capability, after the CUDA programming guide's table of technical
 * specifications, NVIDIA's whitepapers (L2, clocks, bus), and cuda.h's numbers for what is asked. */
#include "driver.h"

/* Of a capability: threads, KiB of shared memory of a multiprocessor and of a block at most, blocks, MiB of L2, MHz of the
 * clocks, bits of the bus. */
#define KNOWN_AS(number, threads_, shared_, optin, blocks_, l2_, clock_, memory, bus_)                               \
  {.major = (number) / 10, .minor = (number) % 10, .threads = threads_, .shared = (shared_) << 10,                   \
   .shared_optin = (optin) << 10, .blocks = blocks_, .l2 = (l2_) << 20, .clock = (clock_) * 1000,                    \
   .memory_clock = (memory) * 1000, .bus = bus_, .devices = 1}
static const struct card KNOWN[] = {
    KNOWN_AS(60, 2048, 64, 48, 32, 4, 1328, 715, 4096), KNOWN_AS(61, 2048, 96, 48, 32, 3, 1582, 5505, 352),
    KNOWN_AS(70, 2048, 96, 96, 32, 6, 1530, 877, 4096), KNOWN_AS(75, 1024, 64, 64, 16, 4, 1590, 5001, 256),
    KNOWN_AS(80, 2048, 164, 163, 32, 40, 1410, 1593, 5120), KNOWN_AS(86, 1536, 100, 99, 16, 6, 1695, 9751, 384),
    KNOWN_AS(87, 1536, 164, 163, 16, 4, 1300, 3199, 256), KNOWN_AS(89, 1536, 100, 99, 24, 72, 2520, 10501, 384),
    KNOWN_AS(90, 2048, 228, 227, 32, 50, 1980, 2619, 5120), KNOWN_AS(100, 2048, 228, 227, 32, 126, 1965, 3996, 8192),
    KNOWN_AS(103, 2048, 228, 227, 32, 126, 1965, 3996, 8192), KNOWN_AS(110, 1536, 228, 227, 24, 32, 1575, 4266, 256),
    KNOWN_AS(120, 1536, 100, 99, 24, 96, 2407, 14001, 512), KNOWN_AS(121, 1536, 100, 99, 24, 24, 2418, 4266, 256),
};

static struct card card;
static int visible[MOST_DEVICES], visible_count; /* of which of the machine's cards each device is */
static pthread_once_t read_once = PTHREAD_ONCE_INIT, choose_once = PTHREAD_ONCE_INIT;

/* VRAMTUI_CARD is `NAME;CAPABILITY;MEMORY;MULTIPROCESSORS;CONTEXT;DEVICES;COMMUNICATOR;FURTHER`, the capability as
 * 89, the sizes in bytes. */
static void read_card(void) {
  const char *text = getenv("VRAMTUI_CARD");
  text = text == NULL ? "NVIDIA H100 80GB HBM3;90;85017493504;132;0;1;0;0" : text;
  int capability = 90;
  sscanf(text, "%*[^;];%d", &capability);
  for (size_t at = 0; at < sizeof KNOWN / sizeof KNOWN[0]; at++) {
    card = at == 0 || KNOWN[at].major * 10 + KNOWN[at].minor <= capability ? KNOWN[at] : card;
  }
  card.major = capability / 10;
  card.minor = capability % 10;
  sscanf(text, "%95[^;];%*d;%zu;%d;%zu;%d;%zu;%zu", card.name, &card.memory, &card.multiprocessors, &card.context,
         &card.devices, &card.communicator, &card.further);
  card.devices = card.devices < 0 || card.devices > MOST_DEVICES ? MOST_DEVICES : card.devices;
  if (strstr(card.name, "H200") != NULL) {
    card.l2 = 60 << 20;
    card.memory_clock = 3201000;
    card.bus = 6144;
  } else if (strstr(card.name, "L40") != NULL) {
    card.l2 = 96 << 20;
    card.memory_clock = 9001000;
  } else if (capability == 89 && strstr(card.name, "L4") != NULL) {
    card.l2 = 48 << 20;
    card.memory_clock = 6251000;
    card.bus = 192;
  }
}

const struct card *the_card(void) {
  pthread_once(&read_once, read_card);
  return &card;
}

/* Cards with HBM stand beside others on NVLink: from 9.0 on behind a switch that can send to all. */
bool has_links(void) { return the_card()->bus >= 4096; }

/* GeForce RTX cards, whose numbers end in 50 to 90, reach no other's memory over PCIe: what CUDA's p2pBandwidthLatencyTest
 * says of 2080 Ti and 4090 (NVIDIA/nccl-tests issue 117) and 3090 (NVIDIA/nccl issue 1127). A bridge is not simulated. */
bool has_peers(void) {
  int number = 0;
  sscanf(the_card()->name, "%*[^R]RTX%d", &number);
  return number % 100 == 0;
}

/* The same bytes as cuDeviceGetUuid's. */
static void write_uuid(char text[64], int number) {
  snprintf(text, 64, "GPU-7672616d-7475-692d-6361-72642d0000%02x", (unsigned)number);
}

/* The card that a part of CUDA_VISIBLE_DEVICES names: a number, or what one identifier begins with; -1 for none. */
static int card_named(const char *part, size_t length) {
  if (strncmp(part, "GPU-", 4) != 0) {
    char *end;
    long number = strtol(part, &end, 10);
    return end == part || end > part + length || number < 0 || number > 1 << 20 ? -1 : (int)number;
  }
  int found = -1;
  for (int at = 0; at < the_card()->devices; at++) {
    char own[64];
    write_uuid(own, at);
    if (strncmp(own, part, length) == 0) {
      RETURN_IF(found >= 0, -1);
      found = at;
    }
  }
  return found;
}

/* As CUDA reads it: cards in this order up to the first that is not there, and none at all if one is named twice
 * (CUDA C programming guide, environment variables; torch/cuda/__init__.py, 2.13, _parse_visible_devices). */
static void choose_devices(void) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  int count = the_card()->devices, named[64], all = 0;
  bool is_over = false;
  for (; text == NULL && visible_count < count; visible_count++) {
    visible[visible_count] = visible_count;
  }
  for (bool is_uuid = text != NULL && strncmp(text, "GPU-", 4) == 0; text != NULL; all++) {
    size_t length = strcspn(text, ",");
    int number = is_uuid == (strncmp(text, "GPU-", 4) == 0) ? card_named(text, length) : -1;
    for (int at = 0; number >= 0 && at < all; at++) {
      if (named[at] == number) {
        visible_count = 0;
        return;
      }
    }
    if (number < 0 || all == 64) {
      return;
    }
    named[all] = number;
    is_over |= number >= count;
    if (!is_over) {
      visible[visible_count++] = number;
    }
    text = text[length] == ',' ? text + length + 1 : NULL;
  }
}

int device_count(void) {
  pthread_once(&choose_once, choose_devices);
  return visible_count;
}

int number_of_card(CUdevice device) { return device < 0 || device >= device_count() ? -1 : visible[device]; }

CUdevice device_of_card(int number) {
  CUdevice device = device_count() - 1;
  while (device >= 0 && visible[device] != number) {
    device--;
  }
  return device;
}
ANSWER(cuDriverGetVersion, (int *version), version, 13000)
ANSWER(cuDeviceGetCount, (int *count), count, device_count())
ANSWER_OF(number_of_card(ordinal) >= 0, CUDA_ERROR_INVALID_DEVICE, cuDeviceGet, (CUdevice *device, int ordinal), device,
          ordinal)

#define TEXT(name, ...)                                                  \
  API CUresult name(char *text, int length, CUdevice device UNUSED) {    \
    RETURN_IF(is_wrong(text) || length <= 0, CUDA_ERROR_INVALID_VALUE);  \
    snprintf(text, (size_t)length, __VA_ARGS__);                         \
    return CUDA_SUCCESS;                                                 \
  }
TEXT(cuDeviceGetName, "%s", the_card()->name)
TEXT(cuDeviceGetPCIBusId, "0000:%02X:00.0", (unsigned)number_of_card(device) + 1)
API CUresult cuDeviceGetUuid_v2(unsigned char uuid[16], CUdevice device) {
  RETURN_IF(is_wrong(uuid), CUDA_ERROR_INVALID_VALUE);
  memcpy(uuid, "vramtui-card-\0\0\0", 16);
  uuid[15] = (unsigned char)number_of_card(device);
  return CUDA_SUCCESS;
}
ALSO(cuDeviceGetUuid, cuDeviceGetUuid_v2)
ANSWER(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device UNUSED), bytes, the_card()->memory)
ANSWER_TWO(true, 0, cuDeviceComputeCapability, (int *major, int *minor, CUdevice device UNUSED), major,
           the_card()->major, minor, the_card()->minor)
API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
  RETURN_IF(is_wrong(device) || is_wrong(text), CUDA_ERROR_INVALID_VALUE);
  unsigned domain, bus;
  int found = sscanf(text, "%x:%x", &domain, &bus);
  RETURN_IF(found != 2 || device_of_card((int)bus - 1) < 0, CUDA_ERROR_INVALID_VALUE);
  *device = device_of_card((int)bus - 1);
  return CUDA_SUCCESS;
}

/* The numbers of CU_DEVICE_ATTRIBUTE_…; what is not listed is 0, which is "no" or "none". */
static int attribute(int number, CUdevice device) {
  const struct card *card = the_card();
  switch (number) {
    case 1: case 2: case 3: return 1024;         /* MAX_THREADS_PER_BLOCK, MAX_BLOCK_DIM_X, Y */
    case 4: return 64;                           /* MAX_BLOCK_DIM_Z */
    case 5: case 11: return 0x7fffffff;          /* MAX_GRID_DIM_X, MAX_PITCH */
    case 6: case 7: return 65535;                /* MAX_GRID_DIM_Y, Z */
    case 8: return 48 << 10;                     /* MAX_SHARED_MEMORY_PER_BLOCK */
    case 9: return 64 << 10;                     /* TOTAL_CONSTANT_MEMORY */
    case 10: case 51: return 32;                 /* WARP_SIZE, TEXTURE_PITCH_ALIGNMENT */
    case 12: case 82: return 65536;              /* MAX_REGISTERS_PER_BLOCK, …_PER_MULTIPROCESSOR */
    case 13: return card->clock;                 /* CLOCK_RATE, kHz */
    case 14: case 30: return 512;                /* TEXTURE_ALIGNMENT, SURFACE_ALIGNMENT */
    case 15: case 19: case 31: case 41: return 1; /* OVERLAP, MAP_HOST, CONCURRENT_KERNELS, UNIFIED_ADDRESSING */
    case 16: return card->multiprocessors;       /* MULTIPROCESSOR_COUNT */
    case 21: case 22: return 131072;             /* MAXIMUM_TEXTURE1D_WIDTH, 2D_WIDTH */
    case 23: return 65536;                       /* MAXIMUM_TEXTURE2D_HEIGHT */
    case 24: case 25: case 26: return 16384;     /* MAXIMUM_TEXTURE3D_… */
    case 27: case 28: case 42: return 32768;     /* MAXIMUM_TEXTURE2D_LAYERED_WIDTH, HEIGHT, 1D_LAYERED_WIDTH */
    case 29: case 43: return 2048;               /* …_LAYERED_LAYERS */
    case 33: return number_of_card(device) + 1;                  /* PCI_BUS_ID */
    case 36: return card->memory_clock;          /* MEMORY_CLOCK_RATE, kHz */
    case 37: return card->bus;                   /* GLOBAL_MEMORY_BUS_WIDTH */
    case 38: return card->l2;                    /* L2_CACHE_SIZE */
    case 39: return card->threads;               /* MAX_THREADS_PER_MULTIPROCESSOR */
    case 40: return 3;                           /* ASYNC_ENGINE_COUNT */
    case 69: return 1 << 28;                     /* MAXIMUM_TEXTURE1D_LINEAR_WIDTH */
    case 75: return card->major;                 /* COMPUTE_CAPABILITY_MAJOR */
    case 76: return card->minor;                 /* COMPUTE_CAPABILITY_MINOR */
    case 78: case 79: case 80: case 98: case 99: return 1; /* PRIORITIES, L1 caches, REMOTE_WRITES, HOST_REGISTER */
    case 81: return card->shared;                /* MAX_SHARED_MEMORY_PER_MULTIPROCESSOR */
    case 87: return card->minor == 0 ? 2 : 64;   /* SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO */
    case 83: case 89: case 90: case 91: return 1; /* MANAGED_MEMORY, CONCURRENT_…, PREEMPTION, REGISTERED_MEM */
    case 92: case 93: case 94: case 122: case 123: return 1; /* stream memory operations, both forms */
    case 97: return card->shared_optin;          /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    case 95: case 102: case 103: return 1;       /* COOPERATIVE_LAUNCH, VIRTUAL_MEMORY_MANAGEMENT, POSIX_FILE_DESCRIPTOR */
    case 106: return card->blocks;               /* MAX_BLOCKS_PER_MULTIPROCESSOR */
    case 108: case 109: return card->major >= 8 ? card->l2 / 4 * 3 : 0; /* persisting L2, access window */
    case 111: return card->major >= 8 ? 1024 : 0; /* RESERVED_SHARED_MEMORY_PER_BLOCK */
    case 113: case 114: case 115: case 119: return 1; /* READ_ONLY_REGISTER, SEMAPHORE, POOLS, their descriptors */
    case 120: case 127: return card->major >= 9; /* CLUSTER_LAUNCH, TENSOR_MAP_ACCESS_SUPPORTED */
    case 125: case 129: return 1;                /* IPC_EVENT_SUPPORTED, UNIFIED_FUNCTION_POINTERS */
    case 126: return card->major >= 9 ? 4 : 1;   /* MEM_SYNC_DOMAIN_COUNT */
    case 132: return has_links() && card->major >= 9; /* MULTICAST_SUPPORTED */
    case 131: case 134: return -1;               /* NUMA_ID, HOST_NUMA_ID */
    default: return 0;
  }
}
ANSWER_OF(number_of_card(device) >= 0, CUDA_ERROR_INVALID_DEVICE, cuDeviceGetAttribute,
          (int *value, int number, CUdevice device), value, attribute(number, device))
ANSWER(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer), can, device != peer && has_peers())
/* CU_DEVICE_P2P_ATTRIBUTE_…: performance rank 0, access and atomics supported. */
ANSWER(cuDeviceGetP2PAttribute, (int *value, int number, CUdevice device UNUSED, CUdevice peer UNUSED), value,
       number != 1 && has_peers())
ANSWER(cuDeviceGetExecAffinitySupport, (int *value, int kind UNUSED, CUdevice device UNUSED), value, 0)
