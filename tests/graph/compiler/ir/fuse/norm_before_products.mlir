// run cpu: pack, fuse
// A norm that two products alone read is computed with them, and so is what feeds it and the cast
// behind it; one whose result is read by others as well, or is a result of the graph, stays a kernel.
func.func @main(%x: f32[n, 8], %y: f32[n, 8]) -> (bf16[n, 8], bf16[n, 8], f32[n, 8], f32[n, 8], f32[n, 8]) attributes {heddle.symbols = {n = [1, 9]}} {
  %wq = weight() {name = "q"} : () -> bf16[8, 8]
  %wk = weight() {name = "k"} : () -> bf16[8, 8]
  %wv = weight() {name = "v"} : () -> f32[8, 8]
  %g = weight() {name = "g"} : () -> f32[8]
  %sum = add(%x, %y) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
  %norm = rms_norm(%sum, %g) {epsilon = 1.000000e-05 : f64} : (f32[n, 8], f32[8]) -> f32[n, 8]
  %half = cast(%norm) {dtype = bf16} : (f32[n, 8]) -> bf16[n, 8]
  %q = matmul(%half, %wq) {precision = "full"} : (bf16[n, 8], bf16[8, 8]) -> bf16[n, 8]
  %k = matmul(%half, %wk) {precision = "full"} : (bf16[n, 8], bf16[8, 8]) -> bf16[n, 8]
  %other = rms_norm(%y, %g) {epsilon = 1.000000e-05 : f64} : (f32[n, 8], f32[8]) -> f32[n, 8]
  %v = matmul(%other, %wv) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
  %r = add(%v, %other) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
  %returned = rms_norm(%x, %g) {epsilon = 1.000000e-05 : f64} : (f32[n, 8], f32[8]) -> f32[n, 8]
  %z = matmul(%returned, %wv) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
  return %q, %k, %r, %returned, %z : bf16[n, 8], bf16[n, 8], f32[n, 8], f32[n, 8], f32[n, 8]
}
// gives
module {
  func.func @main(%arg0: f32[n, 8], %arg1: f32[n, 8]) -> (bf16[n, 8], bf16[n, 8], f32[n, 8], f32[n, 8], f32[n, 8]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "q"} : () -> bf16[8, 8]
    %1 = weight() {name = "k"} : () -> bf16[8, 8]
    %2 = weight() {name = "v"} : () -> f32[8, 8]
    %3 = weight() {name = "g"} : () -> f32[8]
    %4 = fused(%0) ({
    ^bb0(%arg2: bf16[8, 8]):
      %12 = pack_b(%arg2) {group = 2 : i64, transposed = false} : (bf16[8, 8]) -> bf16[1, 4, 32, 2]
      yield(%12) : (bf16[1, 4, 32, 2]) -> ()
    }) : (bf16[8, 8]) -> bf16[1, 4, 32, 2]
    %5 = fused(%1) ({
    ^bb0(%arg2: bf16[8, 8]):
      %12 = pack_b(%arg2) {group = 2 : i64, transposed = false} : (bf16[8, 8]) -> bf16[1, 4, 32, 2]
      yield(%12) : (bf16[1, 4, 32, 2]) -> ()
    }) : (bf16[8, 8]) -> bf16[1, 4, 32, 2]
    %6:2 = fused(%arg0, %arg1, %3, %4, %5) ({
    ^bb0(%arg2: f32[n, 8], %arg3: f32[n, 8], %arg4: f32[8], %arg5: bf16[1, 4, 32, 2], %arg6: bf16[1, 4, 32, 2]):
      %12 = add(%arg2, %arg3) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
      %13 = rms_norm(%12, %arg4) {epsilon = 1.000000e-05 : f64} : (f32[n, 8], f32[8]) -> f32[n, 8]
      %14 = cast(%13) {dtype = bf16} : (f32[n, 8]) -> bf16[n, 8]
      %15 = matmul_packed(%14, %arg5) {columns = "8"} : (bf16[n, 8], bf16[1, 4, 32, 2]) -> bf16[n, 8]
      %16 = matmul_packed(%14, %arg6) {columns = "8"} : (bf16[n, 8], bf16[1, 4, 32, 2]) -> bf16[n, 8]
      yield(%15, %16) : (bf16[n, 8], bf16[n, 8]) -> ()
    }) : (f32[n, 8], f32[n, 8], f32[8], bf16[1, 4, 32, 2], bf16[1, 4, 32, 2]) -> (bf16[n, 8], bf16[n, 8])
    %7 = fused(%arg1, %3) ({
    ^bb0(%arg2: f32[n, 8], %arg3: f32[8]):
      %12 = rms_norm(%arg2, %arg3) {epsilon = 1.000000e-05 : f64} : (f32[n, 8], f32[8]) -> f32[n, 8]
      yield(%12) : (f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[8]) -> f32[n, 8]
    %8 = fused(%2) ({
    ^bb0(%arg2: f32[8, 8]):
      %12 = transpose(%arg2) {permutation = array<i64: 1, 0>} : (f32[8, 8]) -> f32[8, 8]
      yield(%12) : (f32[8, 8]) -> ()
    }) : (f32[8, 8]) -> f32[8, 8]
    %9 = fused(%7, %8, %7) ({
    ^bb0(%arg2: f32[n, 8], %arg3: f32[8, 8], %arg4: f32[n, 8]):
      %12 = transpose(%arg3) {permutation = array<i64: 1, 0>} : (f32[8, 8]) -> f32[8, 8]
      %13 = matmul(%arg2, %12) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
      %14 = add(%13, %arg4) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
      yield(%14) : (f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[8, 8], f32[n, 8]) -> f32[n, 8]
    %10 = fused(%arg0, %3) ({
    ^bb0(%arg2: f32[n, 8], %arg3: f32[8]):
      %12 = rms_norm(%arg2, %arg3) {epsilon = 1.000000e-05 : f64} : (f32[n, 8], f32[8]) -> f32[n, 8]
      yield(%12) : (f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[8]) -> f32[n, 8]
    %11 = fused(%10, %8) ({
    ^bb0(%arg2: f32[n, 8], %arg3: f32[8, 8]):
      %12 = transpose(%arg3) {permutation = array<i64: 1, 0>} : (f32[8, 8]) -> f32[8, 8]
      %13 = matmul(%arg2, %12) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
      yield(%13) : (f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
    return %6#0, %6#1, %9, %10, %11 : bf16[n, 8], bf16[n, 8], f32[n, 8], f32[n, 8], f32[n, 8]
  }
}
