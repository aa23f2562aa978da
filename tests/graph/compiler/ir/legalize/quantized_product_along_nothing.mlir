// run cpu: legalize
// There is no group that a kernel could scale: products of floats give zeros, and look at offsets.
func.func @main(%x: bf16[3, 0], %o: i64[3]) -> (bf16[3, 40], bf16[3, 8]) {
  %w = weight() {name = "w"} : () -> ui8[40, 0]
  %s = weight() {name = "s"} : () -> f16[40, 0]
  %a = quantized_matmul(%x, %w, %s, %s) {activations = "int8", bits = 4 : i64, group = 32 : i64} : (bf16[3, 0], ui8[40, 0], f16[40, 0], f16[40, 0]) -> bf16[3, 40]
  %v = weight() {name = "v"} : () -> i8[2, 8, 0]
  %t = weight() {name = "t"} : () -> bf16[2, 8, 0]
  %b = quantized_grouped_matmul(%x, %v, %t, %o) {activations = "float", bits = 8 : i64, group = 32 : i64} : (bf16[3, 0], i8[2, 8, 0], bf16[2, 8, 0], i64[3]) -> bf16[3, 8]
  return %a, %b : bf16[3, 40], bf16[3, 8]
}

// gives
module {
  func.func @main(%arg0: bf16[3, 0], %arg1: i64[3]) -> (bf16[3, 40], bf16[3, 8]) {
    %0 = weight() {name = "w"} : () -> ui8[40, 0]
    %1 = cast(%0) {dtype = bf16} : (ui8[40, 0]) -> bf16[40, 0]
    %2 = transpose(%1) {permutation = array<i64: 1, 0>} : (bf16[40, 0]) -> bf16[0, 40]
    %3 = matmul(%arg0, %2) {precision = "full"} : (bf16[3, 0], bf16[0, 40]) -> bf16[3, 40]
    %4 = weight() {name = "v"} : () -> i8[2, 8, 0]
    %5 = cast(%4) {dtype = bf16} : (i8[2, 8, 0]) -> bf16[2, 8, 0]
    %6 = transpose(%5) {permutation = array<i64: 0, 2, 1>} : (bf16[2, 8, 0]) -> bf16[2, 0, 8]
    %7 = grouped_matmul(%arg0, %6, %arg1) : (bf16[3, 0], bf16[2, 0, 8], i64[3]) -> bf16[3, 8]
    return %3, %7 : bf16[3, 40], bf16[3, 8]
  }
}
