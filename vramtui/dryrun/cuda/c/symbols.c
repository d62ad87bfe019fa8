/* How the driver's functions are found by name, and what stands in for those that are not modelled. */
#include "driver.h"

/* Which form of a function a CUDA version means by its plain name, where that is not the newest (cuda.h's
 * `#define cuX cuX_v2` through its releases). A function with one further form, `_v2` since CUDA 3.2 or 4, is not listed, nor one
 * whose forms do the same here. */
static const struct {
  const char *name, *form;
  int since;
} FORMS[] = {
    {"cuCtxCreate", "cuCtxCreate_v4", 12050},
    {"cuCtxCreate", "cuCtxCreate_v3", 11040},
    {"cuCtxCreate", "cuCtxCreate_v2", 3020},
    {"cuCtxGetDevice", "cuCtxGetDevice_v2", 13000},
    {"cuCtxGetDevice", "cuCtxGetDevice", 2000},
    {"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
    {"cuGetProcAddress", "cuGetProcAddress", 11030},
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000},
    {"cuGraphInstantiate", "cuGraphInstantiate_v2", 10000},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3", 12030},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2", 11030},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo", 10000},
    {"cuStreamGetCtx", "cuStreamGetCtx_v2", 12050},
    {"cuStreamGetCtx", "cuStreamGetCtx", 9020},
};

static void *own_symbol(const char *name) {
  static void *self;
  if (self == NULL) {
    Dl_info where;
    dladdr((void *)own_symbol, &where);
    self = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }
  return self == NULL ? NULL : dlsym(self, name);
}

static const void *modelled(const char *asked, int version) {
  char name[128], form[144];
  snprintf(name, sizeof name, "%s", asked);
  size_t length = strlen(name);
  if (length > 5 && (strcmp(name + length - 5, "_ptsz") == 0 || strcmp(name + length - 5, "_ptds") == 0)) {
    name[length - 5] = '\0'; /* a thread's own default stream is as good as any */
  }
  for (size_t at = 0; at < sizeof FORMS / sizeof FORMS[0]; at++) {
    if (strcmp(FORMS[at].name, name) == 0 && version >= FORMS[at].since) {
      return own_symbol(FORMS[at].form);
    }
  }
  snprintf(form, sizeof form, "%s_v2", name);
  void *found = own_symbol(form);
  return found == NULL ? own_symbol(name) : found;
}

/* A function of its own for each name that is not modelled, so that a call can be named. */
#define MOST_UNMODELLED 512
static const char *missing_names[MOST_UNMODELLED];
static int missing_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult missing(int at, void *caller) {
  report_unmodelled(missing_names[at], caller);
  if (getenv("VRAMTUI_DRIVER_TRACE") != NULL) {
    fprintf(stderr, "driver: %s is not modelled\n", missing_names[at]);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

#define MISSING(n) \
  static CUresult missing_##n(void) { return missing(0##n, __builtin_return_address(0)); }
#define EIGHT(m, n) m(n##0) m(n##1) m(n##2) m(n##3) m(n##4) m(n##5) m(n##6) m(n##7)
#define SIXTY_FOUR(m, n) EIGHT(m, n##0) EIGHT(m, n##1) EIGHT(m, n##2) EIGHT(m, n##3) EIGHT(m, n##4) EIGHT(m, n##5) EIGHT(m, n##6) EIGHT(m, n##7)
#define ALL(m) SIXTY_FOUR(m, 0) SIXTY_FOUR(m, 1) SIXTY_FOUR(m, 2) SIXTY_FOUR(m, 3) SIXTY_FOUR(m, 4) SIXTY_FOUR(m, 5) SIXTY_FOUR(m, 6) SIXTY_FOUR(m, 7)
ALL(MISSING)
#define ENTRY(n) missing_##n,
static CUresult (*const MISSING_FUNCTIONS[MOST_UNMODELLED])(void) = {ALL(ENTRY)};

const void *unmodelled(const char *name) {
  pthread_mutex_lock(&lock);
  int at = 0;
  while (at < missing_count && strcmp(missing_names[at], name) != 0) {
    at++;
  }
  if (at == missing_count && at < MOST_UNMODELLED) {
    missing_names[missing_count++] = strdup(name);
  }
  pthread_mutex_unlock(&lock);
  return at < MOST_UNMODELLED ? (const void *)MISSING_FUNCTIONS[at] : NULL;
}
API CUresult cuGetProcAddress_v2(const char *name, const void **function, int version, uint64_t flags UNUSED,
                                 int *status) {
  RETURN_IF(is_wrong(name) || is_wrong(function), CUDA_ERROR_INVALID_VALUE);
  const void *found = modelled(name, version);
  *function = found == NULL ? unmodelled(name) : found;
  TELL(status, 0); /* found */
  return CUDA_SUCCESS;
}
API CUresult cuGetProcAddress(const char *name, const void **function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

static const struct {
  int code;
  const char *name, *text;
} ERRORS[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

static const char *error_text(CUresult code, bool is_name) {
  for (size_t at = 0; at < sizeof ERRORS / sizeof ERRORS[0]; at++) {
    RETURN_IF(ERRORS[at].code == code, is_name ? ERRORS[at].name : ERRORS[at].text);
  }
  return is_name ? "CUDA_ERROR_UNKNOWN" : "unknown error";
}
ANSWER(cuGetErrorName, (CUresult code, const char **text), text, error_text(code, true))
ANSWER(cuGetErrorString, (CUresult code, const char **text), text, error_text(code, false))
/* A log that stays empty. */
API CUresult cuLogsRegisterCallback(void *call UNUSED, void *data UNUSED, void **handle) {
  TELL(handle, NULL);
  return CUDA_SUCCESS;
}
