/* cuDNN (cudnn_graph.h, cudnn_ops.h, cudnn_adv.h of 9): its handle belongs to this driver, and its graph API, by which
 * PyTorch asks for convolutions and attention, is the job's own library without a device, as it documents for
 * compiling ahead of time: it is told of the card by a DEVICEPROP descriptor, and the engines that its heuristics
 * take and their workspaces are its own. Nothing is executed. */
#include "driver.h"

enum { CUDNN_SUCCESS = 0, CUDNN_NOT_INITIALIZED = 1001, CUDNN_BAD_PARAM = 2000, CUDNN_NOT_SUPPORTED = 3000 };
enum { CONVOLUTION = 1, ENGINE = 2, ENGINE_HEURISTICS = 4, EXECUTION_PLAN = 5, DEVICE_PROPERTIES = 38 }; /* CUDNN_BACKEND_…_DESCRIPTOR */
enum { TYPE_DESCRIPTOR = 15, TYPE_CHAR = 24 };                                           /* CUDNN_TYPE_… */
enum { HEURISTICS_DEVICE = 204, PLAN_HANDLE = 400, PLAN_WORKSPACE = 402, PLAN_DEVICE = 407, CONVOLUTION_HOW = 702,
       CONVOLUTION_OUTPUT = 717, GRAPH_HANDLE = 800, ENGINE_DEVICE = 1307, DEVICE_JSON = 2702 }; /* CUDNN_ATTR_… */

/* The job's own library, which PyTorch has loaded before it calls any of this. */
void *own_cudnn(const char *name) {
  static void *library;
  library = library != NULL ? library : dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);
  return library == NULL ? NULL : dlsym(library, name);
}

#define OWN(name, parameters, arguments)                       \
  static int (*call) parameters;                               \
  call = call != NULL ? call : (int (*) parameters)own_cudnn(#name); \
  return call == NULL ? CUDNN_NOT_INITIALIZED : call arguments

static int create(int type, void **made) { OWN(cudnnBackendCreateDescriptor, (int, void **), (type, made)); }
static int set(void *what, int name, int type, int64_t count, const void *values) {
  OWN(cudnnBackendSetAttribute, (void *, int, int, int64_t, const void *), (what, name, type, count, values));
}
static int get(void *what, int name, int type, int64_t most, int64_t *count, void *values) {
  OWN(cudnnBackendGetAttribute, (void *, int, int, int64_t, int64_t *, void *), (what, name, type, most, count, values));
}
static int finalize(void *what) { OWN(cudnnBackendFinalize, (void *), (what)); }

/* It hears, by numbers of cuDNN's, of each descriptor, part of a convolution and plan that runs; below 0: no answer. */
static int64_t (*listener)(int event, void *what, void *more);
API void vramtui_listen_to_convolutions(int64_t (*call)(int, void *, void *)) { listener = call; }
static int64_t tell(int event, void *what, void *more) { return listener == NULL ? -1 : listener(event, what, more); }

struct cudnn_handle {
  struct stream *stream;
};

API int cudnnCreate(struct cudnn_handle **handle) {
  RETURN_IF(is_wrong(handle), CUDNN_BAD_PARAM);
  *handle = runtime_context() == NULL ? NULL : make_handle(OBJECTS, sizeof **handle);
  RETURN_IF(*handle == NULL, CUDNN_NOT_INITIALIZED);
  load(runtime_context(), DNN);
  return CUDNN_SUCCESS;
}
ENDED(cudnnDestroy, struct cudnn_handle, OBJECTS, CUDNN_BAD_PARAM)
ANSWER_OF(is_handle(OBJECTS, handle), CUDNN_BAD_PARAM, cudnnSetStream,
          (struct cudnn_handle *handle, struct stream *stream), &handle->stream, stream)
ANSWER_OF(is_handle(OBJECTS, handle), CUDNN_BAD_PARAM, cudnnGetStream,
          (struct cudnn_handle *handle, struct stream **stream), stream, handle->stream)

static void *described;
static void describe(void) {
  static const int NUMBERS[] = {5, 6, 7, 16, 8, 97, 111, 106, 39, 13, 36, 38};
  int n[sizeof NUMBERS / sizeof NUMBERS[0]];
  for (size_t at = 0; at < sizeof NUMBERS / sizeof NUMBERS[0]; at++) {
    cuDeviceGetAttribute(&n[at], NUMBERS[at], 0);
  }
  const struct card *card = the_card();
  char text[2048];
  int length = snprintf(text, sizeof text,
      "{\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"deviceName\":\"%s\",\"maxGridSize\":[%d,%d,%d],"
      "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"warpSize\":32,"
      "\"maxSharedMemoryPerBlock\":%d,\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":%d,"
      "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":%d,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,"
      "\"pciBusId\":1,\"pciDeviceId\":0,\"pciDomainId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
      "\"totalGlobalMem\":%zu,\"smClockRateKHz\":%d,\"memClockRateKHz\":%d,\"l2CacheSize\":%d}",
      card->major * 100 + card->minor * 10, card->name, n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8],
      card->memory, n[9], n[10], n[11]);
  void *made = NULL;
  if (create(DEVICE_PROPERTIES, &made) != CUDNN_SUCCESS ||
      set(made, DEVICE_JSON, TYPE_CHAR, length + 1, text) != CUDNN_SUCCESS || finalize(made) != CUDNN_SUCCESS) {
    report_unmodelled("CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR", (void *)describe);
    return;
  }
  described = made;
}
API int cudnnBackendCreateDescriptor(int type, void **made) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int result = create(type, made);
  int name = type == ENGINE ? ENGINE_DEVICE
             : type == ENGINE_HEURISTICS ? HEURISTICS_DEVICE
             : type == EXECUTION_PLAN ? PLAN_DEVICE : 0;
  if (type == CONVOLUTION) { /* some of its engines are refused without a device: tests/golden/card/beside.json */
    report_unmodelled("cuDNN's engines that need a device", __builtin_return_address(0));
  }
  if (result == CUDNN_SUCCESS && name != 0) {
    pthread_once(&once, describe);
    set(*made, name, TYPE_DESCRIPTOR, 1, &described);
  }
  tell(type, result == CUDNN_SUCCESS ? *made : NULL, NULL);
  return result;
}

/* Handles are not the library's own: without a device it needs none. */
API int cudnnBackendSetAttribute(void *what, int name, int type, int64_t count, const void *values) {
  bool is_part = name >= CONVOLUTION_HOW && name <= CONVOLUTION_OUTPUT && type == TYPE_DESCRIPTOR && count == 1;
  tell(is_part ? name : -1, is_part ? *(void *const *)values : NULL, NULL);
  return name == GRAPH_HANDLE || name == PLAN_HANDLE ? CUDNN_SUCCESS : set(what, name, type, count, values);
}
API int cudnnBackendGetAttribute(void *what, int name, int type, int64_t most, int64_t *count, void *values) {
  int result = get(what, name, type, most, count, values);
  int64_t bytes = result == CUDNN_SUCCESS && name == PLAN_WORKSPACE && most > 0 ? tell(name, what, NULL) : -1;
  *(bytes < 0 ? &bytes : (int64_t *)values) = bytes;
  return result;
}
API int cudnnBackendExecute(struct cudnn_handle *handle, void *plan, void *pack) {
  RETURN_IF(!is_handle(OBJECTS, handle), CUDNN_BAD_PARAM);
  tell(0, plan, pack);
  add_graph_node(handle->stream, 0);
  return CUDNN_SUCCESS;
}

DONE(cudnnBatchNormalizationBackwardEx) DONE(cudnnBatchNormalizationForwardInference)
DONE(cudnnBatchNormalizationForwardTrainingEx) DONE(cudnnRNNForward) DONE(cudnnRNNBackwardData_v8)
DONE(cudnnRNNBackwardWeights_v8) DONE(cudnnCTCLoss) DONE(cudnnCTCLoss_v8) DONE(cudnnPoolingForward)
DONE(cudnnSpatialTfGridGeneratorBackward) DONE(cudnnSpatialTfGridGeneratorForward)
DONE(cudnnSpatialTfSamplerBackward) DONE(cudnnSpatialTfSamplerForward)

#define NO(name) REFUSED(name, CUDNN_NOT_SUPPORTED)
NO(cudnnConvolutionBackwardData) NO(cudnnConvolutionBackwardFilter) NO(cudnnConvolutionBiasActivationForward)
NO(cudnnConvolutionForward) NO(cudnnFindConvolutionBackwardDataAlgorithmEx)
NO(cudnnFindConvolutionBackwardFilterAlgorithmEx) NO(cudnnFindConvolutionForwardAlgorithmEx)
NO(cudnnGetConvolutionBackwardDataAlgorithm_v7) NO(cudnnGetConvolutionBackwardDataWorkspaceSize)
NO(cudnnGetConvolutionBackwardFilterAlgorithm_v7) NO(cudnnGetConvolutionBackwardFilterWorkspaceSize)
NO(cudnnGetConvolutionForwardAlgorithm_v7) NO(cudnnGetConvolutionForwardWorkspaceSize)
