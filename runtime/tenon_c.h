/* tenon_c.h: the seam between libtenon and a framework. C only: opaque handles, plain structs, a
 * table of functions.
 *
 * No exception and no C++ library type crosses it. libtenon is built once for every framework
 * version; the framework side (for PyTorch: a thin extension) is compiled against whichever version
 * is present.
 *
 * Threads: compile and run may be called from any thread at any time; one executable may be run by
 * many threads at once. Strings passed in are UTF-8 with a length; strings passed out belong to
 * libtenon until tenon_string_free. */
#ifndef TENON_C_H_
#define TENON_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_ABI_VERSION 9
#define TENON_API __attribute__((visibility("default")))

/* ---- data
 * -------------------------------------------------------------------------------------------------------
 */
/* A tensor as the run sees it. `tensor` is the framework's own reference-counted object when there
 * is one (a c10::TensorImpl* for PyTorch), else NULL. dtype: tenon::PrimitiveType's number
 * (tenon_dtype_from_name). Sizes and strides in elements. */
typedef struct TenonTensor {
  void* tensor;
  void* data;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t dtype;
  int32_t ndim;
} TenonTensor;

/* An argument of a framework operator (hlo/framework_arg.h), as a tree. kind:
 * FrameworkArg::Kind's number. */
typedef struct TenonArg {
  int32_t kind;
  int32_t dtype;
  int64_t i;
  double f, im;
  const char* s;
  const struct TenonArg* list;
  int64_t list_size;
} TenonArg;

/* One framework operator call site, given to op_prepare once per executable. */
typedef struct TenonOpSpec {
  const char* overload; /* "aten.sort.default"; "host.matmul" (TenonHost::functions); "python.3" for a
                           Python callable */
  const TenonArg* args;
  int64_t num_args;
  int32_t rule; /* tenon::ResultRule: 0 out, 1 owned, 2 view */
  int32_t num_operands, num_results;
  const TenonTensor*
      operands; /* expected metas (data and tensor NULL); sizes may be NULL when symbolic */
  const TenonTensor* results; /* expected metas; dtype -1: result not used */
} TenonOpSpec;

/* One call of a prepared operator. */
typedef struct TenonOpCall {
  void* op;                    /* from op_prepare */
  const TenonTensor* operands; /* current pointers; `tensor` set when the operand is exactly a whole
                                  framework tensor; data NULL and ndim -1: absent (None) */
  TenonTensor* results; /* rule out: the memory to write. Else filled in by the host: tensor (a new
                           reference, released by tensor_release), data, sizes, strides, dtype,
                           ndim; sizes/strides valid until the tensor is released. Where TenonOpSpec's
                           results have no sizes, being symbolic, sizes and strides come as they have to
                           be in this call */
  void**
      cache; /* one pointer per operand, then per `out` result, kept with this frame for the host's
                own wrappers; NULL at first; each non-NULL is given to cache_release at frame end */
  const int64_t* numbers; /* in this call, what TenonOpSpec's arguments of kind SymInt are: TenonArg.i says which */
} TenonOpCall;

/* ---- what a framework provides
 * ------------------------------------------------------------------------------------ */
typedef struct TenonHost {
  uint32_t size;    /* sizeof(TenonHost) of the caller */
  uint32_t version; /* TENON_ABI_VERSION */
  void* context;
  /* Arena memory, 64-byte aligned, from the framework's allocator. NULL: out of memory. */
  void* (*allocate)(void* context, size_t bytes);
  void (*deallocate)(void* context, void* memory, size_t bytes);
  /* Runs fn(arg, b, e) over pieces of [begin, end), each at least `grain` long, on the framework's
   * pool; returns when all are done. fn never throws. */
  void (*parallel_for)(void* context, int64_t begin, int64_t end, int64_t grain,
                       void (*fn)(void*, int64_t, int64_t), void* arg);
  int (*num_threads)(void* context);
  /* Resolves an operator. Returns NULL and sets *error (malloc'ed; libtenon frees it) if it does
   * not exist. */
  void* (*op_prepare)(void* context, const TenonOpSpec* spec, char** error);
  void (*op_release)(void* context, void* op);
  /* 0: done. 1: the framework raised; the host keeps the exception and rethrows it when tenon_run
   * returns TENON_HOST_ERROR.
   */
  int (*op_call)(void* context, TenonOpCall* call);
  void (*tensor_release)(void* context, void* tensor);
  void (*tensor_retain)(void* context, void* tensor);
  /* A new tensor with memory of its own: same dtype, sizes, strides, values. Replaces *tensor and
   * gives the old reference back. 0: done; 1: as op_call. */
  int (*tensor_clone)(void* context, TenonTensor* tensor);
  void (*cache_release)(void* context, void* wrapper);
  /* A line for the user's log ("TORCH_LOGS=tenon"); level 0 debug, 1 info, 2 warning. */
  void (*log)(void* context, int level, const char* text);
  /* 1: the user wants what this thread is at to end (Ctrl-C); the host keeps the exception and rethrows it when tenon_run returns
   * TENON_HOST_ERROR, or tenon_compile. Asked at most twenty times a second, by compiles between phases and by loops of a program
   * while nothing of the caller's has been written to. */
  int (*interrupted)(void* context);
  /* Which functions of runtime/host/functions.h op_prepare knows by name, a bit each, beside the framework's operators. */
  uint64_t functions;
  /* Named ranges in a profiler of the framework's. tracing: 1 while one listens to this thread; asked once a run. range_begin: what
   * range_end ends, or NULL; `name` need not outlive the call. Ranges of a thread nest. None of them fails. */
  int (*tracing)(void* context);
  void* (*range_begin)(void* context, const char* name);
  void (*range_end)(void* context, void* range);
  /* Memory spaces (docs/architecture/targets.md): a bit for each that this host has; bit 0, the host's own memory, is always set. A
   * program that wants another one is refused. What follows is called for spaces of devices only. */
  uint64_t spaces;
  /* The number of the device whose memory the space is, as its driver counts; -1: there is none now. */
  int (*device)(void* context, int32_t space);
  /* As allocate, in that space and for work on that stream; deallocate_in: behind the work that the stream was given before. */
  void* (*allocate_in)(void* context, int32_t space, void* stream, size_t bytes);
  void (*deallocate_in)(void* context, int32_t space, void* stream, void* memory, size_t bytes);
  /* The stream on which this thread's work in the space is ordered now; NULL may be one. Asked once a run. */
  void* (*stream)(void* context, int32_t space);
  /* event_record: an event behind all that the stream was given; NULL: that work is done. event_wait: what the stream is given from now
   * on waits for the event. None of them fails. */
  void* (*event_record)(void* context, int32_t space, void* stream);
  void (*event_wait)(void* context, int32_t space, void* stream, void* event);
  void (*event_release)(void* context, int32_t space, void* event);
} TenonHost;

/* ---- graphs
 * ----------------------------------------------------------------------------------------------------------
 * A graph of the framework's operators (torch_plugin/aten/graph.h), made call by call: symbols, then values and nodes as they are used,
 * then the return. Used by one thread until it has its return, by any number from then on, when nothing can be added. All that is
 * passed in is copied. Values have numbers, from 0 in the order in which they are made; names are for texts and messages, made of
 * letters, digits, '_' and '.', and none occurs twice. After an error, which names what was wanted and what came, a graph may only be
 * released. */
typedef struct TenonGraph TenonGraph;
enum { TENON_META_TENSOR = 0, TENON_META_SYMINT = 1, TENON_META_NONE = 2, TENON_META_OTHER = 3 };
/* What is known of a value. TENSOR: dtype, ndim, sizes, strides in elements, storage offset; SYMINT: its value in `offset`; OTHER: what no
 * compiler takes (a sparse tensor, a subclass), with the reason. */
typedef struct TenonMeta {
  int32_t kind;
  int32_t dtype;
  int32_t ndim;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t offset;
  /* NULL: all of these are numbers. Else of the sizes, the strides, the offset, 2 * ndim + 1 in all: NULL for a number, or the text of an
   * expression over the graph's symbols. */
  const char* const* expressions;
  const char* device; /* NULL: "cpu" */
  const char* other;
} TenonMeta;
/* One call of an operator. args: the schema's whole positional list; a tensor's `i` is its value's number, and its `list` may say how the
 * operator sees it: [strides], a copy if it has others, or [sizes, strides, offset], a view. names: of the results, NULL where there are
 * none. writes: values among the tensors that the operator changes; the last num_writes results are what they hold then. mutates_first:
 * the operator changes its first tensor; its result, which `names` may name, is that tensor, and `metas` is not looked at. */
typedef struct TenonNode {
  const char* op; /* the overload, "aten.add.Tensor" */
  const TenonArg* args;
  int64_t num_args;
  const char* const* names;
  const TenonMeta* metas;
  int64_t num_results;
  const int64_t* writes;
  int64_t num_writes;
  int32_t mutates_first;
  const char* module_path; /* where it comes from: "layer.0", "net.py:12"; NULL: unknown */
  const char* source;
} TenonNode;

TENON_API TenonGraph* tenon_graph_new(const char* name, char** error);
TENON_API void tenon_graph_release(TenonGraph*);
/* lower <= value <= upper. typical: a value to plan for, to which no result is bound; <= 0: unknown. 0: done; 1: *error. */
TENON_API int tenon_graph_symbol(TenonGraph*, const char* name, int64_t lower, int64_t upper, int64_t typical, char** error);
/* The value's number; -1: *error. Constants are the tensors handed to tenon_compile, in order. A literal's `data` are its elements,
 * dense and row-major. */
TENON_API int64_t tenon_graph_input(TenonGraph*, const char* name, const TenonMeta* meta, char** error);
TENON_API int64_t tenon_graph_constant(TenonGraph*, const char* name, const TenonMeta* meta, char** error);
TENON_API int64_t tenon_graph_literal(TenonGraph*, const char* name, const TenonMeta* meta, const void* data, size_t bytes, char** error);
/* The number of the first result, the others' follow; without results that of the value that would be next. -1: *error. */
TENON_API int64_t tenon_graph_node(TenonGraph*, const TenonNode* node, char** error);
/* Outputs are arguments of kind tensor (a value's number), none, int or SymInt. 0: done; 1: *error. */
TENON_API int tenon_graph_return(TenonGraph*, const TenonArg* outputs, int64_t num_outputs, char** error);
/* A value's number by its name; -1: *error. */
TENON_API int64_t tenon_graph_value(const TenonGraph*, const char* name, char** error);
/* The text of torch_plugin/aten/graph.h, for dumps, tests and bug reports. */
TENON_API char* tenon_graph_print(const TenonGraph*, char** error);
TENON_API TenonGraph* tenon_graph_parse(const char* text, size_t size, char** error);
/* How many graphs, and how many modules of HLO, this process has printed and parsed as text. A compile does neither, but for what it is
 * asked to dump, for the check of passes (the option "verify_passes"), and for the repro of one that fails. */
typedef struct TenonTextCounts {
  int64_t graphs_printed, graphs_parsed, modules_printed, modules_parsed, json_parsed;
} TenonTextCounts;
TENON_API TenonTextCounts tenon_text_counts(void);

/* ---- compiling
 * ------------------------------------------------------------------------------------------------------
 */
typedef struct TenonExecutable TenonExecutable;

/* An option of a compile (torch_plugin/libtenon/options.h has their names and types): a bool, int, string, or list of them. */
typedef struct TenonOption {
  const char* name;
  TenonArg value;
} TenonOption;

/* `graph`: with its return; the caller's again when this returns. An unknown option is an error. `constants`: tensors of the graph's
 * constants, in order; their memory is borrowed, and the caller keeps it alive and unchanged while the executable lives. Returns NULL
 * and *error on a bad request only: what fails inside falls back to the eager program, whose reason the signature tells. */
TENON_API TenonExecutable* tenon_compile(const TenonGraph* graph, const TenonOption* options, int64_t num_options,
                                         const TenonTensor* constants, int64_t num_constants, const TenonHost* host,
                                         char** error);
TENON_API void tenon_executable_retain(TenonExecutable*);
TENON_API void tenon_executable_release(TenonExecutable*);

/* JSON: tier, reason, inputs, outputs, kernels, steps, memory plan, compile_ms, remarks. Free with
 * tenon_string_free. */
TENON_API char* tenon_executable_info(const TenonExecutable*);
/* The program as text, for people. */
TENON_API char* tenon_executable_text(const TenonExecutable*);
/* JSON: counters of calls, per framework step {op, count, ns, reason}, kernels' ns when profiling
 * is on. */
TENON_API char* tenon_executable_stats(const TenonExecutable*, int reset);
/* JSON of one graph for a report's `graphs` (docs/architecture/report.md): with the compiler's half if it was compiled with the
 * option "report", and with what profiled runs cost. */
TENON_API char* tenon_executable_report(const TenonExecutable*);
/* The page that shows a report, one self-contained HTML text. NULL and *error: `document` is no report. */
TENON_API char* tenon_report_html(const char* document, size_t size, char** error);
TENON_API void tenon_set_profiling(
    int on); /* per-step timing of kernels too (framework steps are always timed) */

/* A profile of what all threads run from start to stop (runtime/profile/recorder.h): the process's only one. `max_events`: so many are kept
 * of the timeline; totals know all. start: 0, or 1 and *error: one is being recorded. stop: NULL and *error: none is. */
typedef struct TenonProfile TenonProfile;
TENON_API int tenon_profile_start(int64_t max_events, char** error);
TENON_API TenonProfile* tenon_profile_stop(char** error);
TENON_API void tenon_profile_release(TenonProfile*);
/* JSON of programs and their steps, and a table for people with `rows` steps of each program (0: all). Both measure the machine, once a
 * process and number of threads, on the host's pool: up to 0.3 s. */
TENON_API char* tenon_profile_json(const TenonProfile*, const TenonHost* host, char** error);
TENON_API char* tenon_profile_table(const TenonProfile*, const TenonHost* host, int64_t rows, char** error);
/* The timeline as Chrome's trace events (JSON), for Perfetto or chrome://tracing. */
TENON_API char* tenon_profile_trace(const TenonProfile*, char** error);

typedef struct TenonOutput {
  int32_t kind; /* tenon::OutputKind */
  int32_t dtype;
  int64_t index; /* kInput, kConstant: which; kSymInt: filled per run into TenonTensor.data of
                    `outputs` as the number */
  int32_t ndim;
  const int64_t* sizes; /* NULL: depends on the inputs' sizes; ask tenon_output_sizes */
  const int64_t* strides;
  int32_t space; /* kFresh: the memory space to allocate it in; 0: the host's */
} TenonOutput;
enum { TENON_INPUT_MUTATED = 1, TENON_INPUT_FRAMEWORK = 2 };
typedef struct TenonInput {
  int32_t kind; /* tenon::InputSpec::Kind */
  int32_t dtype;
  int32_t ndim;
  const int64_t* sizes; /* what was compiled for; NULL: a symbol says */
  const int64_t* strides;
  int32_t flags; /* ..._MUTATED: a run writes to it; ..._FRAMEWORK: some step reads the whole of it, so that an operator may
                    get the caller's own tensor */
  const char* packed_by; /* tenon::InputSpec's. NULL: memory like any other. Else a run gets a tensor without data */
  const int64_t* packing;
  int64_t num_packing;
} TenonInput;
typedef struct TenonPhase {
  const char* name;
  double ms;
} TenonPhase;
/* What a caller must know of an executable. Belongs to it and lives as long. */
typedef struct TenonSignature {
  uint32_t size; /* sizeof(TenonSignature) of the library: fields are appended */
  int32_t native; /* 0: the eager program, for `reason` */
  const char* name;
  const char* reason;
  const TenonInput* inputs; /* the graph's */
  const TenonOutput* outputs;
  int64_t num_inputs, num_outputs;
  int64_t num_kernels;
  int64_t planned_bytes; /* arena, outputs, constants */
  const TenonPhase* compile_ms;
  int64_t num_phases;
  const TenonInput* frozen; /* behind the graph's inputs: one per output of tenon_executable_once */
} TenonSignature;
TENON_API const TenonSignature* tenon_signature(const TenonExecutable*);
/* Compiled with the option "frozen": what computes, from the same inputs, of which it reads the frozen ones only, the values that a run
 * takes behind its inputs: its outputs, all of them kFresh. Belongs to the executable. NULL: a run takes the inputs alone. */
TENON_API TenonExecutable* tenon_executable_once(const TenonExecutable*);

/* ---- running
 * --------------------------------------------------------------------------------------------------------
 */
/* TENON_HOST_ERROR: op_call or another function of the host failed; it keeps the error. With the bit TENON_AFTER_WRITES any error is one
 * after which inputs have new values already, as they would in the caller's program where it stands; the run must not be done again. */
enum { TENON_OK = 0, TENON_HOST_ERROR = 1, TENON_CHECK_ERROR = 2, TENON_ERROR = 3, TENON_AFTER_WRITES = 4 };

/* inputs: one per graph input, then one per output of tenon_executable_once (SymInt inputs: the
 * number in `data` cast to pointer size, ndim -1).
 * outputs: kFresh: `data` is the memory the caller allocated with the signature's sizes and strides, apart from all other tensors': it is
 * written from the run's beginning on, with intermediate results too.
 * kSlot: filled in with `tensor` (ownership passes to the caller). Others: untouched. Inputs of
 * kind kOther: `tensor` only, ndim -1. Metas of inputs are checked against what was compiled
 * (dtype, sizes, strides): TENON_ERROR with a message. TENON_CHECK_ERROR: *error is "IndexError:
 * ..." etc: exception name, colon, message. */
TENON_API int tenon_run(TenonExecutable*, const TenonTensor* inputs, TenonTensor* outputs,
                        char** error);
/* The same, but where owned[i] != 0 the reference inputs[i].tensor passes to libtenon, which gives
 * it back at the input's last use, at the latest on return (errors included). An input that is an
 * output too must not be owned. */
TENON_API int tenon_run_owned(TenonExecutable*, const TenonTensor* inputs, uint8_t* owned,
                              TenonTensor* outputs, char** error);

/* TENON_OK: a run takes inputs of these dtypes, sizes, strides and numbers. TENON_ERROR: what it wants, in *error unless that is NULL.
 * Nothing is read but the metas. */
TENON_API int tenon_check_inputs(TenonExecutable*, const TenonTensor* inputs, char** error);

/* Sizes and strides (ndim of each) of a fresh output whose TenonOutput has none. */
TENON_API int tenon_output_sizes(TenonExecutable*, const TenonTensor* inputs, int64_t output,
                                 int64_t* sizes, int64_t* strides, char** error);

/* ---- the rest
 * ---------------------------------------------------------------------------------------------------------
 */
TENON_API void tenon_string_free(char*);
TENON_API int32_t tenon_dtype_from_name(const char* name); /* -1: unknown */
TENON_API const char* tenon_dtype_name(int32_t dtype);
TENON_API const char* tenon_build_id(void);
/* JSON: in-memory cache entries, hits, misses, compiles, bytes; clear drops entries not in use. */
TENON_API char* tenon_cache_stats(void);
TENON_API void tenon_cache_clear(void);

/* ---- HLO text without a framework (torch_tenon.hlo)
 * ---------------------------------------------------------------------------------------------------------
 * Arrays go in and out as flat lists: the leaves of the parameters, the leaves of the result, both in tuple
 * order, dense and row-major whatever layouts say (`strides` is not looked at).
 * Messages start with the kind of the failure: "INVALID_ARGUMENT: ...".
 * A handle may be used by
 * many threads at once, tenon_hlo_run_passes aside. */
typedef struct TenonHlo TenonHlo;
enum { TENON_HLO_FILL_ELIDED = 1, TENON_HLO_NO_VERIFY = 2 };
TENON_API TenonHlo* tenon_hlo_parse(const char* text, size_t size, int flags, char** error);
TENON_API void tenon_hlo_release(TenonHlo*);
TENON_API int tenon_hlo_verify(const TenonHlo*, char** error);
enum { TENON_HLO_CANONICAL = 1, TENON_HLO_PERCENT = 2, TENON_HLO_OPERAND_SHAPES = 4, TENON_HLO_NO_METADATA = 8 };
TENON_API char* tenon_hlo_print(const TenonHlo*, int flags);
/* JSON: {"name", "inputs": [{"dtype", "shape"}], "outputs": [...]}. */
TENON_API char* tenon_hlo_signature(const TenonHlo*);
/* JSON: {"total": {...}, "instructions": [...]}, see hlo/cost.h. */
TENON_API char* tenon_hlo_cost(const TenonHlo*, char** error);
/* `passes`, `disable`: names with commas between; no passes: the default list. 1: changed, 0: not, -1: error, unchanged. */
TENON_API int tenon_hlo_run_passes(TenonHlo*, const char* passes, const char* disable, char** error);

/* A whole report of one graph: the module compiled with `options` (as in tenon_compile; "target": "cpu", or "sm_90" for a GPU that need
 * not be there), or, where that is refused, as it is, with the reason. Does not touch what tenon_hlo_compile made. */
TENON_API char* tenon_hlo_report(const TenonHlo*, const TenonOption* options, int64_t num_options, char** error);

typedef struct TenonHloResult TenonHloResult;
TENON_API TenonHloResult* tenon_hlo_evaluate(const TenonHlo*, const TenonTensor* inputs, int64_t num_inputs,
                                             char** error);
/* Compiles on the first call; `options` as in tenon_compile, and "target": "cpu" (default; this library has no other). Dots run as plain
 * loops. */
TENON_API int tenon_hlo_compile(TenonHlo*, const TenonOption* options, int64_t num_options, char** error);
TENON_API TenonHloResult* tenon_hlo_run(TenonHlo*, const TenonTensor* inputs, int64_t num_inputs, char** error);
/* The leaves, row-major; alive until the result is released. */
TENON_API int64_t tenon_hlo_result_count(const TenonHloResult*);
TENON_API const TenonTensor* tenon_hlo_result_leaves(const TenonHloResult*);
TENON_API void tenon_hlo_result_release(TenonHloResult*);

/* A custom-call target of the evaluator and the CPU backend, for the whole process. `results` point at memory to write. Return 0, or
 * write a message (at most TENON_HLO_MESSAGE bytes with its 0) and return 1. */
enum { TENON_HLO_MESSAGE = 4096 };
typedef struct TenonHloCall {
  const char* target;
  const char* backend_config;
  const char* instruction; /* its line of HLO text */
  const TenonTensor* operands;
  const TenonTensor* results;
  int64_t num_operands, num_results;
} TenonHloCall;
typedef int (*TenonHloCustomCall)(void* context, const TenonHloCall* call, char* message);
/* call NULL: takes the target away. */
TENON_API int tenon_hlo_register_custom_call(const char* target, TenonHloCustomCall call, void* context, char** error); /* 0: done */
TENON_API char* tenon_hlo_custom_calls(void); /* JSON: the names */
/* The LAPACK library behind eigenvalues and singular values, before the first such call. */
TENON_API int tenon_hlo_set_lapack(const char* path, char** error); /* 0: done */
/* As TenonHost's `interrupted`, for tenon_hlo_compile and tenon_hlo_run of the whole process: 1 ends them with "CANCELLED: ...". NULL:
 * never. */
TENON_API void tenon_hlo_set_interrupted(int (*interrupted)(void));

#ifdef __cplusplus
}
#endif
#endif /* TENON_C_H_ */
