/* Contexts: one for each device, a stack of them for each thread. */
#include "driver.h"

#define DEEPEST 32

#define OF(number) [number] = {.device = number}
static struct context contexts[MOST_DEVICES] = {OF(0), OF(1), OF(2), OF(3), OF(4), OF(5), OF(6), OF(7), OF(8), OF(9), OF(10),
                                                OF(11), OF(12), OF(13), OF(14), OF(15)};
static __thread struct context *stack[DEEPEST];
static __thread int depth;
static _Atomic bool initialized;

struct context *context_of(CUdevice device) {
  RETURN_IF(device < 0 || device >= device_count(), NULL);
  return &contexts[device];
}

static bool is_context(const struct context *context) {
  size_t at = ((uintptr_t)context - (uintptr_t)contexts) / sizeof *contexts;
  return at < (size_t)device_count() && context == &contexts[at];
}

struct context *current_context(void) { return depth > 0 ? stack[depth - 1] : NULL; }
CUdevice current_device(void) { return depth > 0 ? stack[depth - 1]->device : 0; }

/* What a context takes as it is used, in KiB on an H100 (torch 2.11, CUDA 13.0, driver 580.159:
 * tests/golden/card/context_steps.json), where training takes 740 MiB: these, two handles of cuBLAS among them. On other
 * cards in proportion. */
#define TRAINING (740 << 10)
static const int COSTS[] = {[BEGINNING] = 518 << 10, [KERNELS] = 92 << 10, [BLAS_HANDLE] = 65 << 10, [STREAM] = 560,
                            [DNN] = 18 << 10, [FFT] = 8 << 10, [SOLVER] = 98 << 10};

size_t context_bytes(CUdevice device) { return contexts[device].bytes; }
static int64_t cost_of(enum load what) { return (int64_t)(the_card()->context * (uint64_t)COSTS[what] / TRAINING); }

static void give_back(struct context *context, size_t bytes) {
  context->bytes -= bytes < context->bytes ? bytes : context->bytes;
  report_used(context->device, -(int64_t)bytes, 0, 0);
}

/* Only a context that cannot begin is refused: what is loaded later is taken wherever the card has it. */
bool load(struct context *context, enum load what) {
  bool each_time = what == BLAS_HANDLE || what == STREAM;
  LOCKED;
  RETURN_IF(context == NULL || (!each_time && context->loaded & 1u << what), true);
  bool has_room = charge_to(context->device, &context->bytes, (size_t)cost_of(what), what != BEGINNING);
  context->loaded |= has_room ? 1u << what : 0;
  return has_room;
}

void unload(struct context *context, enum load what) {
  LOCKED;
  give_back(context, (size_t)cost_of(what));
}

/* The first look at a device begins its context. */
static bool retain(struct context *context) {
  LOCKED;
  bool has_room = context->retained > 0 || load(context, BEGINNING);
  context->retained += has_room;
  return has_room;
}

static void release(struct context *context) {
  LOCKED;
  if (context->retained > 0 && --context->retained == 0) {
    give_back(context, context->bytes);
    context->loaded = 0;
  }
}

static bool is_child;
bool is_child_of_user(void) { return is_child; }
CUresult without_context(void) { return initialized ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_NOT_INITIALIZED; }

/* In a new process: CUDA is not initialized there, and cannot be if it was before. */
void forget_contexts(void) {
  is_child |= initialized;
  initialized = false;
  depth = 0;
  for (CUdevice device = 0; device < MOST_DEVICES; device++) {
    contexts[device] = (struct context){.device = device};
  }
}
API CUresult cuInit(unsigned flags) {
  RETURN_IF(flags != 0, CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(is_child, CUDA_ERROR_NOT_INITIALIZED);
  RETURN_IF(device_count() == 0, CUDA_ERROR_NO_DEVICE);
  initialized = true;
  return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRetain(struct context **context, CUdevice device) {
  RETURN_IF(is_wrong(context), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(!initialized, CUDA_ERROR_NOT_INITIALIZED);
  struct context *own = context_of(device);
  RETURN_IF(own == NULL, CUDA_ERROR_INVALID_DEVICE);
  RETURN_IF(!retain(own), CUDA_ERROR_OUT_OF_MEMORY);
  *context = own;
  return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  struct context *own = context_of(device);
  RETURN_IF(own == NULL || own->retained == 0, CUDA_ERROR_INVALID_CONTEXT);
  release(own);
  return CUDA_SUCCESS;
}
ANSWER_OF(context_of(device) != NULL, CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxSetFlags_v2,
          (CUdevice device, unsigned flags), &contexts[device].flags, flags)
ANSWER_TWO(context_of(device) != NULL, CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxGetState,
           (CUdevice device, unsigned *flags, int *active), flags, contexts[device].flags, active,
           contexts[device].retained > 0)
API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return context_of(device) == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
API CUresult cuCtxPushCurrent_v2(struct context *context) {
  RETURN_IF(!is_context(context), CUDA_ERROR_INVALID_CONTEXT);
  RETURN_IF(depth == DEEPEST, CUDA_ERROR_INVALID_VALUE);
  stack[depth++] = context;
  return CUDA_SUCCESS;
}
API CUresult cuCtxPopCurrent_v2(struct context **context) {
  RETURN_IF(depth == 0, CUDA_ERROR_INVALID_CONTEXT);
  depth--;
  TELL(context, stack[depth]);
  return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(struct context *context) {
  RETURN_IF(context != NULL && !is_context(context), CUDA_ERROR_INVALID_CONTEXT);
  if (context == NULL) {
    depth -= depth > 0;
    return CUDA_SUCCESS;
  }
  depth += depth == 0;
  stack[depth - 1] = context;
  return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(struct context **context) {
  RETURN_IF(is_wrong(context), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(!initialized, CUDA_ERROR_NOT_INITIALIZED);
  *context = current_context();
  return CUDA_SUCCESS;
}
API CUresult cuCtxCreate_v2(struct context **context, unsigned flags, CUdevice device) {
  CUresult result = cuDevicePrimaryCtxRetain(context, device);
  if (result == CUDA_SUCCESS) {
    (*context)->flags = flags;
    result = cuCtxPushCurrent_v2(*context);
  }
  return result;
}
API CUresult cuCtxCreate_v3(struct context **context, void *affinity UNUSED, int count UNUSED, unsigned flags,
                            CUdevice device) {
  return cuCtxCreate_v2(context, flags, device);
}
API CUresult cuCtxCreate_v4(struct context **context, void *parameters UNUSED, unsigned flags, CUdevice device) {
  return cuCtxCreate_v2(context, flags, device);
}
API CUresult cuCtxDestroy_v2(struct context *context) {
  RETURN_IF(!is_context(context), CUDA_ERROR_INVALID_CONTEXT);
  if (current_context() == context) {
    depth--;
  }
  release(context);
  return CUDA_SUCCESS;
}

/* What is asked of a context: of this thread's where none is named. */
#define OF_CONTEXT(name, parameters, named, where, answer)                        \
  API CUresult name parameters {                                                  \
    struct context *asked = (named) == NULL ? current_context() : (named);        \
    RETURN_IF(!is_context(asked), without_context());                             \
    RETURN_IF(is_wrong(where), CUDA_ERROR_INVALID_VALUE);                            \
    *(where) = answer;                                                            \
    return CUDA_SUCCESS;                                                          \
  }
OF_CONTEXT(cuCtxGetDevice_v2, (CUdevice *device, struct context *context), context, device, asked->device)
OF_CONTEXT(cuCtxGetDevice, (CUdevice *device), NULL, device, asked->device)
OF_CONTEXT(cuCtxGetFlags, (unsigned *flags), NULL, flags, asked->flags)
OF_CONTEXT(cuCtxSetFlags, (unsigned flags), NULL, &asked->flags, flags)
OF_CONTEXT(cuCtxGetId, (struct context *context, uint64_t *id), context, id, (uint64_t)asked->device + 1)

/* CU_LIMIT_…: stack of a thread, printf's buffer, malloc's heap, and what CUDA's documentation gives beside them. */
static size_t limits[16] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0};

ANSWER_OF(limit >= 0 && limit < 16, CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit, (size_t *value, int limit), value, limits[limit])
ANSWER_OF(limit >= 0 && limit < 16, CUDA_ERROR_INVALID_VALUE, cuCtxSetLimit, (int limit, size_t value), &limits[limit], value)
ANSWER(cuCtxGetCacheConfig, (int *config), config, 0)
ANSWER(cuCtxGetSharedMemConfig, (int *config), config, 1)
ANSWER(cuCtxGetApiVersion, (struct context *context UNUSED, unsigned *version), version, 3020)
API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  TELL(least, 0);
  TELL(greatest, -5);
  return CUDA_SUCCESS;
}
API CUresult cuCtxEnablePeerAccess(struct context *peer, unsigned flags UNUSED) {
  struct context *own = current_context();
  RETURN_IF(own == NULL || !is_context(peer) || own == peer, CUDA_ERROR_INVALID_CONTEXT);
  RETURN_IF(!has_peers(), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  uint64_t bit = (uint64_t)1 << peer->device;
  RETURN_IF(own->peers & bit, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  own->peers |= bit;
  return CUDA_SUCCESS;
}
API CUresult cuCtxDisablePeerAccess(struct context *peer) {
  struct context *own = current_context();
  RETURN_IF(own == NULL || !is_context(peer) || !(own->peers >> peer->device & 1), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  own->peers &= ~((uint64_t)1 << peer->device);
  return CUDA_SUCCESS;
}
