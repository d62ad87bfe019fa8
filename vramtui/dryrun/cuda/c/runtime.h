/* What the runtime's stand-ins share, and the driver's functions that they call. */
#pragma once

#include "driver.h"

struct event;
struct function;
struct graph;
struct module;
struct node;

CUresult cudaSetDevice(CUdevice device);

CUresult cuInit(unsigned flags);
CUresult cuGetErrorName(CUresult code, const char **text);
CUresult cuGetErrorString(CUresult code, const char **text);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CUresult cuDeviceGetUuid_v2(unsigned char uuid[16], CUdevice device);
CUresult cuDeviceGetAttribute(int *value, int number, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(struct context **context, CUdevice device);
CUresult cuCtxSetCurrent(struct context *context);
CUresult cuCtxEnablePeerAccess(struct context *peer, unsigned flags);
CUresult cuCtxDisablePeerAccess(struct context *peer);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, struct stream *stream);
CUresult cuStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority);
CUresult cuStreamGetCaptureInfo_v3(struct stream *stream, int *status, uint64_t *id, struct graph **graph,
                                   struct node *const **after, const void **edges, size_t *count);
CUresult cuEventCreate(struct event **event, unsigned flags);
CUresult cuEventRecordWithFlags(struct event *event, struct stream *stream, unsigned flags);
CUresult cuGetProcAddress_v2(const char *name, const void **function, int version, uint64_t flags, int *status);
CUresult cuModuleLoad(struct module **module);
CUresult cuLibraryUnload(struct module *library);
CUresult cuModuleGetFunction(struct function **function, struct module *module, const char *name);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, struct module *module, const char *name);
CUresult cuFuncGetAttribute(int *value, int number, struct function *function);
CUresult cuFuncSetAttribute(struct function *function, int number, int value);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, struct function *function, int threads,
                                                              size_t dynamic, unsigned flags);
