/* Functions that are said in a line: those of the runtime that are one of the driver's, and what has nothing to do
 * where all work is done when it is given and nothing is kept of kernels. Each parameter of theirs is a word, and the
 * conventions of x86-64 and AArch64 pass the first six in registers, whatever they are. */
#include "driver.h"

typedef uintptr_t word;

#define WORDS word a, word b, word c, word d, word e, word f
#define SAME(name, driver, result)                 \
  CUresult driver_##name(WORDS) __asm__(#driver);  \
  API CUresult name(WORDS) {                       \
    CUresult (*same)(WORDS) UNUSED = driver_##name; \
    return result;                                 \
  }
#define AS(name, driver) SAME(name, driver, same(a, b, c, d, e, f))
/* Kept for cudaGetLastError where it fails. */
#define KEPT(name, driver) SAME(name, driver, keep_error(same(a, b, c, d, e, f)))
/* In this thread's context, which is made where there is none. */
#define WITHIN(name, driver) \
  SAME(name, driver, keep_error(runtime_context() == NULL ? without_runtime() : same(a, b, c, d, e, f)))

AS(cudaDriverGetVersion, cuDriverGetVersion) AS(cuMemAllocHost_v2, cuMemHostAlloc) /* whose flags do not matter */
AS(cudaDeviceCanAccessPeer, cuDeviceCanAccessPeer) AS(cudaDeviceGetPCIBusId, cuDeviceGetPCIBusId)
AS(cudaDeviceGetStreamPriorityRange, cuCtxGetStreamPriorityRange)
AS(cudaHostGetDevicePointer, cuMemHostGetDevicePointer_v2)
AS(cudaStreamGetPriority, cuStreamGetPriority) AS(cudaStreamGetFlags, cuStreamGetFlags)
AS(cudaStreamWaitEvent, cuStreamWaitEvent) AS(cudaStreamIsCapturing, cuStreamIsCapturing)
AS(cudaThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode) AS(cudaEventDestroy, cuEventDestroy_v2)
AS(cudaEventRecordWithFlags, cuEventRecordWithFlags) AS(cudaEventElapsedTime, cuEventElapsedTime)
AS(cudaEventRecord, cuEventRecordWithFlags) AS(cuEventRecord, cuEventRecordWithFlags)
AS(cudaGraphDestroy, cuGraphDestroy) AS(cudaGraphExecDestroy, cuGraphExecDestroy)
AS(cudaGraphGetNodes, cuGraphGetNodes) AS(cudaStreamAddCallback, cuStreamAddCallback)
AS(cudaLaunchHostFunc, cuLaunchHostFunc) AS(cudaStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2)

/* The forms of CUDA 3, and of primary contexts before CUDA 11, which cuDNN asks for by name. */
AS(cuCtxPushCurrent, cuCtxPushCurrent_v2) AS(cuCtxPopCurrent, cuCtxPopCurrent_v2)
AS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2) AS(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2)
AS(cuLinkCreate, cuLinkCreate_v2)

/* One thing under two names. */
AS(cuLibraryGetKernel, cuModuleGetFunction) AS(cuLibraryGetGlobal, cuModuleGetGlobal_v2)
AS(cuLibraryGetManaged, cuModuleGetGlobal_v2) AS(cuLibraryGetKernelCount, cuModuleGetFunctionCount)
AS(cuKernelGetName, cuFuncGetName) AS(cuKernelGetAttribute, cuFuncGetAttribute)
AS(cuGraphInstantiate_v2, cuGraphInstantiateWithFlags) /* whose further arguments tell of nothing here */
AS(cudaLibraryGetKernel, cuModuleGetFunction) AS(cuEventElapsedTime_v2, cuEventElapsedTime)
AS(cudaGetDriverEntryPointByVersion, cuGetProcAddress_v2)

KEPT(cudaDeviceGetAttribute, cuDeviceGetAttribute) KEPT(cudaDeviceGetLimit, cuCtxGetLimit)
KEPT(cudaDeviceSetLimit, cuCtxSetLimit) KEPT(cudaDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool)
KEPT(cudaIpcGetMemHandle, cuIpcGetMemHandle) KEPT(cudaIpcCloseMemHandle, cuIpcCloseMemHandle)
KEPT(cudaIpcGetEventHandle, cuIpcGetEventHandle) KEPT(cudaFreeHost, cuMemFreeHost) KEPT(cudaHostUnregister, cuMemHostUnregister)
KEPT(cudaMemPoolGetAttribute, cuMemPoolGetAttribute) KEPT(cudaMemPoolSetAttribute, cuMemPoolSetAttribute)
KEPT(cudaStreamDestroy, cuStreamDestroy_v2) KEPT(cudaStreamSynchronize, cuStreamSynchronize)
KEPT(cudaStreamBeginCapture, cuStreamBeginCapture_v2) KEPT(cudaStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph)
KEPT(cudaStreamEndCapture, cuStreamEndCapture) KEPT(cudaGraphInstantiateWithFlags, cuGraphInstantiateWithFlags)
KEPT(cudaGraphInstantiate, cuGraphInstantiateWithFlags) KEPT(cudaGraphExecUpdate, cuGraphExecUpdate_v2)
KEPT(cudaKernelSetAttributeForDevice, cuFuncSetAttribute)

WITHIN(cudaFree, cuMemFree_v2) WITHIN(cudaMallocManaged, cuMemAllocManaged) WITHIN(cudaMallocAsync, cuMemAllocAsync)
WITHIN(cudaFreeAsync, cuMemFreeAsync) WITHIN(cudaHostAlloc, cuMemHostAlloc)
WITHIN(cudaHostRegister, cuMemHostRegister_v2) WITHIN(cudaMemGetInfo, cuMemGetInfo_v2) WITHIN(cudaMemcpy, cuMemcpy)
WITHIN(cudaStreamCreateWithPriority, cuStreamCreateWithPriority) WITHIN(cudaEventCreateWithFlags, cuEventCreate)
WITHIN(cudaMallocHost, cuMemHostAlloc) WITHIN(cudaMemset, cuMemsetD8_v2) WITHIN(cudaMemsetAsync, cuMemsetD8Async)
WITHIN(cudaEventCreate, cuEventCreate) WITHIN(cudaMemcpyPeerAsync, cuMemcpyPeerAsync)
WITHIN(cudaStreamCreateWithFlags, cuStreamCreate)
NOTHING(cuCtxSynchronize) NOTHING(cuCtxSynchronize_v2) NOTHING(cuCtxSetCacheConfig) NOTHING(cuCtxSetSharedMemConfig)
NOTHING(cuCtxResetPersistingL2Cache) NOTHING(cuStreamUpdateCaptureDependencies)
NOTHING(cuStreamUpdateCaptureDependencies_v2) NOTHING(cuGraphLaunch) NOTHING(cuGraphUpload)
NOTHING(cuGraphDebugDotPrint) NOTHING(cuGraphAddDependencies_v2) NOTHING(cuGraphRetainUserObject)
NOTHING(cuGraphReleaseUserObject) NOTHING(cudaFuncSetCacheConfig) NOTHING(cuPointerSetAttribute) NOTHING(cuMemAdvise)
NOTHING(cuMemPrefetchAsync) NOTHING(cuModuleUnload) NOTHING(cuLibraryUnload) NOTHING(cuFuncSetCacheConfig)
NOTHING(cuFuncSetSharedMemConfig) NOTHING(cuKernelSetCacheConfig) NOTHING(cuFuncLoad) NOTHING(cuLinkAddData_v2)
NOTHING(cuLinkAddFile_v2) NOTHING(cuLinkAddData) NOTHING(cuLinkAddFile) NOTHING(cuMemPoolTrimTo)
NOTHING(cuMemPoolSetAccess) NOTHING(cudaDeviceSynchronize) NOTHING(cudaDeviceReset) NOTHING(cudaSetDeviceFlags)
NOTHING(cudaMemPoolSetAccess) NOTHING(cudaMemPoolTrimTo) NOTHING(cudaStreamUpdateCaptureDependencies)
NOTHING(cudaEventQuery) NOTHING(cudaEventSynchronize) NOTHING(cudaGraphLaunch) NOTHING(cudaGraphDebugDotPrint)
NOTHING(cudaProfilerStart) NOTHING(cudaProfilerStop) NOTHING(cudaLibraryUnload) NOTHING(cudaStreamQuery) NOTHING(cuStreamQuery)
NOTHING(cuStreamAttachMemAsync) NOTHING(cuStreamCopyAttributes) NOTHING(cuStreamSetAttribute) NOTHING(cuEventQuery)
NOTHING(cuEventSynchronize) NOTHING(cuLogsUnregisterCallback) NOTHING(cuProfilerStart) NOTHING(cuProfilerStop)
NOTHING(cuStreamWaitValue32_v2) NOTHING(cuStreamWaitValue64_v2) NOTHING(cuMemSetAccess) NOTHING(cudaMemPrefetchAsync) NOTHING(cudaMemAdvise)
