/* Streams and events: all work is done when it is given, so nothing is ever waited for. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"
#include "graphs.h"

struct event {
  struct capture *capture;
  struct timespec at;
};

static uint64_t last_stream;
/* The default streams: a stream's handle is NULL, 1 (legacy) or 2 (of this thread), or the stream's own. */
static struct stream default_stream;

static struct stream *own(struct stream *stream) { return (uintptr_t)stream <= 2 ? &default_stream : stream; }

struct capture *capture_of(struct stream *stream) {
  struct stream *asked = own(stream);
  if (asked->capture != NULL && !asked->capture->is_on) {
    asked->capture = NULL; /* the stream it began on has ended it */
  }
  return asked->capture;
}

void set_capture(struct stream *stream, struct capture *capture) { own(stream)->capture = capture; }

API CUresult cuStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority) {
  struct context *context = current_context();
  struct stream *made = context == NULL ? NULL : calloc(1, sizeof *made);
  RETURN_IF(made == NULL, context == NULL ? without_context() : CUDA_ERROR_OUT_OF_MEMORY);
  *made = (struct stream){.context = context, .flags = flags, .priority = priority};
  load(context, STREAM);
  made->id = __atomic_add_fetch(&last_stream, 1, __ATOMIC_RELAXED) + 2;
  *stream = made;
  return CUDA_SUCCESS;
}

API CUresult cuStreamCreate(struct stream **stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

API CUresult cuStreamDestroy_v2(struct stream *stream) {
  RETURN_IF((uintptr_t)stream <= 2, CUDA_ERROR_INVALID_HANDLE);
  free(stream);
  return CUDA_SUCCESS;
}

ANSWER(cuStreamGetPriority, (struct stream *stream, int *priority), priority, own(stream)->priority)
ANSWER(cuStreamGetFlags, (struct stream *stream, unsigned *flags), flags, own(stream)->flags)
ANSWER(cuStreamGetId, (struct stream *stream, unsigned long long *id), id,
       (uintptr_t)stream <= 2 ? (uintptr_t)stream : stream->id)
API CUresult cuStreamGetCtx(struct stream *stream, struct context **context) {
  struct context *found = own(stream)->context;
  *context = found == NULL ? current_context() : found;
  return CUDA_SUCCESS;
}

API CUresult cuStreamGetCtx_v2(struct stream *stream, struct context **context, void **green) {
  *green = NULL;
  return cuStreamGetCtx(stream, context);
}

API CUresult cuStreamGetDevice(struct stream *stream, CUdevice *device) {
  struct context *context;
  cuStreamGetCtx(stream, &context);
  RETURN_IF(context == NULL, without_context());
  *device = context->device;
  return CUDA_SUCCESS;
}

API CUresult cuStreamSynchronize(struct stream *stream) {
  return is_capturing(stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

API CUresult cuStreamAddCallback(struct stream *stream, void (*call)(struct stream *, CUresult, void *), void *data,
                                 unsigned flags UNUSED) {
  call(stream, CUDA_SUCCESS, data);
  return CUDA_SUCCESS;
}

API CUresult cuLaunchHostFunc(struct stream *stream, void (*call)(void *), void *data) {
  add_graph_node(stream, 3);
  if (!is_capturing(stream)) {
    call(data);
  }
  return CUDA_SUCCESS;
}

API CUresult cuStreamGetAttribute(struct stream *stream UNUSED, int number UNUSED, unsigned char value[64]) {
  memset(value, 0, 64);
  return CUDA_SUCCESS;
}

#define MEMORY_OPERATIONS(bits)                                                                     \
  API CUresult cuStreamWriteValue##bits##_v2(struct stream *stream UNUSED, CUdeviceptr address,     \
                                             uint##bits##_t value, unsigned flags UNUSED) {         \
    return copy(address, (CUdeviceptr)&value, sizeof value);                                        \
  }

MEMORY_OPERATIONS(32)
MEMORY_OPERATIONS(64)

API CUresult cuEventCreate(struct event **event, unsigned flags UNUSED) {
  *event = calloc(1, sizeof **event);
  return *event == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(struct event *event) {
  free(event);
  return CUDA_SUCCESS;
}

API CUresult cuEventRecordWithFlags(struct event *event, struct stream *stream, unsigned flags UNUSED) {
  event->capture = capture_of(stream);
  clock_gettime(CLOCK_MONOTONIC, &event->at);
  return CUDA_SUCCESS;
}

/* Nothing is computed: what passes is the host's time, whose chances must not choose among kernels (cudnn.benchmark,
 * autotuning). A millisecond, then, which is no 0 to divide by, and whole seconds, for who waits. */
API CUresult cuEventElapsedTime(float *milliseconds, struct event *from, struct event *to) {
  double seconds = (double)(to->at.tv_sec - from->at.tv_sec) + (double)(to->at.tv_nsec - from->at.tv_nsec) / 1e9;
  *milliseconds = 1 + 1000 * (float)(int64_t)seconds;
  return CUDA_SUCCESS;
}

/* A stream that waits for an event of a stream that is captured is captured with it. */
API CUresult cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags UNUSED) {
  if (event->capture != NULL && event->capture->is_on && capture_of(stream) == NULL) {
    set_capture(stream, event->capture);
  }
  return CUDA_SUCCESS;
}
