/* The runtime library's documented functions (cuda_runtime_api.h), as PyTorch calls them, on this driver. They stand in
 * front of NVIDIA's own library, which asks a driver to prove that it is NVIDIA's. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static __thread CUresult last_error;
static __thread CUdevice device_now;

CUresult keep_error(CUresult result) {
  if (result != CUDA_SUCCESS) {
    last_error = result;
  }
  return result;
}

/* The context of this thread's device, made when it is first needed. */
struct context *runtime_context(void) {
  static bool retained[MOST_DEVICES];
  struct context *context = current_context();
  if (context == NULL && cuInit(0) == CUDA_SUCCESS) {
    lock_memory();
    if (retained[device_now]) {
      context = context_of(device_now);
    } else {
      retained[device_now] = cuDevicePrimaryCtxRetain(&context, device_now) == CUDA_SUCCESS;
    }
    unlock_memory();
    cuCtxSetCurrent(context);
  }
  return context;
}

#define WITH_CONTEXT(call) return runtime_context() == NULL ? keep_error(CUDA_ERROR_NO_DEVICE) : keep_error(call)

API CUresult cudaGetLastError(void) {
  CUresult error = last_error;
  last_error = CUDA_SUCCESS;
  return error;
}
API CUresult cudaPeekAtLastError(void) { return last_error; }
API const char *cudaGetErrorName(CUresult code) {
  const char *text;
  switch (code) {
    case CUDA_SUCCESS: return "cudaSuccess";
    case CUDA_ERROR_OUT_OF_MEMORY: return "cudaErrorMemoryAllocation";
    default: cuGetErrorName(code, &text); return text;
  }
}
API const char *cudaGetErrorString(CUresult code) {
  const char *text;
  cuGetErrorString(code, &text);
  return text;
}
API CUresult cudaDriverGetVersion(int *version) { return cuDriverGetVersion(version); }
API CUresult cudaRuntimeGetVersion(int *version) { return cuDriverGetVersion(version); }
API CUresult cudaGetDeviceCount(int *count) {
  cuDeviceGetCount(count);
  return *count > 0 ? CUDA_SUCCESS : keep_error(CUDA_ERROR_NO_DEVICE);
}
API CUresult cudaGetDevice(CUdevice *device) {
  struct context *context = current_context();
  *device = context == NULL ? device_now : context->device;
  return CUDA_SUCCESS;
}
API CUresult cudaSetDevice(CUdevice device) {
  if (context_of(device) == NULL) {
    return keep_error(CUDA_ERROR_INVALID_DEVICE);
  }
  if (device_now != device || current_context() == NULL) {
    device_now = device;
    cuCtxSetCurrent(NULL);
  }
  WITH_CONTEXT(CUDA_SUCCESS);
}
API CUresult cudaDeviceSynchronize(void) { return CUDA_SUCCESS; }
API CUresult cudaDeviceReset(void) { return CUDA_SUCCESS; }
API CUresult cudaSetDeviceFlags(unsigned flags UNUSED) { return CUDA_SUCCESS; }
API CUresult cudaDeviceGetAttribute(int *value, int number, CUdevice device) {
  return keep_error(cuDeviceGetAttribute(value, number, device));
}
API CUresult cudaDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  return cuDeviceCanAccessPeer(can, device, peer);
}
API CUresult cudaDeviceEnablePeerAccess(CUdevice peer, unsigned flags) {
  WITH_CONTEXT(cuCtxEnablePeerAccess(context_of(peer), flags));
}
API CUresult cudaDeviceDisablePeerAccess(CUdevice peer) { WITH_CONTEXT(cuCtxDisablePeerAccess(context_of(peer))); }
API CUresult cudaDeviceGetPCIBusId(char *text, int length, CUdevice device) {
  return cuDeviceGetPCIBusId(text, length, device);
}
API CUresult cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return cuCtxGetStreamPriorityRange(least, greatest);
}
API CUresult cudaDeviceGetLimit(size_t *value, int limit) { return keep_error(cuCtxGetLimit(value, limit)); }
API CUresult cudaDeviceSetLimit(int limit, size_t value) { return keep_error(cuCtxSetLimit(limit, value)); }
API CUresult cudaDeviceGetDefaultMemPool(struct pool **pool, CUdevice device) {
  return keep_error(cuDeviceGetDefaultMemPool(pool, device));
}

API CUresult cudaMalloc(CUdeviceptr *address, size_t size) {
  if (size == 0) {
    *address = 0;
    return CUDA_SUCCESS;
  }
  WITH_CONTEXT(cuMemAlloc_v2(address, size));
}
API CUresult cudaFree(CUdeviceptr address) { WITH_CONTEXT(cuMemFree_v2(address)); }
API CUresult cudaMallocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
  WITH_CONTEXT(cuMemAllocManaged(address, size, flags));
}
API CUresult cudaMallocAsync(CUdeviceptr *address, size_t size, struct stream *stream) {
  WITH_CONTEXT(cuMemAllocAsync(address, size, stream));
}
API CUresult cudaFreeAsync(CUdeviceptr address, struct stream *stream) { WITH_CONTEXT(cuMemFreeAsync(address, stream)); }
API CUresult cudaHostAlloc(void **address, size_t size, unsigned flags) {
  WITH_CONTEXT(cuMemHostAlloc(address, size, flags));
}
API CUresult cudaMallocHost(void **address, size_t size) { WITH_CONTEXT(cuMemHostAlloc(address, size, 0)); }
API CUresult cudaFreeHost(void *address) { return keep_error(cuMemFreeHost(address)); }
API CUresult cudaHostRegister(void *address, size_t size, unsigned flags) {
  WITH_CONTEXT(cuMemHostRegister_v2(address, size, flags));
}
API CUresult cudaHostUnregister(void *address) { return keep_error(cuMemHostUnregister(address)); }
API CUresult cudaHostGetDevicePointer(CUdeviceptr *address, void *host, unsigned flags) {
  return cuMemHostGetDevicePointer_v2(address, host, flags);
}
API CUresult cudaMemGetInfo(size_t *unused, size_t *total) { WITH_CONTEXT(cuMemGetInfo_v2(unused, total)); }
API CUresult cudaMemPoolGetAttribute(struct pool *pool, int number, void *value) {
  return keep_error(cuMemPoolGetAttribute(pool, number, value));
}
API CUresult cudaMemPoolSetAttribute(struct pool *pool, int number, void *value) {
  return keep_error(cuMemPoolSetAttribute(pool, number, value));
}
API CUresult cudaMemPoolSetAccess(struct pool *pool UNUSED, const void *access UNUSED, size_t count UNUSED) {
  return CUDA_SUCCESS;
}
API CUresult cudaMemPoolTrimTo(struct pool *pool UNUSED, size_t least UNUSED) { return CUDA_SUCCESS; }
API CUresult cudaMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size, int kind UNUSED) {
  WITH_CONTEXT(cuMemcpy(to, from, size));
}
API CUresult cudaMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, int kind UNUSED, struct stream *stream) {
  WITH_CONTEXT(cuMemcpyAsync(to, from, size, stream));
}
API CUresult cudaMemcpyPeerAsync(CUdeviceptr to, CUdevice there UNUSED, CUdeviceptr from, CUdevice here UNUSED,
                                 size_t size, struct stream *stream) {
  WITH_CONTEXT(cuMemcpyAsync(to, from, size, stream));
}
API CUresult cudaMemcpy2DAsync(CUdeviceptr to, size_t to_pitch, CUdeviceptr from, size_t from_pitch, size_t width,
                               size_t height, int kind UNUSED, struct stream *stream) {
  if (runtime_context() == NULL) {
    return keep_error(CUDA_ERROR_NO_DEVICE);
  }
  for (size_t row = 0; row < height; row++) {
    cuMemcpyAsync(to + row * to_pitch, from + row * from_pitch, width, stream);
  }
  return CUDA_SUCCESS;
}
API CUresult cudaMemset(CUdeviceptr to, int value, size_t size) {
  WITH_CONTEXT(cuMemsetD8_v2(to, (unsigned char)value, size));
}
API CUresult cudaMemsetAsync(CUdeviceptr to, int value, size_t size, struct stream *stream) {
  WITH_CONTEXT(cuMemsetD8Async(to, (unsigned char)value, size, stream));
}

/* cudaPointerAttributes; types: 0 nobody's, 1 the host's, 2 a device's, 3 managed. */
struct pointer_attributes {
  int type, device;
  CUdeviceptr device_pointer;
  void *host_pointer;
  long reserved[8];
};

API CUresult cudaPointerGetAttributes(struct pointer_attributes *answer, CUdeviceptr address) {
  static const int TYPES[] = {[DEVICE] = 2, [HOST] = 1, [MANAGED] = 3, [REGISTERED] = 1, [RESERVED] = 0};
  *answer = (struct pointer_attributes){.device = -2};
  lock_memory();
  struct range *range = range_of(address);
  if (range != NULL) {
    answer->type = TYPES[range->kind];
    answer->device = range->device;
    answer->device_pointer = address;
    answer->host_pointer = range->kind == DEVICE ? NULL : (void *)address;
  }
  unlock_memory();
  return CUDA_SUCCESS;
}

API CUresult cudaStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority) {
  WITH_CONTEXT(cuStreamCreateWithPriority(stream, flags, priority));
}
API CUresult cudaStreamCreateWithFlags(struct stream **stream, unsigned flags) {
  WITH_CONTEXT(cuStreamCreateWithPriority(stream, flags, 0));
}
API CUresult cudaStreamCreate(struct stream **stream) { WITH_CONTEXT(cuStreamCreateWithPriority(stream, 0, 0)); }
API CUresult cudaStreamDestroy(struct stream *stream) { return keep_error(cuStreamDestroy_v2(stream)); }
API CUresult cudaStreamQuery(struct stream *stream) { return cuStreamQuery(stream); }
API CUresult cudaStreamSynchronize(struct stream *stream) { return keep_error(cuStreamSynchronize(stream)); }
API CUresult cudaStreamGetPriority(struct stream *stream, int *priority) {
  return cuStreamGetPriority(stream, priority);
}
API CUresult cudaStreamGetFlags(struct stream *stream, unsigned *flags) { return cuStreamGetFlags(stream, flags); }
API CUresult cudaStreamAddCallback(struct stream *stream, void (*call)(struct stream *, CUresult, void *), void *data,
                                   unsigned flags) {
  return cuStreamAddCallback(stream, call, data, flags);
}
API CUresult cudaLaunchHostFunc(struct stream *stream, void (*call)(void *), void *data) {
  return cuLaunchHostFunc(stream, call, data);
}
API CUresult cudaStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags) {
  return cuStreamWaitEvent(stream, event, flags);
}
API CUresult cudaStreamBeginCapture(struct stream *stream, int mode) {
  return keep_error(cuStreamBeginCapture_v2(stream, mode));
}
API CUresult cudaStreamBeginCaptureToGraph(struct stream *stream, struct graph *graph, void *after, void *edges,
                                           size_t count, int mode) {
  return keep_error(cuStreamBeginCaptureToGraph(stream, graph, after, edges, count, mode));
}
API CUresult cudaStreamEndCapture(struct stream *stream, struct graph **graph) {
  return keep_error(cuStreamEndCapture(stream, graph));
}
API CUresult cudaStreamIsCapturing(struct stream *stream, int *status) { return cuStreamIsCapturing(stream, status); }
API CUresult cudaStreamGetCaptureInfo(struct stream *stream, int *status, uint64_t *id, struct graph **graph,
                                      struct node *const **after, const void **edges, size_t *count) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, graph, after, edges, count);
}
API CUresult cudaStreamUpdateCaptureDependencies(struct stream *stream UNUSED, void *after UNUSED,
                                                 const void *edges UNUSED, size_t count UNUSED,
                                                 unsigned flags UNUSED) {
  return CUDA_SUCCESS;
}
API CUresult cudaThreadExchangeStreamCaptureMode(int *mode) { return cuThreadExchangeStreamCaptureMode(mode); }
API CUresult cudaEventCreateWithFlags(struct event **event, unsigned flags) {
  WITH_CONTEXT(cuEventCreate(event, flags));
}
API CUresult cudaEventCreate(struct event **event) { WITH_CONTEXT(cuEventCreate(event, 0)); }
API CUresult cudaEventDestroy(struct event *event) { return cuEventDestroy_v2(event); }
API CUresult cudaEventQuery(struct event *event UNUSED) { return CUDA_SUCCESS; }
API CUresult cudaEventSynchronize(struct event *event UNUSED) { return CUDA_SUCCESS; }
API CUresult cudaEventRecord(struct event *event, struct stream *stream) {
  return cuEventRecordWithFlags(event, stream, 0);
}
API CUresult cudaEventRecordWithFlags(struct event *event, struct stream *stream, unsigned flags) {
  return cuEventRecordWithFlags(event, stream, flags);
}
API CUresult cudaEventElapsedTime(float *milliseconds, struct event *from, struct event *to) {
  return cuEventElapsedTime(milliseconds, from, to);
}
API CUresult cudaGraphInstantiateWithFlags(size_t **ready, struct graph *graph, unsigned long long flags) {
  return keep_error(cuGraphInstantiateWithFlags(ready, graph, flags));
}
API CUresult cudaGraphInstantiate(size_t **ready, struct graph *graph, unsigned long long flags) {
  return keep_error(cuGraphInstantiateWithFlags(ready, graph, flags));
}
API CUresult cudaGraphLaunch(size_t *ready UNUSED, struct stream *stream UNUSED) { return CUDA_SUCCESS; }
API CUresult cudaGraphDestroy(struct graph *graph) { return cuGraphDestroy(graph); }
API CUresult cudaGraphExecDestroy(size_t *ready) { return cuGraphExecDestroy(ready); }
API CUresult cudaGraphGetNodes(struct graph *graph, struct node **nodes, size_t *count) {
  return cuGraphGetNodes(graph, nodes, count);
}
API CUresult cudaGraphDebugDotPrint(struct graph *graph UNUSED, const char *path UNUSED, unsigned flags UNUSED) {
  return CUDA_SUCCESS;
}
API CUresult cudaProfilerStart(void) { return CUDA_SUCCESS; }
API CUresult cudaProfilerStop(void) { return CUDA_SUCCESS; }
API CUresult cudaGetDriverEntryPointByVersion(const char *name, const void **function, unsigned version,
                                              unsigned long long flags, int *status) {
  return cuGetProcAddress_v2(name, function, (int)version, flags, status);
}
API CUresult cudaGetDriverEntryPoint(const char *name, const void **function, unsigned long long flags, int *status) {
  return cuGetProcAddress_v2(name, function, 12000, flags, status);
}

#define NOT_MODELLED(name)                                     \
  API CUresult name(void) {                                    \
    report_unmodelled(#name, __builtin_return_address(0));     \
    return keep_error(CUDA_ERROR_NOT_SUPPORTED);               \
  }

NOT_MODELLED(cudaGraphAddNode)
NOT_MODELLED(cudaGraphConditionalHandleCreate)
NOT_MODELLED(cudaGraphNodeGetDependencies)
NOT_MODELLED(cudaIpcCloseMemHandle)
NOT_MODELLED(cudaIpcGetEventHandle)
NOT_MODELLED(cudaIpcGetMemHandle)
NOT_MODELLED(cudaIpcOpenEventHandle)
NOT_MODELLED(cudaIpcOpenMemHandle)
