/* cuDNN's recurrent layers (cudnn_adv.h of 9): where each matrix lies in the weights, and how much is kept for the
 * backward pass and worked in, by the rules of vramtui/estimators/torch_facts/recurrent.py, which says where they come
 * from. */
#include "driver.h"

void *own_cudnn(const char *name); /* cudnn.c */

enum { LSTM = 2, GRU = 3 }; /* CUDNN_RNN_RELU and …_TANH before them */

struct layers {
  int cell, directions, type, inputs, hidden, output, count;
  bool has_biases, has_dropout;
};
struct data {
  int type, steps, batch;
};

OBJECT(cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor, sizeof(struct layers), 1001)
OBJECT(cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor, sizeof(struct data), 1001)

/* PyTorch says how much is dropped just before it describes the layers. */
static __thread float last_dropout;
ANSWER(cudnnSetDropoutDescriptor, (void *what UNUSED, void *handle UNUSED, float dropout), &last_dropout, dropout)
ANSWER(cudnnRestoreDropoutDescriptor, (void *what UNUSED, void *handle UNUSED, float dropout), &last_dropout, dropout)
API int cudnnSetRNNDescriptor_v8(struct layers *layers, int algorithm UNUSED, int cell, int biases, int direction,
                                 int input UNUSED, int type, int precision UNUSED, int mode UNUSED, int inputs,
                                 int hidden, int output, int count, void *dropout UNUSED,
                                 unsigned flags UNUSED) {
  RETURN_IF(!is_handle(OBJECTS, layers) || cell < 0 || cell > GRU || output < 1 || hidden < 1 || count < 1 || direction < 0 || direction > 1, 2000);
  *layers = (struct layers){cell, 1 + direction, type, inputs, hidden, output, count, biases != 0, last_dropout > 0};
  return 0;
}
API int cudnnSetRNNDataDescriptor(struct data *data, int type, int layout UNUSED, int steps, int batch,
                                  int width UNUSED, const int *lengths UNUSED, void *padding UNUSED) {
  RETURN_IF(!is_handle(OBJECTS, data), 2000);
  *data = (struct data){type, steps, batch};
  return 0;
}

static size_t itemsize(int type) { return type == 0 ? 4 : type == 1 ? 8 : 2; } /* float, double, half and bfloat16 */
static int gates_of(const struct layers *layers) { return layers->cell == LSTM ? 4 : layers->cell == GRU ? 3 : 1; }
static int width_of(const struct layers *layers, int layer) {
  return layer == 0 ? layers->inputs : layers->output * layers->directions;
}
static bool is_projected(const struct layers *layers) { return layers->output != layers->hidden; }

/* Numbers of a layer's matrices, of one direction. */
static size_t matrices_of(const struct layers *layers, int layer) {
  size_t rows = (size_t)gates_of(layers) * layers->hidden;
  return rows * (width_of(layers, layer) + layers->output) +
         (is_projected(layers) ? (size_t)layers->hidden * layers->output : 0);
}

/* Of all pseudo-layers before one, a direction each: their matrices, or with `count` layers all of them. */
static size_t matrices_before(const struct layers *layers, int pseudo) {
  size_t sum = 0;
  for (int at = 0; at < pseudo; at++) {
    sum += matrices_of(layers, at / layers->directions);
  }
  return sum;
}
static size_t biases_of(const struct layers *layers) {
  return layers->has_biases ? (size_t)2 * gates_of(layers) * layers->hidden : 0;
}
API int cudnnGetRNNWeightSpaceSize(void *handle UNUSED, const struct layers *layers, size_t *size) {
  RETURN_IF(!is_handle(OBJECTS, layers) || is_wrong(size), 2000);
  int all = layers->count * layers->directions;
  *size = (matrices_before(layers, all) + all * biases_of(layers)) * itemsize(layers->type);
  return 0;
}

/* All matrices lie before all biases; of a layer those that see its input, its state, and a projection. */
API int cudnnGetRNNWeightParams(void *handle UNUSED, const struct layers *layers, int pseudo, size_t size UNUSED,
                                char *weights, int linear, void *matrix_shape, char **matrix, void *bias_shape,
                                char **bias) {
  RETURN_IF(!is_handle(OBJECTS, layers) || layers->directions == 0, 2000);
  int (*shape)(void *, int, int, const int *, const int *) =
      (int (*)(void *, int, int, const int *, const int *))own_cudnn("cudnnSetTensorNdDescriptor");
  int gates = gates_of(layers), width = width_of(layers, pseudo / layers->directions);
  int all = layers->count * layers->directions, of_state = linear - gates;
  bool is_projection = linear == 2 * gates;
  int rows = is_projection ? layers->output : layers->hidden;
  int columns = linear < gates ? width : is_projection ? layers->hidden : layers->output;
  size_t before = (size_t)layers->hidden * (linear < gates ? linear * width : gates * width + of_state * layers->output);
  size_t size_of = itemsize(layers->type);
  int result = shape == NULL ? 1001 : 0;
  if (matrix != NULL && result == 0) {
    const int sizes[] = {1, rows, columns}, strides[] = {rows * columns, columns, 1};
    *matrix = weights + (matrices_before(layers, pseudo) + before) * size_of;
    result = shape(matrix_shape, layers->type, 3, sizes, strides);
  }
  if (bias != NULL && result == 0) {
    const int sizes[] = {1, layers->hidden, 1}, strides[] = {layers->hidden, 1, 1};
    size_t biases = matrices_before(layers, all) + pseudo * biases_of(layers) + (size_t)linear * layers->hidden;
    *bias = is_projection || !layers->has_biases ? NULL : weights + biases * size_of;
    result = shape(bias_shape, layers->type, 3, sizes, strides);
  }
  return result;
}

/* Numbers that a call works with: of each hidden unit and input of a row; of each hidden unit of a sequence. */
static double worked_in(const struct layers *layers, double rows, double batch) {
  bool is_deep = layers->count > 1, is_gru = layers->cell == GRU, is_both = layers->directions > 1;
  double of_hidden = 4, of_inputs = 2, once = 0, of_layer = 5;
  if (layers->cell == LSTM) {
    of_hidden = is_both ? 14 : 5 + (is_projected(layers) ? (double)layers->output / layers->hidden : 0);
    of_inputs = 1;
    once = is_both ? 0 : (layers->inputs == layers->hidden) - is_projected(layers);
    of_layer = is_both ? 24 : 10;
  } else if (is_both) {
    of_hidden = is_gru ? 12 : 19 + 2 * is_deep;
    of_inputs = is_deep || !is_gru ? 2 : 1;
    of_layer = 14;
  } else if (!is_gru && layers->hidden < 512) {
    of_hidden = 13 + is_deep;
    of_layer = 6;
  } else if (is_deep && is_gru) {
    of_hidden = 3, once = 8, of_layer = 9;
  }
  bool drops = layers->has_dropout && is_deep && layers->cell >= LSTM;
  return rows * (of_hidden * layers->hidden + of_inputs * layers->inputs) +
         batch * layers->hidden * (once + of_layer * layers->count) +
         (drops ? rows * layers->output * layers->directions : 0);
}
API int cudnnGetRNNTempSpaceSizes(void *handle UNUSED, const struct layers *layers, int is_training,
                                  const struct data *data, size_t *workspace, size_t *reserve) {
  RETURN_IF(!is_handle(OBJECTS, layers) || !is_handle(OBJECTS, data), 2000);
  static const int KEPT[] = {1, 1, 5, 6}; /* numbers of each unit of a state */
  size_t rows = (size_t)data->batch * data->steps, both = (size_t)layers->count * layers->directions;
  size_t size = itemsize(layers->type), lengths = ((size_t)8 * data->batch + 31) / 32 * 32;
  if (workspace != NULL) {
    size_t matrices = matrices_before(layers, (int)both);
    double numbers = (double)matrices + worked_in(layers, (double)rows, data->batch);
    *workspace = both * 8 * MIB + 256 + lengths + (size_t)(numbers * (double)size + 0.5);
  }
  if (reserve != NULL) { /* which a backward pass does not ask again */
    size_t between = rows * layers->output * layers->directions * (layers->count - 1);
    size_t width = (size_t)KEPT[layers->cell] * layers->hidden;
    width += is_projected(layers) ? layers->hidden + layers->output : 0;
    size_t bits = layers->has_dropout ? (between + 255) / 256 * 32 : 0;
    *reserve = is_training ? (rows * width * both + between) * size + bits + 256 : 0;
  }
  return 0;
}

/* The generator's states of dropout between layers: 24 bytes a thread of the card, measured on an H200 (6,488,064). */
ANSWER(cudnnDropoutGetStatesSize, (void *handle UNUSED, size_t *size), size,
       (size_t)the_card()->multiprocessors * the_card()->threads * 24)
