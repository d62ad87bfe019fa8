/* The runtime library's documented functions (cuda_runtime_api.h), as PyTorch calls them, on this driver. They stand in
 * front of NVIDIA's own library, which asks a driver to prove that it is NVIDIA's. */
#include "driver.h"

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
    LOCKED;
    if (retained[device_now]) {
      context = context_of(device_now);
    } else {
      retained[device_now] = cuDevicePrimaryCtxRetain(&context, device_now) == CUDA_SUCCESS;
    }
    if (context != NULL) {
      cuCtxSetCurrent(context);
    }
  }
  return context;
}

CUresult without_runtime(void) {
  RETURN_IF(is_child_of_user(), CUDA_ERROR_NOT_INITIALIZED);
  return device_count() == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_OUT_OF_MEMORY; /* of the context */
}

#define WITH_CONTEXT(call) return runtime_context() == NULL ? keep_error(without_runtime()) : keep_error(call)

/* What the runtime that the job has loaded says, which asks no driver for it; 13.0 where it hides in another library. */
int runtime_version(void) {
  void *own = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
  own = own == NULL ? dlopen("libcudart.so.12", RTLD_LAZY | RTLD_NOLOAD) : own;
  CUresult (*ask)(int *) = own == NULL ? NULL : (CUresult(*)(int *))dlsym(own, "cudaRuntimeGetVersion");
  int version;
  return ask != NULL && ask(&version) == CUDA_SUCCESS ? version : 13000;
}
ANSWER(cudaRuntimeGetVersion, (int *version), version, runtime_version())
API CUresult cudaGetLastError(void) {
  CUresult error = last_error;
  last_error = CUDA_SUCCESS;
  return error;
}
API CUresult cudaPeekAtLastError(void) { return last_error; }
API const char *cudaGetErrorName(CUresult code) {
  const char *text = "cudaErrorMemoryAllocation";
  RETURN_IF(code == CUDA_ERROR_OUT_OF_MEMORY, text);
  cuGetErrorName(code, &text);
  return code == CUDA_SUCCESS ? "cudaSuccess" : text;
}
API const char *cudaGetErrorString(CUresult code) {
  const char *text;
  cuGetErrorString(code, &text);
  return text;
}
API CUresult cudaGetDeviceCount(int *count) {
  RETURN_IF(is_wrong(count), keep_error(CUDA_ERROR_INVALID_VALUE));
  cuDeviceGetCount(count);
  return *count > 0 ? CUDA_SUCCESS : keep_error(CUDA_ERROR_NO_DEVICE);
}
API CUresult cudaGetDevice(CUdevice *device) {
  RETURN_IF(is_wrong(device), keep_error(CUDA_ERROR_INVALID_VALUE));
  struct context *context = current_context();
  *device = context == NULL ? device_now : context->device;
  return CUDA_SUCCESS;
}
API CUresult cudaSetDevice(CUdevice device) {
  RETURN_IF(context_of(device) == NULL, keep_error(CUDA_ERROR_INVALID_DEVICE));
  if (device_now != device || current_context() == NULL) {
    device_now = device;
    cuCtxSetCurrent(NULL);
  }
  WITH_CONTEXT(CUDA_SUCCESS);
}
API CUresult cudaDeviceEnablePeerAccess(CUdevice peer, unsigned flags) {
  WITH_CONTEXT(cuCtxEnablePeerAccess(context_of(peer), flags));
}
API CUresult cudaDeviceDisablePeerAccess(CUdevice peer) { WITH_CONTEXT(cuCtxDisablePeerAccess(context_of(peer))); }
API CUresult cudaMalloc(CUdeviceptr *address, size_t size) {
  RETURN_IF(is_wrong(address), keep_error(CUDA_ERROR_INVALID_VALUE));
  if (size == 0) {
    *address = 0;
    return CUDA_SUCCESS;
  }
  WITH_CONTEXT(cuMemAlloc_v2(address, size));
}
API CUresult cudaMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, int kind UNUSED, struct stream *stream) {
  WITH_CONTEXT(cuMemcpyAsync(to, from, size, stream));
}

/* cudaPointerAttributes; types: 0 nobody's, 1 the host's, 2 a device's, 3 managed. */
struct pointer_attributes {
  int type, device;
  CUdeviceptr device_pointer;
  void *host_pointer;
};

API CUresult cudaPointerGetAttributes(struct pointer_attributes *answer, CUdeviceptr address) {
  RETURN_IF(is_wrong(answer), keep_error(CUDA_ERROR_INVALID_VALUE));
  static const int TYPES[] = {[DEVICE] = 2, [HOST] = 1, [MANAGED] = 3, [REGISTERED] = 1, [RESERVED] = 0, [OPENED] = 2};
  *answer = (struct pointer_attributes){.device = -2};
  LOCKED;
  struct range *range = range_of(address);
  if (range != NULL) {
    answer->type = TYPES[range->kind];
    answer->device = range->device;
    answer->device_pointer = address;
    answer->host_pointer = answer->type == 2 ? NULL : (void *)address;
  }
  return CUDA_SUCCESS;
}
API CUresult cudaStreamCreate(struct stream **stream) { WITH_CONTEXT(cuStreamCreateWithPriority(stream, 0, 0)); }
API CUresult cudaStreamGetCaptureInfo(struct stream *stream, int *status, uint64_t *id, struct graph **graph,
                                      struct node *const **after, const void **edges, size_t *count) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, graph, after, edges, count);
}
API CUresult cudaGetDriverEntryPoint(const char *name, const void **function, unsigned long long flags, int *status) {
  return cuGetProcAddress_v2(name, function, 12000, flags, status);
}

REFUSED(cudaGraphAddNode, keep_error(CUDA_ERROR_NOT_SUPPORTED))
REFUSED(cudaGraphConditionalHandleCreate, keep_error(CUDA_ERROR_NOT_SUPPORTED))
REFUSED(cudaGraphNodeGetDependencies, keep_error(CUDA_ERROR_NOT_SUPPORTED))
