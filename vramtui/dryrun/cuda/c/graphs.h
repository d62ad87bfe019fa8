/* Streams and what is captured on them. */
#pragma once

#include "driver.h"

struct node {
  int kind; /* CU_GRAPH_NODE_TYPE_… */
};

struct graph {
  struct node **nodes;
  size_t count, room;
};

struct capture {
  uint64_t id;
  bool is_on;
  int mode;
  struct stream *origin;
  struct graph *graph;
};

struct stream {
  struct context *context;
  unsigned flags;
  int priority;
  uint64_t id;
  struct capture *capture;
};

struct capture *capture_of(struct stream *stream); /* NULL where it is not captured */
void set_capture(struct stream *stream, struct capture *capture);
