/* What the runtime's stand-ins share, and the driver's functions that they call. */
#pragma once

#include "driver.h"

struct event;
struct function;
struct graph;
struct module;
struct node;
struct pool;

CUresult keep_error(CUresult result); /* for cudaGetLastError */
struct context *runtime_context(void);
CUresult cudaSetDevice(CUdevice device);

CUresult cuInit(unsigned flags);
CUresult cuGetErrorName(CUresult code, const char **text);
CUresult cuGetErrorString(CUresult code, const char **text);
CUresult cuDriverGetVersion(int *version);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CUresult cuDeviceGetUuid_v2(unsigned char uuid[16], CUdevice device);
CUresult cuDeviceGetAttribute(int *value, int number, CUdevice device);
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer);
CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device);
CUresult cuDeviceGetDefaultMemPool(struct pool **pool, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(struct context **context, CUdevice device);
CUresult cuCtxSetCurrent(struct context *context);
CUresult cuCtxEnablePeerAccess(struct context *peer, unsigned flags);
CUresult cuCtxDisablePeerAccess(struct context *peer);
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest);
CUresult cuCtxGetLimit(size_t *value, int limit);
CUresult cuCtxSetLimit(int limit, size_t value);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags);
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, struct stream *stream);
CUresult cuMemFreeAsync(CUdeviceptr address, struct stream *stream);
CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags);
CUresult cuMemFreeHost(void *address);
CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags);
CUresult cuMemHostUnregister(void *address);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned flags);
CUresult cuMemGetInfo_v2(size_t *unused, size_t *total);
CUresult cuMemPoolGetAttribute(struct pool *pool, int number, void *value);
CUresult cuMemPoolSetAttribute(struct pool *pool, int number, const void *value);
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, struct stream *stream);
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count);
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, struct stream *stream);
CUresult cuStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority);
CUresult cuStreamDestroy_v2(struct stream *stream);
CUresult cuStreamQuery(struct stream *stream);
CUresult cuStreamSynchronize(struct stream *stream);
CUresult cuStreamGetPriority(struct stream *stream, int *priority);
CUresult cuStreamGetFlags(struct stream *stream, unsigned *flags);
CUresult cuStreamAddCallback(struct stream *stream, void (*call)(struct stream *, CUresult, void *), void *data,
                             unsigned flags);
CUresult cuLaunchHostFunc(struct stream *stream, void (*call)(void *), void *data);
CUresult cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags);
CUresult cuStreamBeginCapture_v2(struct stream *stream, int mode);
CUresult cuStreamBeginCaptureToGraph(struct stream *stream, struct graph *graph, void *after, void *edges,
                                     size_t count, int mode);
CUresult cuStreamEndCapture(struct stream *stream, struct graph **graph);
CUresult cuStreamIsCapturing(struct stream *stream, int *status);
CUresult cuStreamGetCaptureInfo_v3(struct stream *stream, int *status, uint64_t *id, struct graph **graph,
                                   struct node *const **after, const void **edges, size_t *count);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);
CUresult cuEventCreate(struct event **event, unsigned flags);
CUresult cuEventDestroy_v2(struct event *event);
CUresult cuEventRecordWithFlags(struct event *event, struct stream *stream, unsigned flags);
CUresult cuEventElapsedTime(float *milliseconds, struct event *from, struct event *to);
CUresult cuGraphInstantiateWithFlags(size_t **ready, struct graph *graph, unsigned long long flags);
CUresult cuGraphDestroy(struct graph *graph);
CUresult cuGraphExecDestroy(size_t *ready);
CUresult cuGraphGetNodes(struct graph *graph, struct node **nodes, size_t *count);
CUresult cuGetProcAddress_v2(const char *name, const void **function, int version, uint64_t flags, int *status);
CUresult cuLibraryLoadData(struct module **library, const void *image, void *options, void **values, unsigned count,
                           void *own_options, void **own_values, unsigned own_count);
CUresult cuLibraryUnload(struct module *library);
CUresult cuModuleGetFunction(struct function **function, struct module *module, const char *name);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, struct module *module, const char *name);
CUresult cuFuncGetAttribute(int *value, int number, struct function *function);
CUresult cuFuncSetAttribute(struct function *function, int number, int value);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, struct function *function, int threads,
                                                              size_t dynamic, unsigned flags);
