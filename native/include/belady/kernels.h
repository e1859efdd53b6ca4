// The contract between kernels (compiled once per ISA level), the plan that calls them, and the packer.
//
// Plain pointers and sizes only; nothing here allocates, throws or knows Python. Every kernel's result for a row depends
// on that row, the weights and the model alone: never on how many rows there are, how work is cut into chunks, the number
// of threads or the ISA level (float operations are written in one fixed order, `-ffp-contract=off`, explicit FMAs).
#pragma once

#include <cstddef>
#include <cstdint>

namespace bk {

// How a weight matrix [n outputs, k inputs] is stored. Every integer format means, for output j and input i of group g:
//     w[j, i] = scale[j, g] * code[j, i] - minimum[j, g],      code unsigned (0..15, 0..31, 0..255)
// so one product serves all: y = s_x * sum_g (scale_g * sum_i code_i * q_i  -  minimum_g * sum_i q_i), q the int8 activation.
enum Format : int32_t {
  kF32 = 0,
  kBF16 = 1,
  kW8 = 2,     // one scale per output, symmetric (minimum = 128 * scale)
  kW8G32 = 3,  // groups of 32, fp16 scale and minimum
  kW4G32 = 4,
  kW5G32 = 5,
  kW8G16 = 6,  // groups of 16 (6-bit sources)
};

enum KvType : int32_t { kKvF32 = 0, kKvF16 = 1, kKvBF16 = 2, kKvI8 = 3 };

enum Activation : int32_t { kSilu = 0, kGeluTanh = 1 };

// A packed weight: bytes in the layout of one ISA family (`KernelTable::family`), 64-byte aligned, read only.
struct Weight {
  Format format;
  int32_t reserved;
  int64_t n;  // outputs
  int64_t k;  // inputs
  const uint8_t* data;
};

// Rows of activations in the form a weight format reads: float32 rows (kF32, kBF16), or int8 records (all others) with
// scale, group sums and codes, `act_bytes(k)` bytes each, 64-byte aligned. Records serve every integer format.
struct Rows {
  uint8_t* data;
  int64_t stride;  // bytes
  int64_t count;
};

// One layer group's pages: [layer][page][kv_head][slot][head_dim], keys and values apart. For kKvI8 there is one float
// scale per (layer, page, kv_head, slot).
struct KvPool {
  KvType type;
  int32_t layers, kv_heads, head_dim, page_size;
  int64_t pages;
  uint8_t* keys;
  uint8_t* values;
  float* key_scales;    // null unless kKvI8
  float* value_scales;  // null unless kKvI8
};

// One row of a step: `tokens` consecutive tokens that end at `context` (exclusive), its block table for one group.
struct Sequence {
  int32_t first;    // index of its first token among the step's tokens
  int32_t tokens;   // at least 1
  int32_t context;  // length including this step's tokens
  int32_t reserved;
  const int32_t* table;  // physical pages of [k * page_size, ...); -1: left the window
};

// What one attention op needs besides its sequences.
struct Attention {
  const KvPool* pool;
  int32_t layer;   // within the group
  int32_t heads;   // query heads
  int32_t window;  // keys a query sees, its own included; 0: all
  float scale;
  float softcap;   // 0: none
  const float* q;  // [T, heads * head_dim], row stride ldq floats, already rotated
  int64_t ldq;
  float* out;      // [T, heads * head_dim]
  int64_t ldo;
};

// A piece of attention work: queries [q0, q1) of one sequence and one key-value head, keys of splits [s0, s1).
// Splits are kSplit absolute positions wide, from 0. Partial results of a query are folded in ascending order.
constexpr int32_t kSplit = 256;
struct AttentionUnit {
  int32_t sequence, kv_head;
  int32_t q0, q1;  // token offsets within the sequence's step tokens
  int32_t s0, s1;
  int64_t partial;  // >= 0: offset (floats) into the partial buffer; -1: the unit covers all its keys, write to out
};

struct KernelTable {
  const char* level;   // "base", "avx2", "avxvnni", "avx512", "avx512vnni", "amx"
  const char* family;  // packed layout: levels of one family share packed weights
  int32_t columns;     // columns of a weight tile: the unit in which linear work is cut

  // -- packing and linear layers (isa/linear.cpp, isa/quantize.cpp)
  size_t (*packed_bytes)(Format, int64_t n, int64_t k);
  // codes [n, k] uint8, scale and minimum float [n, groups]; null scale/minimum for kF32/kBF16, whose source is float32 [n, k].
  void (*pack)(Format, int64_t n, int64_t k, const void* codes, const float* scale, const float* minimum,
               int64_t tile_begin, int64_t tile_end, uint8_t* out);
  size_t (*act_bytes)(int64_t k);
  void (*quantize)(const float* x, int64_t ldx, int64_t rows, int64_t k, uint8_t* act, int64_t stride);
  // y[r, tile columns] = x[r] . w^T (+ bias) (+ y, when accumulate), rows [0, x.count), tiles [tile_begin, tile_end).
  void (*linear)(const Weight& w, const Rows& x, int64_t tile_begin, int64_t tile_end, const float* bias,
                 bool accumulate, float* y, int64_t ldy);
  // out[r] = factor * row ids[r] of w, decoded.
  void (*embed)(const Weight& w, const int32_t* ids, int64_t rows, float factor, float* out, int64_t ldo);

  // -- row ops (isa/rows.cpp). `act` null: float result to y; else the int8 record of the result to act (y may be null).
  void (*rms_norm)(const float* x, int64_t ldx, int64_t rows, int64_t n, const float* weight, float eps, float* y,
                   int64_t ldy, uint8_t* act, int64_t stride);
  // x += a, then rms_norm of the sum (as above).
  void (*add_rms_norm)(float* x, int64_t ldx, const float* a, int64_t lda, int64_t rows, int64_t n,
                       const float* weight, float eps, float* y, int64_t ldy, uint8_t* act, int64_t stride);
  void (*gated)(const float* gate, int64_t ldg, const float* up, int64_t ldu, int64_t rows, int64_t n, Activation,
                float* y, int64_t ldy, uint8_t* act, int64_t stride);
  void (*add)(const float* a, int64_t lda, const float* b, int64_t ldb, int64_t rows, int64_t n, float* y, int64_t ldy);
  void (*scale)(const float* x, int64_t ldx, int64_t rows, int64_t n, float factor, float* y, int64_t ldy);
  void (*soft_cap)(const float* x, int64_t ldx, int64_t rows, int64_t n, float cap, float* y, int64_t ldy);
  // In place on heads of d: optional RMS norm of every head (weight null: none), then rotation by cos/sin [*, d/2] rows
  // selected by positions (null cos: none).
  void (*head_norm_rope)(float* x, int64_t ldx, int64_t rows, int64_t heads, int64_t d, const float* weight, float eps,
                         const float* cos, const float* sin, const int32_t* positions);

  // -- cache and attention (isa/attention.cpp)
  // Store k and v of tokens [t0, t1) of a sequence; a page whose slot 0 is written has its other slots cleared first.
  void (*kv_write)(const KvPool&, int32_t layer, const Sequence&, int32_t t0, int32_t t1, const float* k, int64_t ldk,
                   const float* v, int64_t ldv);
  size_t (*attention_scratch)(const Attention&);  // bytes per thread
  void (*attention)(const Attention&, const Sequence*, const AttentionUnit&, uint8_t* scratch, float* partials);
  // Floats of partial results that a unit with partial >= 0 writes: per query head of the unit and per split
  // max, sum and head_dim outputs; `merge` folds all splits of one (sequence, kv_head, query range) into out.
  void (*merge)(const Attention&, const Sequence*, const AttentionUnit* units, int64_t count, const float* partials);
};

// Every level compiled into this binary, best first, whether or not this machine can run it.
extern const KernelTable* const kLevels[];
extern const int kLevelCount;

}  // namespace bk
