/* Graphs: what a captured stream was given, counted and never run. */
#include "driver.h"

struct user_object {
  void (*destroy)(void *);
  void *data;
  unsigned owners;
};

static uint64_t last_capture;
static __thread int thread_mode;
static __thread struct capture *thread_capture; /* what this thread began last */

bool is_capturing(struct stream *stream) { return capture_of(stream) != NULL; }

static struct node *add_node(struct graph *graph, int kind) {
  RETURN_IF(!is_handle(GRAPHS, graph), NULL);
  if (graph->count == graph->room) {
    size_t more = graph->room == 0 ? 64 : 2 * graph->room;
    struct node **moved = realloc(graph->nodes, more * sizeof *moved);
    RETURN_IF(moved == NULL, NULL);
    graph->nodes = moved;
    graph->room = more;
  }
  struct node *node = make_handle(NODES, sizeof *node);
  RETURN_IF(node == NULL, NULL);
  node->kind = kind;
  return graph->nodes[graph->count++] = node;
}

void add_graph_node(struct stream *stream, int kind) {
  struct capture *capture = capture_of(stream);
  LOCKED;
  if (capture != NULL) {
    add_node(capture->graph, kind);
  }
}
API uint64_t vramtui_launches; /* of kernels so far: a program knows by it that one ran which it did not see */

void add_launch(struct stream *stream) {
  __atomic_add_fetch(&vramtui_launches, 1, __ATOMIC_RELAXED);
  load(current_context(), KERNELS);
  add_graph_node(stream, 0);
}

void add_work(void) {
  LOCKED;
  if (thread_capture != NULL && thread_capture->is_on) {
    add_node(thread_capture->graph, 0);
  }
}
MADE(cuGraphCreate, (struct graph **graph, unsigned flags UNUSED), graph, GRAPHS)
API CUresult cuGraphDestroy(struct graph *graph) {
  RETURN_IF(!is_handle(GRAPHS, graph), CUDA_ERROR_INVALID_VALUE);
  for (size_t at = 0; at < graph->count; at++) {
    end_handle(NODES, graph->nodes[at]);
  }
  free(graph->nodes);
  end_handle(GRAPHS, graph);
  return CUDA_SUCCESS;
}
API CUresult cuStreamBeginCaptureToGraph(struct stream *stream, struct graph *graph, void *after UNUSED,
                                         void *edges UNUSED, size_t count UNUSED, int mode) {
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  RETURN_IF(!is_handle(GRAPHS, graph), CUDA_ERROR_INVALID_VALUE);
  RETURN_IF(capture_of(stream) != NULL, CUDA_ERROR_ILLEGAL_STATE);
  struct capture *capture = calloc(1, sizeof *capture);
  RETURN_IF(capture == NULL, CUDA_ERROR_OUT_OF_MEMORY);
  uint64_t id = __atomic_add_fetch(&last_capture, 1, __ATOMIC_RELAXED);
  *capture = (struct capture){.id = id, .is_on = true, .mode = mode, .origin = stream, .graph = graph};
  set_capture(stream, capture);
  thread_capture = capture;
  return CUDA_SUCCESS;
}
API CUresult cuStreamBeginCapture_v2(struct stream *stream, int mode) {
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  struct graph *graph;
  CUresult result = cuGraphCreate(&graph, 0);
  return result == CUDA_SUCCESS ? cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, mode) : result;
}
API CUresult cuStreamEndCapture(struct stream *stream, struct graph **graph) {
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  RETURN_IF(is_wrong(graph), CUDA_ERROR_INVALID_VALUE);
  struct capture *capture = capture_of(stream);
  if (capture == NULL || capture->origin != stream) {
    *graph = NULL;
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  *graph = capture->graph;
  capture->is_on = false; /* streams that joined find it so */
  set_capture(stream, NULL);
  return CUDA_SUCCESS;
}
ANSWER_OF(is_stream(stream), CUDA_ERROR_INVALID_HANDLE, cuStreamIsCapturing, (struct stream *stream, int *status),
          status, is_capturing(stream))
API CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  RETURN_IF(is_wrong(mode), CUDA_ERROR_INVALID_VALUE);
  int before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
API CUresult cuStreamGetCaptureInfo_v3(struct stream *stream, int *status, uint64_t *id, struct graph **graph,
                                       struct node *const **after, const void **edges, size_t *count) {
  RETURN_IF(!is_stream(stream), CUDA_ERROR_INVALID_HANDLE);
  RETURN_IF(is_wrong(status), CUDA_ERROR_INVALID_VALUE);
  struct capture *capture = capture_of(stream);
  *status = capture != NULL;
  RETURN_IF(capture == NULL || !is_handle(GRAPHS, capture->graph), CUDA_SUCCESS);
  size_t last = capture->graph->count;
  TELL(id, capture->id);
  TELL(graph, capture->graph);
  TELL(after, last == 0 ? NULL : &capture->graph->nodes[last - 1]);
  TELL(edges, NULL);
  TELL(count, last > 0);
  return CUDA_SUCCESS;
}
API CUresult cuStreamGetCaptureInfo_v2(struct stream *stream, int *status, uint64_t *id, struct graph **graph,
                                       struct node *const **after, size_t *count) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, graph, after, NULL, count);
}
API CUresult cuStreamGetCaptureInfo(struct stream *stream, int *status, uint64_t *id) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

/* A graph that can be launched is the graph: it may be destroyed before this, so it is only counted. */
API CUresult cuGraphInstantiateWithFlags(size_t **ready, struct graph *graph, unsigned long long flags UNUSED) {
  RETURN_IF(is_wrong(ready) || !is_handle(GRAPHS, graph), CUDA_ERROR_INVALID_VALUE);
  *ready = make_handle(READY_GRAPHS, sizeof **ready);
  RETURN_IF(*ready == NULL, CUDA_ERROR_OUT_OF_MEMORY);
  **ready = graph->count;
  return CUDA_SUCCESS;
}
ENDED(cuGraphExecDestroy, size_t, READY_GRAPHS, CUDA_ERROR_INVALID_VALUE)

/* CUDA_GRAPH_INSTANTIATE_PARAMS: flags, stream, the node at fault, the result. */
struct instantiation {
  uint64_t flags;
  struct stream *stream;
  struct node *at_fault;
  int result;
};

API CUresult cuGraphInstantiateWithParams(size_t **ready, struct graph *graph, struct instantiation *how) {
  RETURN_IF(is_wrong(how), CUDA_ERROR_INVALID_VALUE);
  how->at_fault = NULL;
  how->result = 0;
  return cuGraphInstantiateWithFlags(ready, graph, how->flags);
}
ANSWER_OF(is_handle(READY_GRAPHS, ready), CUDA_ERROR_INVALID_VALUE, cuGraphExecGetFlags,
          (size_t *ready, uint64_t *flags), flags, 0)
API CUresult cuGraphExecUpdate_v2(size_t *ready, struct graph *graph, void **result) {
  RETURN_IF(!is_handle(READY_GRAPHS, ready) || !is_handle(GRAPHS, graph), CUDA_ERROR_INVALID_VALUE);
  *ready = graph->count;
  TELL(result, NULL);
  return CUDA_SUCCESS;
}
static CUresult get_nodes(struct graph *graph, size_t most, struct node **nodes, size_t *count) {
  RETURN_IF(!is_handle(GRAPHS, graph) || is_wrong(count), CUDA_ERROR_INVALID_VALUE);
  size_t whole = graph->count < most ? graph->count : most;
  *count = nodes == NULL || *count > whole ? whole : *count;
  for (size_t at = 0; !is_wrong(nodes) && at < *count; at++) {
    nodes[at] = graph->nodes[at];
  }
  return CUDA_SUCCESS;
}
API CUresult cuGraphGetNodes(struct graph *graph, struct node **nodes, size_t *count) {
  return get_nodes(graph, SIZE_MAX, nodes, count);
}
API CUresult cuGraphGetRootNodes(struct graph *graph, struct node **nodes, size_t *count) {
  return get_nodes(graph, 1, nodes, count);
}
ANSWER_OF(is_handle(NODES, node), CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType, (struct node *node, int *kind),
          kind, node->kind)
#define ADDED(name, kind)                                                             \
  API CUresult name(struct node **node, struct graph *graph) {                        \
    RETURN_IF(is_wrong(node) || !is_handle(GRAPHS, graph), CUDA_ERROR_INVALID_VALUE); \
    *node = add_node(graph, kind);                                                    \
    return *node == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;                   \
  }
ADDED(cuGraphAddEmptyNode, 5) ADDED(cuGraphAddKernelNode_v2, 0) /* what follows says after which, and what it does */

API CUresult cuUserObjectCreate(struct user_object **object, void *data, void (*destroy)(void *), unsigned owners,
                                unsigned flags UNUSED) {
  RETURN_IF(is_wrong(object) || !is_code((const void *)destroy) || owners == 0, CUDA_ERROR_INVALID_VALUE);
  *object = make_handle(USER_OBJECTS, sizeof **object);
  RETURN_IF(*object == NULL, CUDA_ERROR_OUT_OF_MEMORY);
  **object = (struct user_object){.destroy = destroy, .data = data, .owners = owners};
  return CUDA_SUCCESS;
}
API CUresult cuUserObjectRetain(struct user_object *object, unsigned count) {
  RETURN_IF(!is_handle(USER_OBJECTS, object), CUDA_ERROR_INVALID_VALUE);
  object->owners += count;
  return CUDA_SUCCESS;
}
API CUresult cuUserObjectRelease(struct user_object *object, unsigned count) {
  RETURN_IF(!is_handle(USER_OBJECTS, object) || count > object->owners, CUDA_ERROR_INVALID_VALUE);
  object->owners -= count;
  if (object->owners == 0) {
    object->destroy(object->data);
    end_handle(USER_OBJECTS, object);
  }
  return CUDA_SUCCESS;
}
/* A graph that keeps an object keeps it for good: graphs end with the process. */

